// The field for messages: grows with what is in it, keeps what was not sent, and becomes the stop button.
//
// What is said is {text, files}; files stay for as long as the page is open, text in the browser's storage.

import { byId, icon, say } from "./dom.js";
import { Files } from "./files.js";

const DRAFT = "dial-draft:";

export class Composer {
  #field = byId("message");
  #button = byId("send");
  #hooks;
  #key = "";
  #isRunning = false;
  #files = new Files(() => this.#show());

  /** `hooks`: {send(said), stop()}. */
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
    this.#files.open(key);
  }

  /** Lay something ready for when a conversation is opened. */
  prepare(key, { text, files }) {
    keep(DRAFT + key, text);
    this.#files.set(key, files);
  }

  /** A new conversation has its name now: what is being typed belongs to it. */
  name(key) {
    keep(DRAFT + this.#key, "");
    this.#key = key;
    keep(DRAFT + key, this.#field.value);
    this.#files.name(key);
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
    await this.#files.read;
    if (this.#isEmpty || this.#isRunning) return;
    const said = { text: this.#field.value, files: this.#files.all };
    this.text = "";
    this.#files.set(this.#key, []);
    // What is not taken comes back, unless something else is there by now.
    if ((await this.#hooks.send(said)) || !this.#isEmpty) return;
    this.text = said.text;
    this.#files.set(this.#key, said.files);
  }

  get #isEmpty() {
    return !this.#field.value.trim() && !this.#files.all.length;
  }

  #show(isStopping = false) {
    const words = this.#isRunning ? "Stop" : "Send";
    if (this.#button.title !== words) {
      this.#button.replaceChildren(icon(this.#isRunning ? "stop" : "send"));
      this.#button.setAttribute("aria-label", words);
      this.#button.title = words;
    }
    this.#button.disabled = this.#isRunning ? isStopping : this.#isEmpty;
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
