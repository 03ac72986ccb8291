// Small windows before the page: each promises what the person decides. The browser keeps the focus in them.

import { button, byId, el } from "./dom.js";

/** Ask whether to do something that cannot be undone. */
export function confirmed(question, act) {
  return new Promise((resolve) => {
    const onclose = () => {
      dialog.remove();
      resolve(dialog.returnValue === "yes");
    };
    const dialog = el("dialog.small", { "aria-labelledby": "dialog-title", onclose },
      el("h2", { id: "dialog-title" }, question),
      el("div.dialog-buttons", {},
        button("Cancel", () => dialog.close("no")),
        button(act, () => dialog.close("yes"), ".danger")));
    document.body.append(dialog);
    dialog.showModal();
  });
}

/** Ask for the token until there is one. */
export function tokenTyped(wasWrong) {
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
    const words = wasWrong ? "The server does not accept this token." : "The server wants to know that it is you.";
    const dialog = el("dialog.small", { "aria-labelledby": "dialog-title", oncancel: (event) => event.preventDefault() },
      el("h2", { id: "dialog-title" }, "Token"),
      el("p", { role: wasWrong ? "alert" : null }, words),
      el("form", { onsubmit: send }, el("label.unseen", { for: "token" }, "Token"), field,
        el("p.quiet", { id: "token-hint" },
          "It stands behind “#token=” in the address that dial-chat serve printed, or is the one it was given."),
        el("div.dialog-buttons", {}, el("button.button.primary", {}, "Continue"))));
    document.body.append(dialog);
    dialog.showModal();
    field.focus();
  });
}

/** Show a sentence for a while, where it disturbs nobody; screen readers hear it. */
export function toast(text) {
  const note = el("div.toast", {}, text);
  byId("toasts").append(note);
  setTimeout(() => note.remove(), 6_000);
}

/** Open a menu below a button: `entries` are [words, act]. Arrow keys move, Escape closes. */
export function openMenu(opener, entries) {
  document.querySelector(".menu")?.remove();
  const close = (isBack) => {
    menu.remove();
    opener.setAttribute("aria-expanded", "false");
    removeEventListener("pointerdown", outside, true);
    if (isBack) opener.focus();
  };
  const outside = (event) => menu.contains(event.target) || close(false);
  const items = entries.map(([words, act]) => {
    const onclick = () => {
      close(true);
      act();
    };
    return el("button.menu-item", { type: "button", role: "menuitem", tabindex: "-1", onclick }, words);
  });
  const move = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (event.key === "Escape" || event.key === "Tab") close(true);
    else if (step) items[(items.indexOf(document.activeElement) + step + items.length) % items.length].focus();
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  const menu = el("div.menu", { role: "menu", "aria-label": opener.getAttribute("aria-label"), onkeydown: move }, ...items);
  document.body.append(menu);
  const place = opener.getBoundingClientRect();
  const isBelow = place.bottom + menu.offsetHeight + 8 <= innerHeight;
  menu.style.left = `${Math.max(8, Math.min(place.left, innerWidth - menu.offsetWidth - 8))}px`;
  menu.style.top = `${isBelow ? place.bottom + 4 : place.top - menu.offsetHeight - 4}px`;
  opener.setAttribute("aria-expanded", "true");
  addEventListener("pointerdown", outside, true);
  items[0].focus();
}
