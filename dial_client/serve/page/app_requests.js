// Requests of an MCP App to its host: tool calls, contexts, messages, links. The user decides on messages and links.

import { readEvents } from "./api.js";
import { AppError } from "./app_bridge.js";
import { createButton, el, setText } from "./dom.js";
import { parseJson } from "./exact_json.js";
import { escapeInvisible } from "./invisible_characters.js";
import { parseSafeUrl } from "./markdown_inline.js";
import { createLink } from "./markdown_view.js";
import { translate, translateNodes } from "./language.js";

/** Milliseconds in which the buttons of a question that has just appeared ignore clicks. */
const CLICK_DELAY = 600;
/** Refusals in a row after which an app cannot ask again. */
const MAX_REFUSALS = 3;
const MAX_MESSAGE = 20_000;

/** Call a tool for an app and return the CallToolResult; `hooks` shows the requests for approval meanwhile. */
export async function callTool({ api, hooks, signal }, { conversation, server, tool, args }) {
  const pending = new Set();
  try {
    const body = { conversation, server, tool, arguments: args };
    const response = await api.fetch("POST", "apps/call", { body, signal });
    for await (const { name, data } of readEvents(response)) {
      const event = parseJson(data);
      if (name === "result") return event;
      if (name === "error") throw new AppError(event.message);
      if (name !== "approval" && name !== "question") continue;
      pending.add(event.id);
      hooks.addRequest(conversation, { ...event, kind: name, isOfApp: true });
    }
    throw new AppError("The connection was lost");
  } finally {
    for (const id of pending) hooks.removeRequest(conversation, id);
  }
}

/** Return the text of a context for the model (ui/update-model-context); empty if the app removes its context. */
export function readContext({ content = [], structuredContent }) {
  const blocks = Array.isArray(content) ? content : [content];
  const isText = (block) => block?.type === "text" && typeof block.text === "string";
  if (!blocks.every(isText)) throw new AppError("Only text and structured content are supported", "params");
  const structured = structuredContent === undefined ? "" : JSON.stringify(structuredContent, null, 2);
  const text = [...blocks.map((block) => block.text), structured].filter(Boolean).join("\n\n").trim();
  if (text.length > MAX_MESSAGE) throw new AppError("The context is too large", "params");
  return text;
}

/** The questions of one app to the user, one at a time, below its frame. */
export class Consent {
  element = el("div.app-consent", { "aria-live": "polite" });
  #name;
  #refusals = 0;
  #cancel = null;

  /** `name`: the server's name as it is shown. */
  constructor(name) {
    this.#name = name;
  }

  get isOpen() {
    return this.#cancel !== null;
  }

  /** Refuse the open question. */
  cancel() {
    this.#cancel?.();
  }

  /** Ask whether a message may be sent. Resolves to its text, or rejects. */
  askToSend(params) {
    const blocks = Array.isArray(params.content) ? params.content : [params.content];
    const isText = (block) => block?.type === "text" && typeof block.text === "string";
    const text = blocks.map((block) => (isText(block) ? block.text : "")).join("\n").trim();
    if (params.role !== "user" || !text || text.length > MAX_MESSAGE) throw new AppError("Invalid message", "params");
    const pre = el("pre", { tabindex: "0", "aria-label": translate("page.message") });
    const block = el("div", {}, pre);
    setText(pre, escapeInvisible(text), block);
    const createSend = (accept) => createButton(translate("send"), accept, ".primary");
    return this.#ask("app.wants_message", block, createSend, text);
  }

  /** Ask whether an address may be opened; the click opens it. Resolves or rejects. */
  askToOpen(params) {
    const url = parseSafeUrl(String(params.url ?? ""));
    if (!url || url.protocol === "mailto:") throw new AppError("Invalid URL", "params");
    const host = el("p", {}, ...translateNodes("host", { host: el("strong", {}, url.host) }));
    const place = el("div", {}, el("p.request-url", {}, escapeInvisible(url.href)), host);
    const createOpen = (accept) => {
      const link = createLink(url, translate("open"));
      link.className = "button primary";
      link.addEventListener("click", accept);
      return link;
    };
    return this.#ask("app.wants_link", place, createOpen);
  }

  #ask(key, content, createAccept, value) {
    if (this.isOpen) throw new AppError("Another question is open");
    if (this.#refusals >= MAX_REFUSALS) throw new AppError("The user has refused too often");
    return new Promise((resolve, reject) => {
      const shownAt = performance.now();
      const end = (isAccepted) => {
        this.#cancel = null;
        this.#refusals = isAccepted ? 0 : this.#refusals + 1;
        this.element.replaceChildren();
        if (isAccepted) resolve(value);
        else reject(new AppError("Denied by the user"));
      };
      this.#cancel = () => end(false);
      // An app could show its question at the place and moment where the user is about to click.
      const accept = (event) => (performance.now() - shownAt < CLICK_DELAY ? event.preventDefault() : end(true));
      this.element.replaceChildren(
        el("p", {}, ...translateNodes(key, { server: el("strong", {}, this.#name) })),
        content,
        el("div.request-buttons", {}, createAccept(accept), createButton(translate("app.refuse"), () => end(false))));
    });
  }
}
