// The list of conversations, newest first: search, rename, fork, export, import and delete.

import { confirmAction, openMenu, showToast } from "./dialogs.js";
import { byId, el, createIconButton, announce, placeChildren, saveFile, setLabel } from "./dom.js";
import { toHash } from "./deep_links.js";
import { translate } from "./language.js";
import { formatMoment, formatPeriod, describeError } from "./descriptions.js";

const PAGE_SIZE = 40;
const MAX_PINNED = 200;
/** Milliseconds after the last key before the search starts. */
const SEARCH_DELAY = 200;

/** Texts for screen readers after the title of a conversation. */
const STATES = { waiting: translate("list.waiting"), running: translate("list.running") };

/** The same texts where they are seen, in place of the time. */
const SHOWN_STATES = { waiting: translate("list.is_waiting"), running: translate("list.is_running") };

const path = (id, rest = "") => `conversations/${encodeURIComponent(id)}${rest}`;

export class Sidebar {
  #api;
  #hooks;
  #list = byId("conversations");
  #search = byId("search");
  #more = byId("more");
  #archive = byId("archive");
  /** True while the archived conversations are shown, in place of all others. */
  #isArchive = false;
  /** False if the operator does not allow links to conversations. */
  #canShare = false;
  #cursor = null;
  #conversations = [];
  /** The items of the list by id, and its sections by name. Both are kept, so that a refresh interrupts no click. */
  #items = new Map();
  #sections = new Map();
  #requests = 0;
  #timer = null;

