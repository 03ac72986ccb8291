// Modal dialogs, toasts and menus. The promise of a dialog resolves to the user's choice.

import { createButton, byId, el } from "./dom.js";
import { translate } from "./language.js";

/** Ask the user to confirm an action. */
export function confirmAction(question, action) {
  return new Promise((resolve) => {
    const onclose = () => {
      dialog.remove();
      resolve(dialog.returnValue === "yes");
    };
    const dialog = el("dialog.small", { "aria-labelledby": "dialog-title", onclose },
      el("h2", { id: "dialog-title" }, question),
      el("div.dialog-buttons", {},
        createButton(translate("cancel"), () => dialog.close("no")),
        createButton(action, () => dialog.close("yes"), ".danger")));
    document.body.append(dialog);
    dialog.showModal();
  });
}

/** Ask the user for the token. */
export function promptForToken(wasWrong) {
  return new Promise((resolve) => {
    const field = el("input", {
      type: "password",
      id: "token",
      autocomplete: "off",
      spellcheck: "false",
      required: true,
      "aria-describedby": "token-hint",
    });
    const send = (event) => {
      event.preventDefault();
      if (!field.value.trim()) return;
      dialog.remove();
      resolve(field.value.trim());
    };
    const text = translate(wasWrong ? "token.wrong" : "token.needed");
    const dialog = el("dialog.small", { "aria-labelledby": "dialog-title", oncancel: (event) => event.preventDefault() },
      el("h2", { id: "dialog-title" }, translate("token")),
      el("p", { role: wasWrong ? "alert" : null }, text),
      el("form", { onsubmit: send }, el("label.visually-hidden", { for: "token" }, translate("token")), field,
        el("p.quiet", { id: "token-hint" },
          translate("token.hint")),
        el("div.dialog-buttons", {}, el("button.button.primary", {}, translate("token.continue")))));
    document.body.append(dialog);
    dialog.showModal();
    field.focus();
  });
}

/** Show a message for six seconds, also to screen readers. */
export function showToast(text) {
  const toast = el("div.toast", {}, text);
  byId("toasts").append(toast);
  setTimeout(() => toast.remove(), 6_000);
}

/** Open a menu at a button: `entries` are [label, action]. Arrow keys move, Escape closes. */
export function openMenu(opener, entries) {
  document.querySelector(".menu")?.remove();
  const close = (restoreFocus) => {
    menu.remove();
    opener.setAttribute("aria-expanded", "false");
    removeEventListener("pointerdown", closeOutside, true);
    removeEventListener("resize", place);
    if (restoreFocus) opener.focus();
  };
  const closeOutside = (event) => menu.contains(event.target) || close(false);
  const items = entries.map(([label, action]) => {
    const onclick = () => {
      close(true);
      action();
    };
    return el("button.menu-item", { type: "button", role: "menuitem", tabindex: "-1", onclick }, label);
  });
  const onkeydown = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (event.key === "Escape" || event.key === "Tab") close(true);
    else if (step) items[(items.indexOf(document.activeElement) + step + items.length) % items.length].focus();
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  const menu = el("div.menu", { role: "menu", "aria-label": opener.getAttribute("aria-label"), onkeydown }, ...items);
  (opener.closest("header, nav") ?? document.body).append(menu);
  const place = () => {
    const rect = opener.getBoundingClientRect();
    const below = rect.bottom + 4;
    const top = below + menu.offsetHeight + 4 <= innerHeight ? below : rect.top - menu.offsetHeight - 4;
    menu.style.left = `${Math.max(8, Math.min(rect.left, innerWidth - menu.offsetWidth - 8))}px`;
    menu.style.top = `${Math.max(8, top)}px`;
  };
  place();
  addEventListener("resize", place);
  opener.setAttribute("aria-expanded", "true");
  addEventListener("pointerdown", closeOutside, true);
  items[0].focus();
}
