// Changes of the configuration, if the operator allows them: to add, enable, disable and remove servers.

import { confirmAction, showToast } from "./dialogs.js";
import { createButton, el } from "./dom.js";
import { parseJson } from "./exact_json.js";
import { escapeInvisible } from "./invisible_characters.js";
import { translate } from "./language.js";
import { describeError } from "./descriptions.js";

/** Return the buttons that change a server; `refresh` is called after a change. */
export function createChangeButtons(api, { name, state }, refresh) {
  const shown = escapeInvisible(name);
  const path = `servers/${encodeURIComponent(name)}`;
  const send = (method, rest = "") => api.fetchJson(method, path + rest)
    .then(refresh, (error) => showToast(describeError(error)));
  const create = (key, text, label, onclick) => {
    return el("button.text-button", { type: "button", "data-key": `${name}:${key}`, "aria-label": label, onclick }, text);
  };
  const remove = async () => {
    if (await confirmAction(translate("servers.remove", { server: shown }), translate("remove"))) send("DELETE");
  };
  const action = state === "disabled" ? "enable" : "disable";
  const label = translate(`servers.${action}_name`, { server: shown });
  const toggle = create("toggle", translate(`servers.${action}`), label, () => send("POST", `/${action}`));
  return [toggle, create("remove", translate("remove"), translate("remove.name", { name: shown }), remove)];
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
      await api.fetchJson("POST", "servers", { name: name.value.trim(), entry: parseJson(entry.value) });
      details.open = false;
      refresh();
    } catch (error) {
      const isSyntax = error instanceof SyntaxError;
      problem.textContent = isSyntax ? translate("servers.not_json") : escapeInvisible(describeError(error));
    }
  };
  const form = el("form.request-form.argument-editor", { onsubmit },
    el("div.field", {}, el("label", { for: "server-name" }, translate("name")), name),
    el("div.field", {}, el("label", { for: "server-entry" }, translate("servers.entry")), entry),
    el("p.quiet", {}, translate("servers.command")), problem,
    el("div.dialog-buttons", {},
      createButton(translate("cancel"), () => { details.open = false; }),
      el("button.button.primary", {}, translate("servers.add_button"))));
  const details = el("details.more", {}, el("summary", {}, translate("servers.add")), form);
  return details;
}
