// Queued messages: the user sent them while an answer was being written. They are shown, and one of the tabs that show the
// conversation sends them one after another.
//
// After a stop or a rejected message they wait until the user sends them. They are stored in the browser.

import { announce, byId, createButton, createIconButton, el } from "./dom.js";
import { translate } from "./language.js";
import { TAB, changeQueue, createId, listTabs, readQueue, watchQueues, whileSending } from "./queue_storage.js";
import { createSteadyContent } from "./steady_content.js";

const MAX_SHOWN = 200;

const toStored = ({ text, files = [], taint = "", contexts = [] }) => {
  return { id: createId(), text, files, taint, contexts, tab: TAB };
};
const isOwn = ({ tab }) => tab === TAB;

export class MessageQueue {
  #list = byId("queue");
  #show = createSteadyContent(this.#list);
  #hooks;
  /** The queues of conversations as they are shown. */
  #queues = new Map();
  /** Conversations that were opened: each with the promise of `#pauseEarlier`. */
  #opened = new Map();
  #key = "";

  /** `hooks`: {edit(message), send()}: put a message into the field; send the first message of the open conversation. */
  constructor(hooks) {
    this.#hooks = hooks;
    watchQueues((key) => this.#queues.has(key) && this.#change(key, (queue) => queue));
  }

  /** Switch to a conversation. Messages of an earlier visit wait for the user. */
  open(key) {
    this.#key = key;
    if (!this.#opened.has(key)) this.#opened.set(key, this.#pauseEarlier(key));
    this.#render();
  }

  /** Move the messages of the new conversation to its id. */
  async assignId(key) {
    const before = this.#key;
    this.#key = key;
    this.#opened.set(key, Promise.resolve());
    this.#render();
    const { isPaused, messages } = await readQueue(before);
    const moved = messages.filter(isOwn);
    if (!moved.length) return;
    await this.#change(key, (queue) => ({ isPaused, messages: [...queue.messages, ...moved] }));
    await this.#change(before, (queue) => ({ ...queue, messages: queue.messages.filter((message) => !isOwn(message)) }));
  }

  get isEmpty() {
    return this.#shown.length === 0;
  }

  async add(message) {
    const stored = toStored(message);
    await this.#change(this.#key, (queue) => ({ ...queue, messages: [...queue.messages, stored] }));
    announce(translate("queue.added"));
  }

  /**
   * Send the next message of a conversation, unless the messages wait for the user. `send(message)` resolves to true if the
   * server accepted it, to false if not, and to null if it has to wait for another turn.
   */
  async sendNext(key, send) {
    await this.#opened.get(key);
    await whileSending(key, async () => {
      const message = await this.#takeFirst(key);
      if (!message) return;
      const isAccepted = await send(message).catch(() => false);
      await this.#change(key, ({ isPaused, messages }) => ({
        isPaused: isPaused || isAccepted === false,
        messages: messages.flatMap((entry) => {
          if (entry.id !== message.id) return [entry];
          return isAccepted ? [] : [{ ...entry, sentBy: null }];
        }),
      }));
    });
  }

  /** Mark the first message as being sent, and return it; null if there is none, or if the messages wait for the user. */
  async #takeFirst(key) {
    let first = null;
    await this.#change(key, (queue) => {
      if (queue.isPaused || !queue.messages.length) return queue;
      const [next, ...rest] = queue.messages;
      // The tab that was sending it is closed. The user can see whether the server has accepted the message.
      if (next.sentBy) return { isPaused: true, messages: [{ ...next, sentBy: null }, ...rest] };
      first = next;
      return { ...queue, messages: [{ ...next, sentBy: TAB }, ...rest] };
    });
    return first;
  }

  /** Put a message that was not accepted at the front; the messages then wait for the user. */
  putBack(key, message) {
    const stored = toStored(message);
    return this.#change(key, ({ messages }) => ({ isPaused: true, messages: [stored, ...messages] }));
  }

  /** Keep the messages of a conversation until the user sends them. */
  pause(key) {
    return this.#change(key, (queue) => (queue.messages.length ? { ...queue, isPaused: true } : queue));
  }

  /** Take the last message back into the field. */
  editLast() {
    return this.#edit(this.#shown.at(-1));
  }

  /** The messages of the open conversation, without the one that is being sent. */
  get #shown() {
    return (this.#queues.get(this.#key)?.messages ?? []).filter(({ sentBy }) => !sentBy);
  }

  /** Pause a queue that has messages that no open tab has added, or that a closed tab was sending. */
  async #pauseEarlier(key) {
    const tabs = await listTabs();
    await this.#change(key, (queue) => {
      if (queue.messages.every(({ tab, sentBy }) => tabs.has(tab) && (!sentBy || tabs.has(sentBy)))) return queue;
      const messages = queue.messages.map((message) => (tabs.has(message.sentBy) ? message : { ...message, sentBy: null }));
      return { isPaused: true, messages };
    });
  }

  async #change(key, change) {
    this.#queues.set(key, await changeQueue(key, change));
    if (key === this.#key) this.#render();
  }

  /** Remove a message. Resolves to false if another tab has sent or removed it. */
  async #remove({ id }) {
    let isFound = false;
    await this.#change(this.#key, (queue) => {
      isFound = queue.messages.some((message) => message.id === id && !message.sentBy);
      return isFound ? { ...queue, messages: queue.messages.filter((message) => message.id !== id) } : queue;
    });
    return isFound;
  }

  async #edit(message) {
    if (message && (await this.#remove(message))) this.#hooks.edit(message);
  }

  async #send() {
    await this.#change(this.#key, (queue) => ({ ...queue, isPaused: false }));
    this.#hooks.send();
  }

  #render() {
    this.#show(() => {
      const messages = this.#shown;
      this.#list.hidden = messages.length === 0;
      const isPaused = this.#queues.get(this.#key)?.isPaused;
      return messages.map((message, at) => this.#createItem(message, isPaused && at === 0));
    });
  }

  #createItem(message, canBeSent) {
    const text = message.text.trim() || message.files.map(({ name }) => name || translate("file")).join(", ");
    const shown = text.length > MAX_SHOWN ? `${text.slice(0, MAX_SHOWN)}…` : text;
    const files = message.files.length ? el("span.quiet", {}, ` +${message.files.length}`) : null;
    return el("li.queued", {},
      el("span.queued-text", { title: shown }, shown), files,
      canBeSent ? createButton(translate("send"), () => this.#send(), ".small") : null,
      createIconButton("edit", translate("queue.edit", { text: shown }), () => this.#edit(message)),
      createIconButton("cross", translate("queue.remove", { text: shown }), async () => {
        byId("message").focus();
        if (await this.#remove(message)) announce(translate("queue.removed"));
      }));
  }
}
