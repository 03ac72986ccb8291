// A dialog with the content of a resource: texts and images, as the server sends them. Nothing in it is trusted.

import { IMAGES, renderPart } from "./content_parts.js";
import { createButton, el, setText } from "./dom.js";
import { escapeInvisible } from "./invisible_characters.js";
import { translate } from "./language.js";

/** Read a resource, {server, uri, name}, and show it. `attach()` attaches it; null if it cannot be attached. */
export async function openResource(api, { server, uri, name }, attach) {
  const { contents } = await api.fetchJson("POST", "resources/read", { server, uri });
  const onclose = () => dialog.remove();
  const use = () => {
    dialog.close();
    attach();
  };
  const origin = { address: escapeInvisible(uri), server: escapeInvisible(server) };
  const dialog = el("dialog.small.resource-view", { "aria-labelledby": "resource-title", onclose },
    el("h2", { id: "resource-title" }, name),
    el("p.quiet.resource-uri", {}, translate("resource.origin", origin)),
    ...(contents.length ? contents.map((content) => renderContent(content)) : [el("p.quiet", {}, translate("none"))]),
    el("div.dialog-buttons", {}, createButton(translate("close"), () => dialog.close()),
      attach ? createButton(translate("resource.attach"), use, ".primary") : null));
  document.body.append(dialog);
  dialog.showModal();
}

function renderContent({ uri, mime_type: type, text, blob, is_cut: isCut }) {
  const block = el("div.resource-content", {});
  if (typeof text === "string") {
    const pre = el("pre", { tabindex: "0", "aria-label": escapeInvisible(uri) });
    block.append(pre);
    setText(pre, escapeInvisible(text), block);
  } else if (typeof blob === "string") {
    const part = { type: IMAGES.includes(type) ? "image" : "file", mime_type: type ?? "", data: blob, name: uri };
    block.append(renderPart(part, translate("resource.image")));
  }
  if (isCut) block.append(el("p.quiet", {}, translate("resource.cut")));
  return block;
}
