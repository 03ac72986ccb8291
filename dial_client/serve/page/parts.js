// The parts of messages and results: texts, and images and documents, shown where that runs nothing.

import { el } from "./dom.js";
import { visible } from "./unseen.js";

/** Images that are shown; they come within the message itself, and are fetched from nowhere. */
export const IMAGES = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/** Say how large so many characters of base64 are, in bytes. */
export const sizeOf = (base64) => `${Math.max(1, Math.round((base64.length * 3) / 4000)).toLocaleString("en")} kB`;

/** Show a part that is no text; `alt` says what an image is of, for who does not see it. */
export function partNode(part, alt) {
  const about = `${visible(part.mime_type)}, ${sizeOf(part.data)}`;
  if (part.type === "image" && IMAGES.includes(part.mime_type) && /^[A-Za-z0-9+/=\s]+$/.test(part.data)) {
    const image = el("img", { src: `data:${part.mime_type};base64,${part.data}`, alt });
    return el("figure", {}, image, el("figcaption", {}, about));
  }
  return el("p.quiet", {}, `${visible(part.name ?? "") || "A file"}: ${about}`);
}

export const isText = (part) => part.type === "text";

/** Give the text of a message's content; what else is in it as a word in brackets. */
export function textOf(content) {
  if (typeof content === "string") return content;
  return content.map((part) => (isText(part) ? part.text : `[${part.name || part.mime_type}]`)).join("\n\n");
}
