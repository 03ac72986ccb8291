// The message field: it grows with its text and keeps drafts. Its button sends the message or stops the turn.
//
// A draft is {text, files}. Text is kept in the browser's storage, files for as long as the page is open. A message that is
// sent while an answer is written is queued.

import { byId, createIcon, setLabel } from "./dom.js";
import { Attachments } from "./attachments.js";
import { CompletionList } from "./completion_list.js";
import { MessageQueue } from "./message_queue.js";

const DRAFT_PREFIX = "dial-draft:";

export class Composer {
  #field = byId("message");
  #button = byId("send");
  #hooks;
  #key = "";
  #isRunning = false;
  #files = new Attachments(() => this.#update());
  /** The server whose untrusted content the text has; empty if there is none. */
  #taint = "";
  #isStopping = false;

  /** `hooks`: {send(message), stop(), editLast(), suggest(text, position), runCommand(text)}. */
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
    this.#taint = "";
    this.text = loadDraft(DRAFT_PREFIX + key);
    this.#files.open(key);
    this.queue.open(key);
  }

  /** Add a message to the draft at the position of the cursor, such as a filled-in prompt. */
  insert({ text, files = [], taint = "" }) {
    const { selectionStart: from, selectionEnd: to } = this.#field;
    this.#field.setRangeText(text, from, to, "end");
    this.#taint ||= taint;
    this.text = this.#field.value;
    if (files.length) this.#files.set(this.#key, [...this.#files.all, ...files]);
    this.#field.focus();
  }

  /** Open the dialog that chooses files. */
  chooseFiles() {
    byId("attach-input").click();
  }

  /** Set the draft of a conversation. */
  setDraft(key, { text, files }) {
    saveDraft(DRAFT_PREFIX + key, text);
    this.#files.set(key, files);
  }

  /** Move the draft of the new conversation to the id it has now. */
  assignId(key) {
    saveDraft(DRAFT_PREFIX + this.#key, "");
    this.#key = key;
    saveDraft(DRAFT_PREFIX + key, this.#field.value);
    this.#files.assignId(key);
    this.queue.assignId(key);
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
    await this.#files.whenRead;
    const command = this.#field.value.trim();
    if (command.startsWith("/") && (await this.#hooks.runCommand(command))) {
      if (this.#field.value.trim() === command) this.text = "";
      return;
    }
    if (this.#isEmpty) return;
    const message = { text: this.#field.value, files: this.#files.all, taint: this.#taint };
    this.completions.close();
    this.text = "";
    this.#taint = "";
    this.#files.set(this.#key, []);
    if (this.#isRunning) return this.queue.add(message);
    // A rejected message is put back, unless the field has new content.
    if ((await this.#hooks.send(message)) || !this.#isEmpty) return;
    this.text = message.text;
    this.#taint = message.taint;
    this.#files.set(this.#key, message.files);
  }

  async #sendNext() {
    const key = this.#key;
    const message = this.#isRunning ? null : this.queue.takeNext(key);
    if (message && !(await this.#hooks.send(message))) this.queue.putBack(key, message);
  }

  get #isEmpty() {
    return !this.#field.value.trim() && !this.#files.all.length;
  }

  #update() {
    const isStop = this.#isRunning && this.#isEmpty;
    const label = isStop ? "Stop" : this.#isRunning ? "Send after this answer" : "Send";
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
