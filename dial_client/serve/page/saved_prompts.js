// The user's own prompts, kept in the browser's storage. `/` in the message field proposes them.

import { createButton, createIconButton, el, byId } from "./dom.js";
import { translate } from "./language.js";

const KEY = "dial-saved-prompts";
const MAX_PROMPTS = 200;

/** Return the saved prompts: [{name, text}]. */
export function loadSavedPrompts() {
  try {
    const prompts = JSON.parse(localStorage.getItem(KEY) ?? "[]");
    return prompts.filter(({ name, text }) => typeof name === "string" && typeof text === "string");
  } catch {
    return [];
  }
}

function save(prompts) {
  try {
    localStorage.setItem(KEY, JSON.stringify(prompts.slice(0, MAX_PROMPTS)));
    return true;
  } catch {
    return false;
  }
}

/** Open the dialog that saves and removes prompts. */
export function openSavedPrompts() {
  const name = el("input", {
    type: "text", id: "prompt-name", required: true, maxlength: "40", pattern: "\\S+", autocomplete: "off",
  });
  const text = el("textarea.prompt-text", { id: "prompt-text", required: true, rows: "5" });
  const problem = el("p.failure", { role: "alert" });
  const list = el("ul.saved-prompts");
  const render = () => list.replaceChildren(...loadSavedPrompts().map((prompt) => {
    const remove = () => {
      save(loadSavedPrompts().filter((kept) => kept.name !== prompt.name));
      render();
    };
    return el("li", {}, el("span.queued-text", { title: prompt.text }, `/${prompt.name}`),
      createIconButton("cross", translate("remove.name", { name: `/${prompt.name}` }), remove));
  }));
  const onsubmit = (event) => {
    event.preventDefault();
    const otherPrompts = loadSavedPrompts().filter((kept) => kept.name !== name.value);
    const isSaved = save([...otherPrompts, { name: name.value, text: text.value }]);
    problem.textContent = isSaved ? "" : translate("storage.full");
    if (problem.textContent) return;
    name.value = "";
    text.value = "";
    render();
  };
  const onclose = () => {
    dialog.remove();
    byId("message").focus();
  };
  const dialog = el("dialog.small", { "aria-labelledby": "dialog-title", onclose },
    el("h2", { id: "dialog-title" }, translate("prompt.own")),
    el("p.quiet", {}, translate("prompt.own_text")),
    list,
    el("form.request-form", { onsubmit },
      el("div.field", {}, el("label", { for: "prompt-name" }, translate("prompt.name")), name),
      el("div.field", {}, el("label", { for: "prompt-text" }, translate("prompt.text")), text),
      problem,
      el("div.dialog-buttons", {}, createButton(translate("close"), () => dialog.close()),
        el("button.button.primary", {}, translate("save")))));
  render();
  document.body.append(dialog);
  dialog.showModal();
}
