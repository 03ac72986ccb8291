// The form that replaces a user's message while it is edited. The message's files and images do not change.

import { createButton, el } from "./dom.js";
import { toAttachedFiles } from "./user_message.js";
import { translate } from "./language.js";

/** Create the form. `onSend(message)` gets the new version; `onCancel()` is called when the user cancels. */
export function renderEditor(message, { onSend, onCancel }) {
  const label = translate("user.editor");
  const field = el("textarea", { rows: "1", dir: "auto", "aria-label": label, autocomplete: "off" });
  const files = [...message.files, ...toAttachedFiles(message.resources)];
  field.value = message.text;
  const fit = () => {
    field.style.height = "auto";
    field.style.height = `${field.scrollHeight + 2}px`;
  };
  const send = (event) => {
    event?.preventDefault();
    const text = field.value.trim();
    if (!text && !files.length) return;
    onSend({ text, files });
  };
  field.addEventListener("input", fit);
  field.addEventListener("keydown", (event) => {
    if (event.isComposing) return;
    if (event.key === "Escape") onCancel();
    else if (event.key === "Enter" && !event.shiftKey) send(event);
    else return;
    event.stopPropagation();
  });
  const form = el("form.message-editor", { onsubmit: send }, field,
    el("div.dialog-buttons", {},
      createButton(translate("cancel"), onCancel),
      el("button.button.primary", {}, translate("send"))));
  requestAnimationFrame(() => {
    fit();
    field.focus();
  });
  return form;
}
