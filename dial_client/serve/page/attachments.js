// Images, PDF documents and text files attached to the next message: pasted, dropped or chosen. Each is a chip with a remove
// button, and shows its progress while it is read. A long text that is pasted becomes a file.

import { showToast } from "./dialogs.js";
import { byId, el, createIcon, createIconButton, announce } from "./dom.js";
import { IMAGES, formatSize } from "./content_parts.js";
import { escapeInvisible } from "./invisible_characters.js";
import { translate } from "./language.js";

const DOCUMENTS = ["application/pdf"];
/** Bytes of the files of a message: as base64 they must fit into a request. */
const MAX_BYTES = 20_000_000;

/** Bytes of a text file, as text_attachments.py allows. */
const MAX_TEXT = 256_000;
/** Characters above which a pasted text becomes a file. */
const LONG_PASTE = 8_000;

/** The files of each conversation's draft. A file is a message part: {type, data (base64), mime_type, name}. */
export class Attachments {
  #list = byId("files");
  #onChange;
  #files = new Map();
  #key = "";
  #reading = Promise.resolve();
  /** The file that is being read: {name, progress (an element)}. */
  #current = null;

  /** `onChange()` is called after every change. */
  constructor(onChange) {
    this.#onChange = onChange;
    const input = byId("attach-input");
    byId("attach").addEventListener("click", () => input.click());
    input.addEventListener("change", () => {
      this.#add([...input.files]);
      input.value = "";
    });
    byId("message").addEventListener("paste", (event) => {
      const { files } = event.clipboardData;
      const text = event.clipboardData.getData("text/plain");
      if (text.length > LONG_PASTE && new Blob([text]).size <= MAX_TEXT) {
        event.preventDefault();
        this.#add([new File([text], translate("attach.pasted"), { type: "text/plain" })]);
        return;
      }
      // The clipboard has formatted text and tables as an image, too: the text is pasted.
      if (!files.length || text) return;
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
    return this.getFiles(this.#key);
  }

  getFiles(key) {
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

  /** Move the files of the new conversation to its id. */
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
      for (const file of files) {
        await this.#addFile(key, file).catch(() => showToast(translate("attach.unreadable", { name: file.name })));
      }
    });
  }

  async #addFile(key, file) {
    const isImage = IMAGES.includes(file.type);
    const isMedia = isImage || DOCUMENTS.includes(file.type);
    const problem = isMedia ? "" : await findProblem(file);
    if (problem) {
      showToast(translate("attach.refused", { name: file.name, reason: problem }));
      return;
    }
    const size = this.getFiles(key).reduce((sum, { data }) => sum + (data.length * 3) / 4, file.size);
    if (!file.size || size > MAX_BYTES) {
      const reason = translate(file.size ? "attach.size" : "attach.empty");
      showToast(translate("attach.refused", { name: file.name, reason }));
      return;
    }
    this.#current = { name: file.name, progress: el("progress", { max: file.size, value: 0, "aria-label": file.name }) };
    if (key === this.#key) this.#render();
    const data = await readBase64(file, this.#current.progress).finally(() => (this.#current = null));
    const type = isMedia ? file.type : "text/plain";
    const part = { type: isImage ? "image" : "file", data, mime_type: type, name: file.name };
    this.set(key, [...this.getFiles(key), part]);
    announce(translate("attach.added", { name: file.name }));
  }

  #remove(file) {
    this.set(this.#key, this.all.filter((attached) => attached !== file));
    announce(translate("attach.removed", { name: file.name ?? translate("file") }));
    byId("message").focus();
  }

  #render() {
    const { all } = this;
    const reading = this.#current;
    this.#list.hidden = all.length === 0 && !reading;
    const chip = reading && el("li.file", {}, el("span.file-name", {}, escapeInvisible(reading.name)), reading.progress);
    const chips = all.map((file) => {
      const name = escapeInvisible(file.name ?? "") || file.mime_type;
      const remove = createIconButton("cross", translate("remove.name", { name }), () => this.#remove(file));
      const label = el("span.file-name", { title: name }, name);
      return el("li.file", {}, createIcon(file.type), label, el("span.quiet", {}, formatSize(file.data)), remove);
    });
    this.#list.replaceChildren(...chips, ...(chip ? [chip] : []));
    this.#onChange();
  }
}

/** Return why a file that is neither an image nor a PDF document cannot be attached; an empty string if it can. */
async function findProblem(file) {
  if (/^(audio|video)\//.test(file.type)) return translate("attach.sound");
  if (file.size > MAX_TEXT) {
    return translate("attach.large", { size: MAX_TEXT / 1000 });
  }
  const bytes = new Uint8Array(await file.arrayBuffer());
  const encoding = (bytes[0] === 0xff && bytes[1] === 0xfe) ? "utf-16le" : "utf-8";
  try {
    const text = new TextDecoder(encoding, { fatal: true }).decode(bytes);
    if (!text.includes("\0")) return "";
  } catch {
    // The file is not text.
  }
  return translate("attach.kinds");
}

function readBase64(file, progress) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onprogress = ({ loaded }) => (progress.value = loaded);
    reader.onload = () => resolve(reader.result.slice(reader.result.indexOf(",") + 1));
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
}
