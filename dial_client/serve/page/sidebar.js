// The list of conversations: newest first, searched, renamed, forked, taken away, deleted.

import { confirmed, openMenu, toast } from "./dialogs.js";
import { byId, el, iconButton, say } from "./dom.js";
import { period, sentence } from "./words.js";

const PAGE = 40;
/** Milliseconds without a key before it is searched. */
const TYPING = 200;

const path = (id, rest = "") => `conversations/${encodeURIComponent(id)}${rest}`;

export class Sidebar {
  #api;
  #hooks;
  #list = byId("conversations");
  #search = byId("search");
  #more = byId("more");
  #cursor = null;
  #shown = [];
  #asked = 0;
  #timer = null;

  /**
   * `hooks`: {current(): id, waits(id): boolean, runs(id): boolean, heard(id, running), deleted(id), renamed(id, title),
   * forked(id, draft)}.
   */
  constructor(api, hooks) {
    this.#api = api;
    this.#hooks = hooks;
    this.#search.addEventListener("input", () => {
      clearTimeout(this.#timer);
      this.#timer = setTimeout(() => this.refresh({ isSearch: true }), TYPING);
    });
    this.#search.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || !this.#search.value) return;
      event.stopPropagation();
      this.#search.value = "";
      this.refresh();
    });
    this.#more.addEventListener("click", () => this.#load({ isMore: true }));
    byId("import").addEventListener("change", (event) => this.#import(event.target));
  }

  async refresh({ isSearch = false } = {}) {
    await this.#load({ isMore: false });
    if (isSearch) say(`${this.#shown.length} ${this.#shown.length === 1 ? "conversation" : "conversations"} found`);
  }

  /** Mark what is open, what is at work, and what waits for the person. */
  mark() {
    for (const item of this.#list.querySelectorAll("[data-id]")) {
      const { id } = item.dataset;
      const link = item.querySelector("a");
      if (id === this.#hooks.current()) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
      const state = this.#hooks.waits(id) ? "waiting" : this.#hooks.runs(id) ? "running" : "";
      item.dataset.state = state;
      item.querySelector(".unseen").textContent = { waiting: ", waits for you", running: ", at work" }[state] ?? "";
    }
  }

  async #load({ isMore }) {
    const asked = (this.#asked += 1);
    const search = this.#search.value.trim();
    const query = new URLSearchParams({ limit: PAGE, search, ...(isMore && this.#cursor ? { cursor: this.#cursor } : {}) });
    try {
      const { conversations, cursor } = await this.#api.json("GET", `conversations?${query}`);
      if (asked !== this.#asked) return;
      this.#shown = isMore ? [...this.#shown, ...conversations] : conversations;
      this.#cursor = cursor;
      this.#show(search);
    } catch (error) {
      if (asked === this.#asked) this.#list.replaceChildren(el("p.quiet", { role: "alert" }, sentence(error)));
    }
  }

  #show(search) {
    const groups = [];
    for (const one of this.#shown) {
      const name = search ? "Found" : period(one.updated);
      if (groups.at(-1)?.name !== name) groups.push({ name, items: [] });
      groups.at(-1).items.push(this.#item(one));
    }
    const held = this.#list.querySelector("[data-id]:focus-within")?.dataset.id;
    const sections = groups.map(({ name, items }) => el("section", {}, el("h2", {}, name), el("ul", {}, ...items)));
    const none = el("p.quiet", {}, search ? "Nothing found." : "What you talk about will be here.");
    this.#list.replaceChildren(...(sections.length ? sections : [none]));
    this.#more.hidden = !this.#cursor;
    this.mark();
    if (held) this.#list.querySelector(`[data-id="${CSS.escape(held)}"] a`)?.focus();
  }

  #item({ id, title, running }) {
    const name = title || "New conversation";
    const link = el("a", { href: `#/${id}`, title: name }, name, el("span.unseen"));
    const more = iconButton("more", `More about “${name}”`, () => this.menu(more, { id, title: name }));
    more.setAttribute("aria-haspopup", "menu");
    more.setAttribute("aria-expanded", "false");
    this.#hooks.heard(id, running);
    return el("li", { "data-id": id }, link, more);
  }

  /** Open the menu of what can be done with a conversation. */
  menu(button, { id, title }) {
    openMenu(button, [
      ["Rename", () => this.#rename(id, title)],
      ["Continue in a copy", () => this.fork(id)],
      ["Save as Markdown", () => this.#save(id, title, "markdown", "md")],
      ["Save as JSON", () => this.#save(id, title, "json", "json")],
      ["Delete", () => this.#delete(id, title)],
    ]);
  }

  /** Make a new conversation of another's beginning, and open it with a draft, if there is one. */
  async fork(id, at, draft) {
    const made = await this.#tried(() => this.#api.json("POST", path(id, "/fork"), at === undefined ? {} : { at }));
    if (!made) return;
    await this.refresh();
    this.#hooks.forked(made.id, draft);
  }

  #rename(id, title) {
    const item = this.#list.querySelector(`[data-id="${CSS.escape(id)}"]`);
    if (!item) return;
    const link = item.querySelector("a");
    const field = el("input.rename", { type: "text", value: title, maxlength: "60", "aria-label": "New name" });
    let isOver = false;
    const end = async (isKept) => {
      if (isOver) return;
      isOver = true;
      const name = field.value.trim();
      field.replaceWith(link);
      link.focus();
      if (!isKept || !name || name === title) return;
      const done = await this.#tried(() => this.#api.json("PATCH", path(id), { title: name }));
      if (done !== undefined) this.#hooks.renamed(id, name);
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
    if (!(await confirmed(`Delete “${title}”? This cannot be undone.`, "Delete"))) return;
    const done = await this.#tried(() => this.#api.json("DELETE", path(id)));
    if (done === undefined) return;
    this.#hooks.deleted(id);
    await this.refresh();
    say("Deleted");
  }

  async #save(id, title, format, ending) {
    await this.#tried(async () => {
      const answer = await this.#api.ask("GET", path(id, `/export?format=${format}`));
      const address = URL.createObjectURL(await answer.blob());
      const name = title.replace(/[^\p{L}\p{N} _-]+/gu, " ").trim().slice(0, 60) || "conversation";
      el("a", { href: address, download: `${name}.${ending}` }).click();
      setTimeout(() => URL.revokeObjectURL(address), 60_000);
    });
  }

  async #import(input) {
    const [file] = input.files;
    input.value = "";
    if (!file) return;
    const made = await this.#tried(async () => this.#api.json("POST", "conversations/import", await file.text()));
    if (!made) return;
    await this.refresh();
    this.#hooks.forked(made.id);
  }

  /** Give what came of it, or say what went wrong and give undefined. */
  async #tried(act) {
    try {
      return await act();
    } catch (error) {
      toast(sentence(error));
      return undefined;
    }
  }
}
