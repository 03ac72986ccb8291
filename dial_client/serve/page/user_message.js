// A user's message, {text, files, resources}: parsed from a stored message, rendered, and as the body of a request.
//
// `files` are the parts that are not text; `resources` are the texts of resources the text mentions. A summary that
// replaces older messages is a resource too: the user did not write it.

import { el, createIcon, setText } from "./dom.js";
import { toResource } from "./app_contexts.js";
import { isText, renderPart, toText } from "./content_parts.js";
import { escapeInvisible } from "./invisible_characters.js";
import { translate } from "./language.js";

/** Parse a stored message of the user. */
export function parseUserMessage({ content, replaces }) {
  if (replaces) return { text: "", files: [], resources: [toText(content)], isSummary: true };
  if (typeof content === "string") return { text: content, files: [] };
  const [texts, files] = [content.filter(isText), content.filter((part) => !isText(part))];
  const resources = texts.filter((part) => part.foreign).map((part) => part.text);
  return { text: toText(texts.filter((part) => !part.foreign)), files, resources };
}

/** Return the text files among the resources of a message as files, so that a new version of the message has them too. */
export function toAttachedFiles(resources = []) {
  const found = resources.map((text) => /^\[file ([^\n]*); the user attached it\]\n([^]*)\n\[end of file\]$/.exec(text));
  return found.filter(Boolean).map(([, name, text]) => {
    const bytes = Array.from(new TextEncoder().encode(text), (byte) => String.fromCharCode(byte));
    return { type: "file", data: btoa(bytes.join("")), mime_type: "text/plain", name };
  });
}

/** Return the elements that show a message. */
export function renderUserMessage({ text, files, contexts = [], resources = contexts.map(toResource), isSummary = false }) {
  if (isSummary) return resources.map(renderResource);
  const bubble = el("div.user-message", { dir: "auto" });
  setText(bubble, text, bubble);
  const figures = files.map((file) => renderPart(file, translate("user.image")));
  return [...figures, ...(text.trim() || !files.length ? [bubble] : []), ...resources.map(renderResource)];
}

/** A resource, folded. The first line of its text is its title. */
function renderResource(text) {
  const end = text.indexOf("\n");
  const body = el("div.reasoning-text");
  const title = escapeInvisible(text.slice(0, end < 0 ? 200 : Math.min(end, 200)));
  const node = el("details.resource", {}, el("summary", {}, el("span", {}, title), createIcon("chevron")), body);
  setText(body, escapeInvisible(text.slice(end + 1)), node);
  return node;
}

const toContext = ({ server, text }) => ({ server, text });

/** Build the body of a chat request: a text, or parts in the format of OpenAI's API. */
export function toRequestBody({ text, files, taint, contexts = [] }) {
  const origin = { ...(taint ? { taint } : {}), ...(contexts.length ? { app_contexts: contexts.map(toContext) } : {}) };
  if (!files.length) return { text, ...origin };
  const parts = files.map(({ type, data, mime_type: kind, name }) => {
    const url = `data:${kind};base64,${data}`;
    return type === "image"
      ? { type: "image_url", image_url: { url } }
      : { type: "file", file: { filename: name, file_data: url } };
  });
  return { ...origin, content: [...(text.trim() ? [{ type: "text", text }] : []), ...parts] };
}
