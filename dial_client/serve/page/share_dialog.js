// The dialog that shares a conversation by a link, and ends the link.

import { showToast } from "./dialogs.js";
import { createButton, createTextCopyButton, el } from "./dom.js";
import { describeError } from "./descriptions.js";
import { translate } from "./language.js";

/** Open the dialog. `onChange()` is called when a link was made or ended. */
export async function openShareDialog(api, id, onChange) {
  const path = `conversations/${encodeURIComponent(id)}/share`;
  const content = el("div", {});
  const dialog = el("dialog.small.share-dialog", { "aria-labelledby": "share-title", onclose: () => dialog.remove() },
    el("h2", { id: "share-title" }, translate("share.title")), content);
  const change = async (method, body) => {
    try {
      const changed = await api.fetchJson(method, path, body);
      show(changed?.link ?? null);
      onChange();
    } catch (error) {
      showToast(describeError(error));
    }
  };
  const show = (link) => content.replaceChildren(...renderContent(link, { change, close: () => dialog.close() }));
  show((await api.fetchJson("GET", path)).link);
  document.body.append(dialog);
  dialog.showModal();
}

function renderContent(link, { change, close }) {
  const [tools, attachments] = ["tools", "attachments"].map((name) => {
    const box = el("input", { type: "checkbox", checked: link?.[name] ?? false });
    return { box, element: el("label.choice", {}, box, translate(`share.${name}`)) };
  });
  const share = () => change("POST", { tools: tools.box.checked, attachments: attachments.box.checked });
  const action = createButton(translate(link ? "share.again" : "share.create"), share, link ? "" : ".primary");
  return [
    el("p", {}, translate("share.text")),
    el("p.quiet", {}, translate("share.never")),
    el("div.share-choices", {}, tools.element, attachments.element),
    ...(link ? renderLink(link) : []),
    el("div.dialog-buttons", {},
      link ? createButton(translate("share.end"), () => change("DELETE"), ".danger") : null,
      action, createButton(translate("close"), close)),
  ];
}

function renderLink(link) {
  const address = new URL(link.address, document.baseURI).href;
  const field = el("input", { type: "text", readonly: true, value: address, "aria-label": translate("share.link") });
  field.addEventListener("focus", () => field.select());
  return [
    el("div.share-link", {}, field, createTextCopyButton(translate("copy"), () => address, translate("share.copy"))),
    link.is_current ? null : el("p.quiet", {}, translate("share.older")),
  ].filter(Boolean);
}
