// Images and documents attached to the next message: pasted, dropped or chosen. Each is a chip with a remove button.

import { showToast } from "./dialogs.js";
import { byId, el, createIcon, createIconButton, announce } from "./dom.js";
import { IMAGES, formatSize } from "./content_parts.js";
import { escapeInvisible } from "./invisible_characters.js";

const DOCUMENTS = ["application/pdf"];
/** Bytes of the files of a message: as base64 they must fit into a request. */
const MAX_BYTES = 20_000_000;

/** The files of each conversation's draft. A file is a message part: {type, data (base64), mime_type, name}. */
export class Attachments {
  #list = byId("files");
  #onChange;
  #files = new Map();
  #key = "";
  #reading = Promise.resolve();

  /** `onChange()` is called after every change. */
  constructor(onChange) {
    this.#onChange = onChange;
    const input = byId("attach-input");
    input.accept = [...IMAGES, ...DOCUMENTS].join();
    byId("attach").addEventListener("click", () => input.click());
    input.addEventListener("change", () => {
      this.#add([...input.files]);
      input.value = "";
    });
    byId("message").addEventListener("paste", (event) => {
      const { files } = event.clipboardData;
      // Formatted text and tables are on the clipboard as an image too: paste these as text.
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

  /** The files of the open conversation. */
  get all() {
    return this.filesOf(this.#key);
  }

  filesOf(key) {
    return this.#files.get(key) ?? [];
  }

  /** Resolved when all added files have been read. */
  get whenRead() {
    return this.#reading;
  }

  /** Switch to a conversation. */
  open(key) {
    this.#key = key;
    this.#render();
  }

  /** Move the files of the new conversation to the id it has now. */
  assignId(key) {
    const { all } = this;
    this.set(this.#key, []);
    this.#key = key;
    this.set(key, all);
  }

  /** Replace the files of a conversation. */
  set(key, files) {
    if (files.length) this.#files.set(key, files);
    else this.#files.delete(key);
    if (key === this.#key) this.#render();
  }

  #add(files) {
    const key = this.#key;
    this.#reading = this.#reading.then(async () => {
      for (const file of files) await this.#addFile(key, file).catch(() => showToast(`${file.name} cannot be read.`));
    });
  }

  async #addFile(key, file) {
    const isImage = IMAGES.includes(file.type);
    if (!isImage && !DOCUMENTS.includes(file.type)) {
      showToast(`${file.name} was not attached: attach PNG, JPEG, GIF or WebP images, or PDF documents.`);
      return;
    }
    const size = this.filesOf(key).reduce((sum, { data }) => sum + (data.length * 3) / 4, file.size);
    if (!file.size || size > MAX_BYTES) {
      const reason = file.size ? "the files of a message have at most 20 MB" : "it is empty";
      showToast(`${file.name} was not attached: ${reason}.`);
      return;
    }
    const data = await readBase64(file);
    const part = { type: isImage ? "image" : "file", data, mime_type: file.type, name: file.name };
    this.set(key, [...this.filesOf(key), part]);
    announce(`${file.name} attached`);
  }

  #remove(file) {
    this.set(this.#key, this.all.filter((other) => other !== file));
    announce(`${file.name ?? "File"} removed`);
    byId("message").focus();
  }

  #render() {
    const { all } = this;
    this.#list.hidden = all.length === 0;
    this.#list.replaceChildren(...all.map((file) => {
      const name = escapeInvisible(file.name ?? "") || file.mime_type;
      const remove = createIconButton("cross", `Remove ${name}`, () => this.#remove(file));
      const label = el("span.file-name", { title: name }, name);
      return el("li.file", {}, createIcon(file.type), label, el("span.quiet", {}, formatSize(file.data)), remove);
    }));
    this.#onChange();
  }
}

function readBase64(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result.slice(reader.result.indexOf(",") + 1));
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
}
