// What a person says: {text, files, attached}, as a message has it, as it is shown, and as it is sent.
//
// `files` are parts that are no text; `attached` are the texts of resources that the text names.

import { el, icon, setText } from "./dom.js";
import { isText, partNode, textOf } from "./parts.js";
import { visible } from "./unseen.js";

/** Read the content of a person's message. */
export function saidIn(content) {
  if (typeof content === "string") return { text: content, files: [] };
  const [texts, files] = [content.filter(isText), content.filter((part) => !isText(part))];
  const attached = texts.filter((part) => part.foreign).map((part) => part.text);
  return { text: textOf(texts.filter((part) => !part.foreign)), files, attached };
}

/** Show it. */
export function saidNodes({ text, files, attached = [] }) {
  const bubble = el("div.said");
  setText(bubble, text, bubble);
  const shown = files.map((file) => partNode(file, "Image you sent"));
  return [...shown, ...(text.trim() || !files.length ? [bubble] : []), ...attached.map(attachedNode)];
}

/** A resource that went along: a line that unfolds; its text begins with a line that says what it is. */
function attachedNode(text) {
  const end = text.indexOf("\n");
  const inside = el("div.reasoning-text");
  const title = visible(text.slice(0, end < 0 ? 200 : Math.min(end, 200)));
  const node = el("details.attached", {}, el("summary", {}, el("span", {}, title), icon("chevron")), inside);
  setText(inside, visible(text.slice(end + 1)), node);
  return node;
}

/** Give it as the server reads it: a text, or parts as OpenAI's clients send them. */
export function asSent({ text, files }) {
  if (!files.length) return { text };
  const parts = files.map(({ type, data, mime_type: kind, name }) => {
    const url = `data:${kind};base64,${data}`;
    return type === "image"
      ? { type: "image_url", image_url: { url } }
      : { type: "file", file: { filename: name, file_data: url } };
  });
  return { content: [...(text.trim() ? [{ type: "text", text }] : []), ...parts] };
}
