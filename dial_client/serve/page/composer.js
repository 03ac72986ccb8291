// The field for messages: grows with what is in it, keeps what was not sent, and becomes the stop button.

import { byId, icon, say } from "./dom.js";

const DRAFT = "dial-draft:";

export class Composer {
  #field = byId("message");
  #button = byId("send");
  #hooks;
  #key = "";
  #isRunning = false;

  /** `hooks`: {send(text), stop()}. */
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
      if (this.#isRunning) say("The answer is still being written. Escape stops it.");
      else this.#send();
    });
    this.#field.addEventListener("input", () => {
      this.#grow();
      keep(DRAFT + this.#key, this.#field.value);
      this.#show();
    });
    addEventListener("resize", () => this.#grow());
  }

  /** Turn to a conversation: what was begun for it stands in the field again. */
  open(key) {
    this.#key = key;
    this.text = kept(DRAFT + key);
  }

  /** Lay something ready for when a conversation is opened. */
  prepare(key, text) {
    keep(DRAFT + key, text);
  }

  /** A new conversation has its name now: what is being typed belongs to it. */
  name(key) {
    keep(DRAFT + this.#key, "");
    this.#key = key;
    keep(DRAFT + key, this.#field.value);
  }

  set text(text) {
    this.#field.value = text;
    keep(DRAFT + this.#key, text);
    this.#grow();
    this.#show();
  }

  /** Show whether there is something to stop. */
  run(isRunning, isStopping) {
    this.#isRunning = isRunning;
    this.#show(isStopping);
  }

  focus() {
    this.#field.focus();
  }

  async #send() {
    const text = this.#field.value;
    if (!text.trim()) return;
    this.text = "";
    // What is not taken comes back, unless something else is there by now.
    if (!(await this.#hooks.send(text)) && !this.#field.value) this.text = text;
  }

  #show(isStopping = false) {
    const words = this.#isRunning ? "Stop" : "Send";
    if (this.#button.title !== words) {
      this.#button.replaceChildren(icon(this.#isRunning ? "stop" : "send"));
      this.#button.setAttribute("aria-label", words);
      this.#button.title = words;
    }
    this.#button.disabled = this.#isRunning ? isStopping : !this.#field.value.trim();
  }

  #grow() {
    this.#field.style.height = "auto";
    this.#field.style.height = `${this.#field.scrollHeight + 2}px`;
  }
}

function keep(key, text) {
  try {
    if (text) localStorage.setItem(key, text);
    else localStorage.removeItem(key);
  } catch {
    // Storage is full or forbidden: what is typed stays in the field for as long as the page is open.
  }
}

function kept(key) {
  try {
    return localStorage.getItem(key) ?? "";
  } catch {
    return "";
  }
}
