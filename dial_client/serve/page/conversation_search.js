// Search inside the open conversation: all hits are marked, and shown one after another.

import { showAllTurns } from "./deep_links.js";
import { announce, byId, createIconButton, el } from "./dom.js";
import { translate } from "./language.js";

/** Selectors of the texts that are searched: messages, answers, reasoning, arguments and results. */
const TEXTS = ".user-message, .prose, .reasoning-text, .tool pre, .note, .stopped";
const MAX_HITS = 1_000;
/** Milliseconds after the last key before the search starts. */
const DELAY = 150;

/** Return the ranges of a text in the elements that match `TEXTS`, at most `MAX_HITS`. */
function findRanges(root, text) {
  const query = text.toLowerCase();
  const ranges = [];
  for (const element of root.querySelectorAll(TEXTS)) {
    if (element.parentElement.closest(TEXTS)) continue;
    const { content, nodes } = joinTexts(element);
    for (let at = content.indexOf(query); at >= 0; at = content.indexOf(query, at + query.length)) {
      if (ranges.length === MAX_HITS) return ranges;
      ranges.push(toRange(nodes, at, at + query.length));
    }
  }
  return ranges;
}

/** Join the texts of an element, in lower case, with the position of each text node: a hit may cross formatting. */
function joinTexts(element) {
  const walker = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
  const nodes = [];
  let content = "";
  while (walker.nextNode()) {
    const node = walker.currentNode;
    nodes.push({ node, start: content.length });
    const lower = node.data.toLowerCase();
    // Some letters have a longer lower case, which would shift the positions after it.
    content += lower.length === node.data.length ? lower : node.data;
  }
  return { content, nodes };
}

function toRange(nodes, from, to) {
  const range = document.createRange();
  const first = nodes.findLast(({ start }) => start <= from);
  const last = nodes.findLast(({ start }) => start < to);
  range.setStart(first.node, from - first.start);
  range.setEnd(last.node, to - last.start);
  return range;
}

/** The bar above the conversation. */
export class ConversationSearch {
  #bar = byId("find");
  #field = el("input", { type: "search", "aria-label": translate("find.label"), autocomplete: "off", dir: "auto" });
  #count = el("span.quiet.find-count");
  #element = null;
  #ranges = [];
  #at = -1;
  #timer = null;

  constructor() {
    this.#field.addEventListener("input", () => {
      clearTimeout(this.#timer);
      this.#timer = setTimeout(() => this.#search(), DELAY);
    });
    this.#bar.addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.close({ isByUser: true });
      else if (event.key === "Enter" && event.target === this.#field) this.#step(event.shiftKey ? -1 : 1);
      else return;
      event.preventDefault();
      event.stopPropagation();
    });
    this.#bar.append(this.#field, this.#count,
      createIconButton("up", translate("find.previous"), () => this.#step(-1)),
      createIconButton("down", translate("find.next"), () => this.#step(1)),
      createIconButton("cross", translate("find.close"), () => this.close({ isByUser: true })));
  }

  /** Show the bar for the element of a conversation. */
  open(element) {
    this.#element = element;
    showAllTurns(element);
    this.#bar.hidden = false;
    this.#field.select();
    this.#field.focus();
    this.#search();
  }

  close({ isByUser = false } = {}) {
    clearTimeout(this.#timer);
    this.#bar.hidden = true;
    this.#show([]);
    if (isByUser) byId("message").focus();
  }

  #search() {
    const text = this.#field.value.trim();
    this.#show(text ? findRanges(this.#element, text) : []);
    if (!text) return;
    if (this.#ranges.length) this.#step(1);
    else announce(translate("find.none"));
  }

  #show(ranges) {
    this.#ranges = ranges;
    this.#at = -1;
    this.#count.textContent = "";
    if (this.#field.value.trim() && !this.#bar.hidden && !ranges.length) this.#count.textContent = translate("find.none");
    globalThis.CSS?.highlights?.delete("find-current");
    if (ranges.length) globalThis.CSS?.highlights?.set("find", new Highlight(...ranges));
    else globalThis.CSS?.highlights?.delete("find");
  }

  /** Go to the next or previous hit, and open the folds around it. */
  #step(by) {
    const { length } = this.#ranges;
    if (!length) return;
    this.#at = this.#at < 0 && by < 0 ? length - 1 : (this.#at + by + length) % length;
    const range = this.#ranges[this.#at];
    const parent = range.startContainer.parentElement;
    for (let fold = parent?.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
    globalThis.CSS?.highlights?.set("find-current", new Highlight(range));
    parent?.scrollIntoView({ block: "center" });
    this.#count.textContent = `${this.#at + 1}/${length}`;
    announce(translate("find.hit", { number: this.#at + 1, total: length }));
  }
}
