// What a person fills in for a server that each person uses alone. A value is sent once, and is never shown again.

import { confirmAction, showToast } from "./dialogs.js";
import { createButton, el } from "./dom.js";
import { escapeInvisible } from "./invisible_characters.js";
import { LANGUAGE, translate } from "./language.js";
import { describeError } from "./descriptions.js";

/** Return the button that opens a server's credentials; `refresh` is called after a change. */
export function createCredentialsButton(api, name, refresh) {
  const shown = escapeInvisible(name);
  const onclick = async () => {
    try {
      const { servers, can_store: canStore } = await api.fetchJson("GET", "credentials");
      openDialog(api, name, servers.find(({ server }) => server === name)?.values ?? [], canStore, refresh);
    } catch (error) {
      showToast(escapeInvisible(describeError(error)));
    }
  };
  const label = translate("credentials.title", { server: shown });
  return el("button.text-button", { type: "button", "aria-label": label, onclick }, translate("credentials.button"));
}

function openDialog(api, name, values, canStore, refresh) {
  const path = `credentials/${encodeURIComponent(name)}`;
  const problem = el("p.failure", { role: "alert" });
  const send = async (method, at, body) => {
    problem.textContent = "";
    try {
      const answer = await api.fetchJson(method, at, body);
      dialog.close();
      if (answer?.warning) showToast(escapeInvisible(answer.warning));
      refresh();
    } catch (error) {
      problem.textContent = escapeInvisible(describeError(error));
    }
  };
  const forget = async () => {
    const question = translate("credentials.forget_all", { server: escapeInvisible(name) });
    if (await confirmAction(question, translate("credentials.forget"))) send("DELETE", path);
  };
  const forms = values.map(({ name: variable, set_at: time }, at) => {
    const id = `credential-${at}`;
    const input = el("input", { type: "password", id, required: true, autocomplete: "off", spellcheck: "false" });
    const onsubmit = (event) => {
      event.preventDefault();
      send("PUT", `${path}/${encodeURIComponent(variable)}`, { value: input.value });
    };
    const given = time && translate("credentials.given", { time: new Date(time).toLocaleString(LANGUAGE) });
    return el("form.request-form", { onsubmit },
      el("div.field", {},
        el("label", { for: id }, `${escapeInvisible(variable)} (${given || translate("credentials.missing")})`), input),
      el("div.dialog-buttons", {}, el("button.button.primary", {}, translate("save"))));
  });
  const dialog = el("dialog.small", { "aria-labelledby": "credentials-title", onclose: () => dialog.remove() },
    el("h2", { id: "credentials-title" }, translate("credentials.title", { server: escapeInvisible(name) })),
    el("p.quiet", {}, translate(canStore ? "credentials.about" : "credentials.no_key")),
    ...(canStore ? forms : []), problem,
    el("div.dialog-buttons", {},
      createButton(translate("credentials.forget"), forget),
      createButton(translate("close"), () => dialog.close())));
  document.body.append(dialog);
  dialog.showModal();
}
