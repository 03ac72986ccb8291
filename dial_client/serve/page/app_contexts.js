// Contexts of MCP Apps (ui/update-model-context): text that apps add to the next message of a conversation. Each is a chip
// above the message field, which unfolds to its text and can be removed. An app's new text replaces its earlier text.

import { byId, createIconButton, el } from "./dom.js";
import { escapeInvisible } from "./invisible_characters.js";
import { translate } from "./language.js";

/** Contexts of one message, as app_contexts.py allows. */
const MAX_CONTEXTS = 8;
/** Prefix of the keys, one for each conversation, in the storage of the tab: contexts survive a reload, like drafts. */
const PREFIX = "dial-contexts-";

export class AppContexts {
  #list = byId("contexts");
  #key = "";
  /** Conversation to its contexts: a key of the app to {server, text}. */
  #contexts = new Map();
  /** Keys of apps whose context the user has removed: they cannot add another context until the page is reloaded. */
  #refused = new Set();

  /** Switch to a conversation. */
  open(key) {
    this.#key = key;
    if (!this.#contexts.has(key)) this.#contexts.set(key, load(key));
    this.#render();
  }

  /** Set the context of an app, {server, text}; an empty text removes it. Returns false if the context is refused. */
  set(key, app, context) {
    if (this.#refused.has(app)) return false;
    const contexts = this.#contexts.get(key) ?? load(key);
    if (!context.text) contexts.delete(app);
    else if (contexts.has(app) || contexts.size < MAX_CONTEXTS) contexts.set(app, context);
    else return false;
    this.#contexts.set(key, contexts);
    this.#store(key);
    return true;
  }

  /** Restore the contexts of a message that was not accepted, except those of apps that have set a newer context. */
  restore(key, contexts) {
    for (const { app, server, text } of contexts) {
      if (!this.#contexts.get(key)?.has(app)) this.set(key, app, { server, text });
    }
  }

  /** Take the contexts for a message: [{app, server, text}]. */
  take(key) {
    const taken = [...(this.#contexts.get(key) ?? [])].map(([app, context]) => ({ app, ...context }));
    this.#contexts.delete(key);
    this.#store(key);
    return taken;
  }

  #store(key) {
    save(key, [...(this.#contexts.get(key) ?? [])]);
    if (key === this.#key) this.#render();
  }

  #remove(app) {
    this.#refused.add(app);
    this.#contexts.get(this.#key)?.delete(app);
    this.#store(this.#key);
    byId("message").focus();
  }

  #render() {
    const contexts = [...(this.#contexts.get(this.#key) ?? [])];
    const open = new Set([...this.#list.querySelectorAll("details[open]")].map(({ dataset }) => dataset.key));
    this.#list.hidden = contexts.length === 0;
    this.#list.replaceChildren(...contexts.map(([app, context]) => this.#renderChip(app, context, open)));
  }

  #renderChip(app, { server, text }, open) {
    const label = translate("context.of", { server: escapeInvisible(server) });
    const pre = el("pre", { tabindex: "0", "aria-label": label }, escapeInvisible(text));
    const fold = el("details", { "data-key": app, open: open.has(app) }, el("summary", {}, label), pre);
    return el("li.file.context", {}, fold,
      createIconButton("cross", translate("context.remove", { server: escapeInvisible(server) }), () => this.#remove(app)));
  }
}

function load(key) {
  try {
    return new Map(JSON.parse(sessionStorage.getItem(PREFIX + key)) ?? []);
  } catch {
    return new Map();
  }
}

function save(key, contexts) {
  try {
    if (contexts.length) sessionStorage.setItem(PREFIX + key, JSON.stringify(contexts));
    else sessionStorage.removeItem(PREFIX + key);
  } catch {
    // The storage is disabled or full: the contexts last until the page is reloaded.
  }
}

/** Return a context in the format of the stored message (app_contexts.py). */
export const toResource = ({ server, text }) =>
  `[context from an app of the server ${server}; the app wrote it]\n${text}\n[end of context]`;
