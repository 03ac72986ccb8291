// Changes of the configuration, where the operator allows them: adding a server, and using it or not.

import { confirmAction, showToast } from "./dialogs.js";
import { createButton, el } from "./dom.js";
import { escapeInvisible } from "./invisible_characters.js";
import { describeError } from "./strings.js";

/** Return the buttons that change a server; `refresh` is called after a change. */
export function createChangeButtons(api, { name, state }, refresh) {
  const shown = escapeInvisible(name);
  const path = `servers/${encodeURIComponent(name)}`;
  const send = (method, rest = "") => api.fetchJson(method, path + rest)
    .then(refresh, (error) => showToast(describeError(error)));
  const create = (text, onclick) => {
    return el("button.text-button", { type: "button", "aria-label": `${text} ${shown}`, onclick }, text);
  };
  const remove = async () => {
    if (await confirmAction(`Remove ${shown} from the configuration?`, "Remove")) send("DELETE");
  };
  const action = state === "disabled" ? "Enable" : "Disable";
  const toggle = create(action, () => send("POST", `/${action.toLowerCase()}`));
  return [toggle, create("Remove", remove)];
}

/** Return the form that adds a server. */
export function createAddForm(api, refresh) {
  const name = el("input", { type: "text", id: "server-name", required: true, autocomplete: "off", spellcheck: "false" });
  const entry = el("textarea", { id: "server-entry", rows: 3, required: true, spellcheck: "false" });
  entry.value = '{"url": "https://"}';
  const problem = el("p.failure", { role: "alert" });
  const onsubmit = async (event) => {
    event.preventDefault();
    problem.textContent = "";
    try {
      await api.fetchJson("POST", "servers", { name: name.value.trim(), entry: JSON.parse(entry.value) });
      details.open = false;
      refresh();
    } catch (error) {
      problem.textContent = error instanceof SyntaxError ? "The entry is not JSON." : escapeInvisible(describeError(error));
    }
  };
  const form = el("form.request-form.argument-editor", { onsubmit },
    el("div.field", {}, el("label", { for: "server-name" }, "Name"), name),
    el("div.field", {}, el("label", { for: "server-entry" }, "Entry, as in servers.json"), entry),
    el("p.quiet", {}, "A server with a command is a program that runs on the machine of dial-chat."), problem,
    el("div.dialog-buttons", {},
      createButton("Cancel", () => { details.open = false; }),
      el("button.button.primary", {}, "Add")));
  const details = el("details.more", {}, el("summary", {}, "Add a server"), form);
  return details;
}
