// The content parts of messages and tool results: text, images and documents. Only inert image types are displayed.

import { createIcon, el } from "./dom.js";
import { escapeInvisible } from "./invisible_characters.js";
import { translate, formatNumber } from "./language.js";

/** Image types that are displayed. Their data is part of the message; nothing is fetched. */
export const IMAGES = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/** Format the size of base64 data. */
export const formatSize = (base64) => `${formatNumber(Math.max(1, Math.round((base64.length * 3) / 4000)))} kB`;

/** Return an element for a part that is not text. `alt` is the text alternative of an image. */
export function renderPart(part, alt) {
  const caption = `${escapeInvisible(part.mime_type)}, ${formatSize(part.data)}`;
  if (part.type === "image" && IMAGES.includes(part.mime_type) && /^[A-Za-z0-9+/=\s]+$/.test(part.data)) {
    const image = el("img", { src: `data:${part.mime_type};base64,${part.data}`, alt });
    return el("figure", {}, image, el("figcaption", {}, caption));
  }
  const name = escapeInvisible(part.name ?? "") || translate("file");
  return el("div.attachment", {}, createIcon("file"), el("p", {}, name, " ", el("br"), el("span.quiet", {}, caption)));
}

export const isText = (part) => part.type === "text";

/** Return the text of a message's content, with other parts as names in brackets. */
export function toText(content) {
  if (typeof content === "string") return content;
  return content.map((part) => (isText(part) ? part.text : `[${part.name || part.mime_type}]`)).join("\n\n");
}
