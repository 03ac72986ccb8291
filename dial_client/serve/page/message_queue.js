// Messages that were sent while an answer is written: they are shown, and sent one after the other when their turn comes.
//
// After a stop or a rejected message they wait until the user sends them. Their texts are kept in the browser's storage,
// without files.

import { announce, byId, createButton, createIconButton, el } from "./dom.js";

const PREFIX = "dial-queue:";
const MAX_SHOWN = 200;

export class MessageQueue {
  #list = byId("queue");
  #hooks;
  #queues = new Map();
  #paused = new Set();
  #key = "";

  /** `hooks`: {edit(message), send()}: put a message into the field; send the first message of the open conversation. */
  constructor(hooks) {
    this.#hooks = hooks;
  }

  /** Switch to a conversation. Messages of an earlier visit wait for the user. */
  open(key) {
    this.#key = key;
    if (!this.#queues.has(key)) {
      const texts = load(PREFIX + key);
      if (texts.length) this.#paused.add(key);
      this.#queues.set(key, texts.map(([text, taint]) => ({ text, files: [], taint })));
    }
    this.#render();
  }

  /** Move the messages of the new conversation to the id it has now. */
  assignId(key) {
    const messages = this.#messages(this.#key);
    if (messages.length && this.#paused.has(this.#key)) this.#paused.add(key);
    this.#set(this.#key, []);
    this.#key = key;
    this.#set(key, messages);
  }

  get isEmpty() {
    return this.#messages(this.#key).length === 0;
  }

  add(message) {
    this.#set(this.#key, [...this.#messages(this.#key), message]);
    announce("The message is sent after this answer.");
  }

  /** Take the next message to send in a conversation; null if there is none, or if they wait for the user. */
  takeNext(key) {
    if (this.#paused.has(key)) return null;
    const [message, ...rest] = this.#messages(key);
    if (!message) return null;
    this.#set(key, rest);
    return message;
  }

  /** Put a message back that was not accepted; the messages wait for the user. */
  putBack(key, message) {
    this.#paused.add(key);
    this.#set(key, [message, ...this.#messages(key)]);
  }

  /** Keep the messages of a conversation until the user sends them. */
  pause(key) {
    if (this.#messages(key).length) this.#paused.add(key);
    if (key === this.#key) this.#render();
  }

  /** Take the last message back into the field. */
  editLast() {
    this.#edit(this.#messages(this.#key).at(-1));
  }

  #messages(key) {
    return this.#queues.get(key) ?? [];
  }

  #set(key, messages) {
    this.#queues.set(key, messages);
    if (!messages.length) this.#paused.delete(key);
    save(PREFIX + key, messages.map(({ text, taint }) => [text, taint ?? ""]));
    if (key === this.#key) this.#render();
  }

  #remove(message) {
    this.#set(this.#key, this.#messages(this.#key).filter((kept) => kept !== message));
  }

  #edit(message) {
    if (!message) return;
    this.#remove(message);
    this.#hooks.edit(message);
  }

  #send() {
    this.#paused.delete(this.#key);
    this.#render();
    this.#hooks.send();
  }

  #render() {
    const messages = this.#messages(this.#key);
    this.#list.hidden = messages.length === 0;
    const isPaused = this.#paused.has(this.#key);
    this.#list.replaceChildren(...messages.map((message, at) => {
      const text = message.text.trim() || message.files.map(({ name }) => name || "file").join(", ");
      const shown = text.length > MAX_SHOWN ? `${text.slice(0, MAX_SHOWN)}…` : text;
      const files = message.files.length ? el("span.quiet", {}, ` +${message.files.length}`) : null;
      return el("li.queued", {},
        el("span.queued-text", { title: shown }, shown), files,
        isPaused && at === 0 ? createButton("Send", () => this.#send(), ".small") : null,
        createIconButton("edit", `Edit “${shown}”`, () => this.#edit(message)),
        createIconButton("cross", `Remove “${shown}”`, () => {
          this.#remove(message);
          announce("Removed");
          byId("message").focus();
        }));
    }));
  }
}

/** Save [text, taint] of each message. */
function save(key, texts) {
  try {
    if (texts.length) localStorage.setItem(key, JSON.stringify(texts));
    else localStorage.removeItem(key);
  } catch {
    // The storage is full or disabled: the messages are kept while the page is open.
  }
}

function load(key) {
  try {
    const texts = JSON.parse(localStorage.getItem(key) ?? "[]");
    return Array.isArray(texts) ? texts.filter((entry) => Array.isArray(entry)) : [];
  } catch {
    return [];
  }
}
