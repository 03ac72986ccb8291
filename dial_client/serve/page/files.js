// Images and documents that go along with the next message: pasted, dropped or chosen, each a chip that can be removed.

import { toast } from "./dialogs.js";
import { byId, el, icon, iconButton, say } from "./dom.js";
import { IMAGES, sizeOf } from "./parts.js";
import { visible } from "./unseen.js";

const DOCUMENTS = ["application/pdf"];
/** Bytes of one message's files: in base64 they have to fit into a request. */
const MOST = 20_000_000;

/** The files beside the message field. A file is a part of a message: {type, data (base64), mime_type, name}. */
export class Files {
  #list = byId("files");
  #changed;
  #kept = new Map();
  #key = "";
  #reading = Promise.resolve();

  /** `changed()` hears of every change. */
  constructor(changed) {
    this.#changed = changed;
    const input = byId("attach-input");
    input.accept = [...IMAGES, ...DOCUMENTS].join();
    byId("attach").addEventListener("click", () => input.click());
    input.addEventListener("change", () => {
      this.#add([...input.files]);
      input.value = "";
    });
    byId("message").addEventListener("paste", (event) => {
      const { files } = event.clipboardData;
      // Tables and formatted text come as a picture too: what can be pasted as text is.
      if (!files.length || event.clipboardData.getData("text/plain")) return;
      event.preventDefault();
      this.#add([...files]);
    });
    addEventListener("dragover", (event) => {
      if (event.dataTransfer?.types.includes("Files")) event.preventDefault();
    });
    addEventListener("drop", (event) => {
      if (!event.dataTransfer?.files.length) return;
      event.preventDefault();
      if (!document.querySelector("dialog[open]")) this.#add([...event.dataTransfer.files]);
    });
  }

  /** Those of the conversation that is open. */
  get all() {
    return this.of(this.#key);
  }

  of(key) {
    return this.#kept.get(key) ?? [];
  }

  /** Kept when all that was pasted, dropped or chosen has been read. */
  get read() {
    return this.#reading;
  }

  /** Turn to a conversation. */
  open(key) {
    this.#key = key;
    this.#draw();
  }

  /** A new conversation has its name now: what lies ready belongs to it. */
  name(key) {
    const { all } = this;
    this.set(this.#key, []);
    this.#key = key;
    this.set(key, all);
  }

  /** Put these and no others to a conversation's next message. */
  set(key, files) {
    if (files.length) this.#kept.set(key, files);
    else this.#kept.delete(key);
    if (key === this.#key) this.#draw();
  }

  #add(files) {
    const key = this.#key;
    this.#reading = this.#reading.then(async () => {
      for (const file of files) await this.#readOne(key, file).catch(() => toast(`${file.name} cannot be read.`));
    });
  }

  async #readOne(key, file) {
    const isImage = IMAGES.includes(file.type);
    if (!isImage && !DOCUMENTS.includes(file.type)) {
      toast(`${file.name} is not sent: it is no PNG, JPEG, GIF or WebP image and no PDF document.`);
      return;
    }
    const size = this.of(key).reduce((sum, { data }) => sum + (data.length * 3) / 4, file.size);
    if (!file.size || size > MOST) {
      toast(`${file.name} is not sent: ${file.size ? "a message has at most 20 MB of files" : "it is empty"}.`);
      return;
    }
    const data = await base64(file);
    const part = { type: isImage ? "image" : "file", data, mime_type: file.type, name: file.name };
    this.set(key, [...this.of(key), part]);
    say(`${file.name} goes along`);
  }

  #remove(file) {
    this.set(this.#key, this.all.filter((one) => one !== file));
    say(`${file.name ?? "It"} is removed`);
    byId("message").focus();
  }

  #draw() {
    const { all } = this;
    this.#list.hidden = all.length === 0;
    this.#list.replaceChildren(...all.map((file) => {
      const name = visible(file.name ?? "") || file.mime_type;
      const remove = iconButton("cross", `Remove ${name}`, () => this.#remove(file));
      const words = el("span.file-name", { title: name }, name);
      return el("li.file", {}, icon(file.type), words, el("span.quiet", {}, sizeOf(file.data)), remove);
    }));
    this.#changed();
  }
}

function base64(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result.slice(reader.result.indexOf(",") + 1));
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
}