  /**
   * `hooks`: {currentId(), isWaiting(id), isRunning(id), onListed(id, running), onDeleted(id), onRenamed(id, title),
   * onForked(id)}.
   */
  constructor(api, hooks) {
    this.#api = api;
    this.#hooks = hooks;
    this.#search.addEventListener("input", () => {
      clearTimeout(this.#timer);
      this.#timer = setTimeout(() => this.refresh({ isSearch: true }), SEARCH_DELAY);
    });
    this.#search.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || !this.#search.value) return;
      event.stopPropagation();
      this.#search.value = "";
      this.refresh();
    });
    this.#more.addEventListener("click", () => this.#load({ isMore: true }));
    this.#archive.addEventListener("click", () => {
      this.#isArchive = !this.#isArchive;
      this.#archive.setAttribute("aria-pressed", String(this.#isArchive));
      this.refresh();
    });
    byId("import").addEventListener("change", (event) => this.#import(event.target));
  }

  async refresh({ isSearch = false } = {}) {
    await this.#load({ isMore: false });
    const { length } = this.#conversations;
    if (isSearch) announce(translate("list.found", { count: length }));
  }

  /** Mark the open conversation, and conversations that are running or wait for the user. */
  updateStates() {
    for (const item of this.#list.querySelectorAll("[data-id]")) {
      const { id } = item.dataset;
      const link = item.querySelector("a");
      if (id === this.#hooks.currentId()) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
      const state = this.#hooks.isWaiting(id) ? "waiting" : this.#hooks.isRunning(id) ? "running" : "";
      item.dataset.state = state;
      item.querySelector(".visually-hidden").textContent = STATES[state] ?? "";
      item.querySelector(".second-line").dataset.state = SHOWN_STATES[state] ?? "";
    }
  }

  async #load({ isMore }) {
    const request = (this.#requests += 1);
    const search = this.#search.value.trim();
    try {
      const cursor = isMore && this.#cursor ? { cursor: this.#cursor } : {};
      const hasPinned = !search && !isMore && !this.#isArchive;
      // A search finds archived conversations, too. Pinned conversations are shown first, however old they are.
      const marks = search ? {} : this.#isArchive ? { archived: true } : { archived: false, pinned: false };
      const [pinned, page] = await Promise.all([
        hasPinned ? this.#fetch({ limit: MAX_PINNED, archived: false, pinned: true }) : { conversations: [] },
        this.#fetch({ limit: PAGE_SIZE, search, ...marks, ...cursor }),
      ]);
      if (request !== this.#requests) return;
      const found = [...pinned.conversations, ...page.conversations];
      this.#conversations = isMore ? [...this.#conversations, ...found] : found;
      this.#cursor = page.cursor;
      this.#canShare = page.can_share;
      this.#render(search);
    } catch (error) {
      if (request === this.#requests) this.#list.replaceChildren(el("p.quiet", { role: "alert" }, describeError(error)));
    }
  }

  #fetch(query) {
    return this.#api.fetchJson("GET", `conversations?${new URLSearchParams(query)}`);
  }

  #render(search) {
    const sections = new Map();
    for (const conversation of this.#conversations) {
      const name = search ? translate("list.results")
        : this.#isArchive ? translate("list.archive")
          : conversation.pinned ? translate("list.pinned") : formatPeriod(conversation.updated);
      if (!sections.has(name)) sections.set(name, []);
      sections.get(name).push(this.#updateItem(conversation).element);
    }
    const focusedId = this.#list.querySelector("[data-id]:focus-within")?.dataset.id;
    const elements = [...sections].map(([name, items]) => this.#updateSection(name, items));
    const empty = el("p.quiet", {}, translate(search ? "list.no_match" : "list.empty"));
    placeChildren(this.#list, elements.length ? elements : [empty]);
    const ids = new Set(this.#conversations.map(({ id }) => id));
    for (const id of this.#items.keys()) if (!ids.has(id)) this.#items.delete(id);
    for (const name of this.#sections.keys()) if (!sections.has(name)) this.#sections.delete(name);
    this.#more.hidden = !this.#cursor;
    this.updateStates();
    const focused = focusedId && this.#list.querySelector(`[data-id="${CSS.escape(focusedId)}"]`);
    // Moving an element takes its focus.
    if (focused && !focused.contains(document.activeElement)) focused.querySelector("a")?.focus();
  }

  #updateSection(name, items) {
    if (!this.#sections.has(name)) this.#sections.set(name, el("section", {}, el("h2", {}, name), el("ul")));
    const section = this.#sections.get(name);
    placeChildren(section.lastElementChild, items);
    return section;
  }

  /** Return the item of a conversation, updated to its current title. */
  #updateItem({ id, title, preview, running, updated, pinned, archived, shared }) {
    const item = this.#items.get(id) ?? this.#createItem(id);
    this.#items.set(id, item);
    item.title = title || translate("conversation.new");
    item.text.textContent = item.title;
    item.time.textContent = [formatMoment(updated), shared ? translate("share.mark") : ""].filter(Boolean).join(" · ");
    // Without the marks of Markdown, which would be most of what is seen of a list or a heading.
    item.preview.textContent = preview.replace(/[*`#|]|(?<!\w)-+(?!\w)/g, "");
    Object.assign(item.marks, { pinned, archived, shared });
    item.link.title = item.title;
    setLabel(item.more, translate("conversation.actions_of", { title: item.title }));
    this.#hooks.onListed(id, running);
    return item;
  }

  #createItem(id) {
    const item = { title: "", text: el("span"), time: el("span.when"), preview: el("bdi.preview"), marks: {} };
    // The direction is that of the title: what does not fit is cut off at its end, not at its beginning.
    const secondLine = el("span.second-line", {}, item.time, item.preview);
    item.link = el("a", { href: toHash(id), dir: "auto" }, item.text, el("span.visually-hidden"), secondLine);
    item.more = createIconButton("more", "", () => this.openMenu(item.more, { id, title: item.title }));
    item.more.setAttribute("aria-haspopup", "menu");
    item.more.setAttribute("aria-expanded", "false");
    item.element = el("li", { "data-id": id }, item.link, item.more);
    return item;
  }

  /** Open the menu of a conversation. */
  openMenu(button, { id, title }) {
    const { pinned, archived } = this.#items.get(id)?.marks ?? {};
    openMenu(button, [
      [translate(pinned ? "list.unpin" : "list.pin"), () => this.#mark(id, { pinned: !pinned })],
      [translate(archived ? "list.unarchive" : "list.to_archive"), () => this.#mark(id, { archived: !archived })],
      [translate("list.rename"), () => this.#rename(id, title)],
      [translate("list.fork"), () => this.fork(id)],
      ...(this.#canShare ? [[translate("share.open"), () => this.#share(id)]] : []),
      [translate("list.markdown"), () => this.#save(id, title, "markdown", "md")],
      [translate("list.html"), () => this.#withToast(async () => {
        const { saveAsHtml } = await import("./html_export.js");
        await saveAsHtml(this.#api, id);
      })],
      [translate("list.json"), () => this.#save(id, title, "json", "json")],
      [translate("delete"), () => this.#delete(id, title)],
    ]);
  }

  /** Copy the first `at` messages of a conversation into a new one, and open it. */
  async fork(id, at) {
    const body = at === undefined ? {} : { at };
    const created = await this.#withToast(() => this.#api.fetchJson("POST", path(id, "/fork"), body));
    if (!created) return;
    await this.refresh();
    this.#hooks.onForked(created.id);
  }

  #share(id) {
    return this.#withToast(async () => {
      const { openShareDialog } = await import("./share_dialog.js");
      await openShareDialog(this.#api, id, () => this.refresh());
    });
  }

  async #mark(id, marks) {
    await this.#withToast(() => this.#api.fetchJson("PATCH", path(id), marks));
    await this.refresh();
  }

  #rename(id, title) {
    const item = this.#list.querySelector(`[data-id="${CSS.escape(id)}"]`);
    if (!item) return;
    const link = item.querySelector("a");
    const label = translate("list.new_name");
    const field = el("input.rename", { type: "text", value: title, maxlength: "60", "aria-label": label });
    let isClosed = false;
    const end = async (isAccepted) => {
      if (isClosed) return;
      isClosed = true;
      const name = field.value.trim();
      field.replaceWith(link);
      link.focus();
      if (!isAccepted || !name || name === title) return;
      const result = await this.#withToast(() => this.#api.fetchJson("PATCH", path(id), { title: name }));
      if (result !== undefined) this.#hooks.onRenamed(id, name);
      await this.refresh();
    };
    field.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.isComposing) end(true);
      if (event.key === "Escape") end(false);
      event.stopPropagation();
    });
    field.addEventListener("blur", () => end(true));
    link.replaceWith(field);
    field.select();
  }

  async #delete(id, title) {
    if (!(await confirmAction(translate("list.delete", { title }), translate("delete")))) return;
    const result = await this.#withToast(() => this.#api.fetchJson("DELETE", path(id)));
    if (result === undefined) return;
    this.#hooks.onDeleted(id);
    await this.refresh();
    announce(translate("list.deleted"));
  }

  async #save(id, title, format, extension) {
    await this.#withToast(async () => {
      const response = await this.#api.fetch("GET", path(id, `/export?format=${format}`));
      saveFile(await response.blob(), title, extension);
    });
  }

  async #import(input) {
    const [file] = input.files;
    input.value = "";
    if (!file) return;
    const upload = async () => this.#api.fetchJson("POST", "conversations/import", await file.text());
    const created = await this.#withToast(upload);
    if (!created) return;
    await this.refresh();
    this.#hooks.onForked(created.id);
  }

  /** Return the action's result; after an error show a toast and return undefined. */
  async #withToast(action) {
    try {
      return await action();
    } catch (error) {
      showToast(describeError(error));
      return undefined;
    }
  }
}
