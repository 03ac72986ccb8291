// Markdown as elements: builds nodes, never markup, from the trees of markdown_blocks.js and markdown_inline.js.
//
// Nothing is fetched: an image becomes a link. Links lead to http, https or mailto only, and their host is visible.

import { createCopyButton, createTextCopyButton, el, createIcon, isLong, setText } from "./dom.js";
import { parseInline, toPlainText, parseSafeUrl } from "./markdown_inline.js";
import { colorGrowing, colorWhenVisible } from "./highlighting.js";
import { renderDiagram } from "./diagram_view.js";
import { renderMath } from "./math_view.js";
import { toCsv, toMarkdown } from "./table_text.js";
import { parseBlocks } from "./markdown_blocks.js";
import { escapeInvisible } from "./invisible_characters.js";

/** Characters of a paragraph that is parsed for emphasis and links; a longer paragraph is shown as plain text. */
const MAX_PARAGRAPH = 40_000;

/** A last line that is still ambiguous: a "1" may become "10." and belong to the list before it. */
const AMBIGUOUS_LINE = /(?<=\n)[ \t]*(?:\d{1,9}[.)]?|[-*+`~#>|]{1,6})$/;

/** A Markdown text that grows. Only its last block is rebuilt when text is added. */
export class MarkdownView {
  #tail = "";
  #nodes = [];
  #last = null;
  #nextRender = 0;
  #isScheduled = false;

  constructor(root) {
    this.root = root;
    root.dir = "auto";
    this.text = "";
  }

  /** Add text; it is rendered with the next frame. */
  append(text) {
    this.text += text;
    this.#tail += text;
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    const wait = Math.max(0, this.#nextRender - performance.now());
    setTimeout(() => {
      const render = () => this.#isScheduled && this.#render({ isOpen: true });
      if (document.hidden) render();
      else requestAnimationFrame(render);
    }, wait);
  }

  /** Render the whole text; nothing will be added. */
  finish() {
    this.#render({ isOpen: false });
  }

  #render({ isOpen }) {
    const startedAt = performance.now();
    this.#isScheduled = false;
    const blocks = parseBlocks(isOpen ? this.#tail.replace(AMBIGUOUS_LINE, "") : this.#tail);
    const last = blocks.at(-1);
    const isSame = isOpen && blocks.length === 1 && last.type === "code" && this.#last?.type === "code";
    if (isSame && growCode(this.#nodes[0], this.#last, last)) {
      this.#last = last;
    } else {
      for (const node of this.#nodes) node.remove();
      const nodes = blocks.map((block) => renderBlock(block, isOpen && block === last));
      this.root.append(...nodes);
      this.#nodes = nodes.slice(-1);
      this.#last = last;
    }
    if (last?.from) this.#tail = this.#tail.replace(/\r\n?/g, "\n").split("\n").slice(last.from).join("\n");
    // Rendering a long block again takes longer each time: it gets at most a tenth of the time.
    this.#nextRender = performance.now() + 9 * (performance.now() - startedAt);
  }
}

/** Append to a code block in place, which keeps a selection in it. */
function growCode(node, before, now) {
  const code = node.querySelector("code");
  if (isLong(now.text) || before.language !== now.language || !now.text.startsWith(before.text)) return false;
  code.append(now.text.slice(before.text.length));
  colorGrowing(code, now.language);
  return true;
}

function renderBlock(block, isOpen) {
  switch (block.type) {
    case "heading":
      return el(`h${Math.min(block.level + 2, 6)}`, { class: `level-${block.level}` }, ...renderInline(block.text, isOpen));
    case "code":
      return renderCode(block);
    case "math":
      return el("div.formula", { tabindex: "0", role: "group", "aria-label": "Formula" }, renderMath(block.text, true));
    case "rule":
      return el("hr");
    case "quote":
      return el("blockquote", {}, ...renderBlocks(block.blocks, isOpen));
    case "list":
      return renderList(block, isOpen);
    case "table":
      return renderTable(block);
    default:
      return renderParagraph(block.text, isOpen);
  }
}

const renderBlocks = (blocks, isOpen) => blocks.map((block, at) => renderBlock(block, isOpen && at === blocks.length - 1));

function renderParagraph(text, isOpen) {
  if (text.length <= MAX_PARAGRAPH) return el("p", {}, ...renderInline(text, isOpen));
  const paragraph = el("p.unformatted");
  const block = el("div", {}, paragraph);
  setText(paragraph, text, block);
  return block;
}

function renderCode({ language, text, isClosed }) {
  if (isClosed && language.toLowerCase() === "mermaid") return renderDiagram(text);
  if (isClosed && ["math", "latex-math"].includes(language.toLowerCase())) {
    return el("div.formula", { tabindex: "0", role: "group", "aria-label": "Formula" }, renderMath(text, true));
  }
  const code = el("code");
  const pre = el("pre", { tabindex: "0" }, code);
  const copy = createCopyButton(() => (isLong(text) ? text : code.textContent), "Copy code");
  const block = el("div.code", {}, el("div.code-head", {}, el("span", {}, escapeInvisible(language) || "text"), copy), pre);
  setText(code, text, block);
  if (!isLong(text)) colorWhenVisible(code, language);
  return block;
}

function renderList({ start, items, isLoose }, isOpen) {
  const list = start === null ? el("ul") : el("ol", { start: start === 1 ? null : start });
  items.forEach(({ blocks, done }, at) => {
    const isLast = isOpen && at === items.length - 1;
    const item = el("li");
    if (done !== null) {
      const box = el("input", { type: "checkbox", disabled: true, checked: done, "aria-label": done ? "done" : "to do" });
      item.className = "task";
      item.append(box);
    }
    blocks.forEach((block, index) => {
      const isTight = !isLoose && block.type === "paragraph" && block.text.length <= MAX_PARAGRAPH;
      const isOpenBlock = isLast && index === blocks.length - 1;
      item.append(...(isTight ? renderInline(block.text, isOpenBlock) : [renderBlock(block, isOpenBlock)]));
    });
    list.append(item);
  });
  return list;
}

function renderTable(table) {
  const { align, header, rows } = table;
  const cells = (tag, texts) => texts.map((text, at) => {
    const side = align[at] ? `.${align[at]}` : "";
    return el(`${tag}${side}`, tag === "th" ? { scope: "col" } : {}, ...renderInline(text, false));
  });
  const head = el("thead", {}, el("tr", {}, ...cells("th", header)));
  const body = el("tbody", {}, ...rows.map((row) => el("tr", {}, ...cells("td", row))));
  const plain = () => [header, ...rows].map((row) => row.map((cell) => toPlainText(parseInline(cell))));
  const scroller = el("div.table", { tabindex: "0", role: "group", "aria-label": "Table" }, el("table", {}, head, body));
  const buttons = el("div.table-buttons", {},
    createTextCopyButton("CSV", () => toCsv(plain()), "Copy the table as CSV"),
    createTextCopyButton("Markdown", () => toMarkdown(table), "Copy the table as Markdown"));
  return el("div.table-block", {}, scroller, buttons);
}

function renderInline(text, isOpen) {
  return text.length > MAX_PARAGRAPH ? [text] : renderNodes(parseInline(text, { open: isOpen }));
}

function renderNodes(nodes) {
  return nodes.map((node) => {
    switch (typeof node === "string" ? "text" : node.t) {
      case "text":
        return node;
      case "br":
        return el("br");
      case "code":
        return el("code", {}, node.text);
      case "math":
        return renderMath(node.text, node.isDisplay);
      case "link":
        return renderLink(node);
      case "image":
        return renderImage(node);
      default:
        return el(node.t, {}, ...renderNodes(node.c));
    }
  });
}

/** A link with its host; a URL that is not allowed becomes plain text. */
function renderLink({ href, c }) {
  const url = parseSafeUrl(href);
  if (!url) {
    const title = `Blocked link: ${escapeInvisible(href).slice(0, 200)}`;
    return el("span.blocked-link", { title }, ...renderNodes(c));
  }
  const host = hostOf(url);
  const text = toPlainText(c).replace(/^(?:https?:\/\/|mailto:)/, "");
  const isPlain = text === host || text.startsWith(`${host}/`);
  return el("span.linked", {}, createLink(url, ...renderNodes(c)), isPlain ? null : el("span.host", {}, host));
}

/** A link in place of an image: loading the image would tell its host who reads it and when. */
function renderImage({ href, alt }) {
  const url = parseSafeUrl(href);
  const name = alt || "image";
  if (!url || url.protocol === "mailto:") {
    return el("span.blocked-image", { title: "Images are not loaded" }, createIcon("image"), name);
  }
  return el("span.linked.blocked-image", {}, createIcon("image"), createLink(url, name), el("span.host", {}, hostOf(url)));
}

/** Create a link that opens in a new tab and sends no referrer. */
export function createLink(url, ...children) {
  const title = escapeInvisible(url.href);
  return el("a", { href: url.href, target: "_blank", rel: "noopener noreferrer", title }, ...children);
}

const hostOf = (url) => (url.protocol === "mailto:" ? url.pathname.split("@").at(-1) : url.host);
