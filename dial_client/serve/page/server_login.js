// The OAuth login to a server: the page shows the host and scopes of the login, and the user opens it in a new tab.

import { showToast } from "./dialogs.js";
import { createButton, el } from "./dom.js";
import { escapeInvisible } from "./invisible_characters.js";
import { translate } from "./language.js";
import { describeError } from "./descriptions.js";

/** Return the button that starts a login; `refresh` is called when the dialog closes. */
export function createLoginButton(api, { name, per_user: isOwn }, refresh) {
  const shown = escapeInvisible(name);
  const onclick = async () => {
    button.disabled = true;
    try {
      const body = { redirect_uri: new URL("oauth/callback", document.baseURI).href };
      const path = `${isOwn ? "credentials" : "servers"}/${encodeURIComponent(name)}/login`;
      const login = await api.fetchJson("POST", path, body);
      if (login.url) openDialog(shown, login, refresh);
      else refresh();
    } catch (error) {
      showToast(escapeInvisible(describeError(error)));
    }
    button.disabled = false;
  };
  const label = translate("login.title", { server: shown });
  const button = el("button.text-button", { type: "button", "aria-label": label, onclick }, translate("login.button"));
  return button;
}

function openDialog(name, { url, host, scopes }, refresh) {
  // The server chose the URL: only an HTTP URL becomes a link.
  if (!/^https?:$/.test(new URL(url).protocol)) return;
  const onclose = () => {
    dialog.remove();
    refresh();
  };
  const attributes = { href: url, target: "_blank", rel: "noopener noreferrer", onclick: () => dialog.close() };
  const dialog = el("dialog.small", { "aria-labelledby": "dialog-title", onclose },
    el("h2", { id: "dialog-title" }, translate("login.title", { server: name })),
    el("p", {}, translate("login.host", { host: escapeInvisible(host) })),
    scopes.length ? el("p", {}, translate("login.scopes", { scopes: escapeInvisible(scopes.join(", ")) })) : null,
    el("div.dialog-buttons", {},
      createButton(translate("cancel"), () => dialog.close()),
      el("a.button.primary", attributes, translate("login.open"))));
  document.body.append(dialog);
  dialog.showModal();
}
