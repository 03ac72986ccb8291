// The message field: it grows with its text and keeps drafts. Its button sends the message or stops the turn.
//
// A draft is {text, files}. Text is kept in the browser's storage, files for as long as the page is open.

import { byId, createIcon, announce, setLabel } from "./dom.js";
import { Attachments } from "./attachments.js";

const DRAFT_PREFIX = "dial-draft:";

export class Composer {
  #field = byId("message");
  #button = byId("send");
  #hooks;
  #key = "";
  #isRunning = false;
  #files = new Attachments(() => this.#update());

  /** `hooks`: {send(message), stop()}. */
  constructor(hooks) {
    this.#hooks = hooks;
    byId("composer").addEventListener("submit", (event) => {
      event.preventDefault();
      if (this.#isRunning) hooks.stop();
      else this.#send();
    });
    this.#field.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing || matchMedia("(pointer: coarse)").matches) return;
      event.preventDefault();
      if (this.#isRunning) announce("The answer is not finished. Press Escape to stop it.");
      else this.#send();
    });
    this.#field.addEventListener("input", () => {
      this.#fitHeight();
      saveDraft(DRAFT_PREFIX + this.#key, this.#field.value);
      this.#update();
    });
    addEventListener("resize", () => this.#fitHeight());
  }

  /** Switch to a conversation and show its draft. */
  open(key) {
    this.#key = key;
    this.text = loadDraft(DRAFT_PREFIX + key);
    this.#files.open(key);
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
  }

  set text(text) {
    this.#field.value = text;
    saveDraft(DRAFT_PREFIX + this.#key, text);
    this.#fitHeight();
    this.#update();
  }

  /** Show the send button, or the stop button while a turn is running. */
  setRunning(isRunning, isStopping) {
    this.#isRunning = isRunning;
    this.#update(isStopping);
  }

  focus() {
    this.#field.focus();
  }

  async #send() {
    await this.#files.whenRead;
    if (this.#isEmpty || this.#isRunning) return;
    const message = { text: this.#field.value, files: this.#files.all };
    this.text = "";
    this.#files.set(this.#key, []);
    // A rejected message is put back, unless the field has new content.
    if ((await this.#hooks.send(message)) || !this.#isEmpty) return;
    this.text = message.text;
    this.#files.set(this.#key, message.files);
  }

  get #isEmpty() {
    return !this.#field.value.trim() && !this.#files.all.length;
  }

  #update(isStopping = false) {
    const label = this.#isRunning ? "Stop" : "Send";
    if (this.#button.title !== label) {
      this.#button.replaceChildren(createIcon(this.#isRunning ? "stop" : "send"));
      setLabel(this.#button, label);
    }
    this.#button.disabled = this.#isRunning ? isStopping : this.#isEmpty;
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
