// The message field: it grows with its text and keeps drafts. Its button sends the message or stops the turn.
//
// A draft is {text, files}. Text is kept in the browser's storage, files for as long as the page is open. A message that is
// sent while an answer is written is queued.

import { byId, createIcon, setLabel } from "./dom.js";
import { AppContexts } from "./app_contexts.js";
import { Attachments } from "./attachments.js";
import { CompletionList } from "./completion_list.js";
import { MessageQueue } from "./message_queue.js";
import { translate } from "./language.js";

const DRAFT_PREFIX = "dial-draft:";
const TAINT_PREFIX = "dial-draft-taint:";

export class Composer {
  #field = byId("message");
  #button = byId("send");
  #hooks;
  #key = "";
  #isRunning = false;
  #files = new Attachments(() => this.#update());
  #isStopping = false;
  contexts = new AppContexts();
  #taints = new Map();

  /** `hooks`: {send(message), sendQueued(), stop(), editLast(), suggest(text, position), findCommand(text)}. `send`
   * resolves to null, or to the conversation of a message that was not accepted; `findCommand` to a function or null. */
  constructor(hooks) {
    this.#hooks = hooks;
    this.queue = new MessageQueue({
      edit: (message) => this.insert(message),
      send: () => this.#sendNext(),
    });
    this.completions = new CompletionList(this.#field, { list: byId("completions"), find: hooks.suggest });
    byId("composer").addEventListener("submit", (event) => {
      event.preventDefault();
      if (this.#isRunning && this.#isEmpty) hooks.stop();
      else this.#send();
    });
    this.#field.addEventListener("keydown", (event) => this.#onKeyDown(event));
    this.#field.addEventListener("input", () => {
      this.#fitHeight();
      saveDraft(DRAFT_PREFIX + this.#key, this.#field.value);
      if (this.#isEmpty) this.#taint = "";
      this.#update();
    });
    addEventListener("resize", () => this.#fitHeight());
  }

  #onKeyDown(event) {
    if (event.isComposing || event.shiftKey || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Enter" && !matchMedia("(pointer: coarse)").matches) {
      event.preventDefault();
      this.#send();
    } else if (event.key === "ArrowUp" && this.#isEmpty) {
      event.preventDefault();
      if (this.queue.isEmpty) this.#hooks.editLast();
      else this.queue.editLast();
    }
  }

  /** Switch to a conversation and show its draft. */
  open(key) {
    this.#key = key;
    this.text = loadDraft(DRAFT_PREFIX + key);
    this.#files.open(key);
    this.contexts.open(key);
    this.queue.open(key);
  }

  /** Add a message to the draft at the position of the cursor, such as a filled-in prompt. */
  insert({ text, files = [], taint = "", contexts = [] }) {
    const { selectionStart: from, selectionEnd: to } = this.#field;
    this.#field.setRangeText(text, from, to, "end");
    this.#taint ||= taint;
    this.contexts.restore(this.#key, contexts);
    this.text = this.#field.value;
    if (files.length) this.#files.set(this.#key, [...this.#files.all, ...files]);
    this.#field.focus();
  }

  /** Add a mention to the draft, as a separate word. */
  mention(text) {
    const isWithinWord = /\S$/.test(this.#field.value.slice(0, this.#field.selectionStart));
    this.insert({ text: `${isWithinWord ? " " : ""}${text} ` });
  }

  /** Open the dialog that chooses files. */
  chooseFiles() {
    byId("attach-input").click();
  }

  /** Keep a message that was not accepted: in the field if that is empty, else before the queued messages. */
  putBack(key, message) {
    if (key !== this.#key || !this.#isEmpty) return this.queue.putBack(key, message);
    this.#taint = message.taint;
    this.text = message.text;
    this.#files.set(key, message.files);
    this.contexts.restore(key, message.contexts ?? []);
  }

  /** Move the draft of the new conversation to its id. */
  assignId(key) {
    const taint = this.#taint;
    this.#taint = "";
    saveDraft(DRAFT_PREFIX + this.#key, "");
    this.#key = key;
    saveDraft(DRAFT_PREFIX + key, this.#field.value);
    this.#taint = taint;
    this.#files.assignId(key);
    this.contexts.open(key);
    this.queue.assignId(key);
  }

  /** The server whose untrusted content the draft contains; empty if it contains none. Stored with the draft. */
  get #taint() {
    return this.#taints.get(this.#key) ?? loadDraft(TAINT_PREFIX + this.#key);
  }

  set #taint(taint) {
    this.#taints.set(this.#key, taint ?? "");
    saveDraft(TAINT_PREFIX + this.#key, taint ?? "");
  }

  set text(text) {
    if (this.#field.value !== text) this.#field.value = text;
    saveDraft(DRAFT_PREFIX + this.#key, text);
    this.#fitHeight();
    this.#update();
  }

  /** Show the send button, or the stop button while a turn is running. */
  setRunning(isRunning, isStopping) {
    this.#isRunning = isRunning;
    this.#isStopping = isStopping;
    this.#update();
  }

  focus() {
    this.#field.focus();
  }

  async #send() {
    const key = this.#key;
    await this.#files.whenRead;
    const command = this.#field.value.trim();
    const run = command.startsWith("/") ? await this.#hooks.findCommand(command) : null;
    // The user may have opened another conversation meanwhile: its draft must not be sent.
    if (key !== this.#key) return;
    if (run && this.#field.value.trim() === command) this.text = "";
    if (run) return run();
    if (this.#isEmpty) return;
    const contexts = this.contexts.take(key);
    const message = { text: this.#field.value, files: this.#files.all, taint: this.#taint, contexts };
    this.completions.close();
    this.text = "";
    this.#taint = "";
    this.#files.set(key, []);
    if (this.#isRunning) {
      await this.queue.add(message);
      // The answer may have ended while the message was stored.
      if (key === this.#key) this.#sendNext();
    } else {
      const place = await this.#hooks.send(message);
      if (place !== null) this.putBack(place, message);
    }
  }

  /** Send the message of an app, with the contexts of apps. Resolves to true if the server accepted it. */
  async sendForApp(message) {
    const contexts = this.contexts.take(this.#key);
    const place = await this.#hooks.send({ ...message, contexts });
    if (place !== null) this.contexts.restore(place, contexts);
    return place === null;
  }

  #sendNext() {
    if (!this.#isRunning) this.#hooks.sendQueued();
  }

  get #isEmpty() {
    return !this.#field.value.trim() && !this.#files.all.length;
  }

  #update() {
    const isStop = this.#isRunning && this.#isEmpty;
    const label = translate(isStop ? "composer.stop" : this.#isRunning ? "composer.later" : "send");
    if (this.#button.title !== label) {
      this.#button.replaceChildren(createIcon(isStop ? "stop" : "send"));
      setLabel(this.#button, label);
    }
    this.#button.disabled = isStop ? this.#isStopping : this.#isEmpty;
  }

  #fitHeight() {
    this.#field.style.height = "auto";
    this.#field.style.height = `${this.#field.scrollHeight + 2}px`;
  }
}

function saveDraft(key, text) {
  try {
    if (text) localStorage.setItem(key, text);
    else localStorage.removeItem(key);
  } catch {
    // The storage is full or disabled: the draft stays in the field only.
  }
}

function loadDraft(key) {
  try {
    return localStorage.getItem(key) ?? "";
  } catch {
    return "";
  }
}
