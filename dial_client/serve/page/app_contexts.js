// Contexts of MCP Apps (ui/update-model-context): what apps want the model to read with the next message of a conversation.
// Each is a chip above the message field, which unfolds to its text and can be removed. Only the last text of an app counts.

import { byId, createIconButton, el } from "./dom.js";
import { escapeInvisible } from "./invisible_characters.js";
import { translate } from "./language.js";

/** Contexts of one message, as app_contexts.py allows. */
const MAX_CONTEXTS = 8;
/** What a tab stores, by conversations: the contexts outlast a reload, as the draft does. */
const PREFIX = "dial-contexts-";

export class AppContexts {
  #list = byId("contexts");
  #key = "";
  /** Conversation to its contexts: a key of the app to {server, text}. */
  #contexts = new Map();
  /** Keys of apps whose context the user has removed: they cannot add another one until the page is loaded again. */
  #refused = new Set();

  /** Switch to a conversation. */
  open(key) {
    this.#key = key;
    if (!this.#contexts.has(key)) this.#contexts.set(key, load(key));
    this.#render();
  }

  /** Set the context of an app, {server, text}; an empty text removes it. Returns false if the user does not want it. */
  set(key, app, context) {
    if (this.#refused.has(app)) return false;
    const contexts = this.#contexts.get(key) ?? load(key);
    if (!context.text) contexts.delete(app);
    else if (contexts.has(app) || contexts.size < MAX_CONTEXTS) contexts.set(app, context);
    else return false;
    this.#contexts.set(key, contexts);
    this.#changed(key);
    return true;
  }

  /** Put the contexts of a message back that was not accepted. What an app has set since then counts. */
  restore(key, contexts) {
    for (const { app, server, text } of contexts) {
      if (!this.#contexts.get(key)?.has(app)) this.set(key, app, { server, text });
    }
  }

  /** Take the contexts for a message: [{app, server, text}]. */
  take(key) {
    const taken = [...(this.#contexts.get(key) ?? [])].map(([app, context]) => ({ app, ...context }));
    this.#contexts.delete(key);
    this.#changed(key);
    return taken;
  }

  #changed(key) {
    save(key, [...(this.#contexts.get(key) ?? [])]);
    if (key === this.#key) this.#render();
  }

  #remove(app) {
    this.#refused.add(app);
    this.#contexts.get(this.#key)?.delete(app);
    this.#changed(this.#key);
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
    // Without storage, or with a full one, they last until the next load.
  }
}

/** Return a context as the stored message has it (app_contexts.py). */
export const toResource = ({ server, text }) =>
  `[context from an app of the server ${server}; the app wrote it]\n${text}\n[end of context]`;
