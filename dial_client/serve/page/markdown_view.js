// Markdown as elements: builds nodes, never markup, from the trees of markdown_blocks.js and markdown_inline.js.
//
// Nothing is fetched: an image becomes a link. Links lead to http, https or mailto only, and their host is visible.

import { createCopyButton, el, createIcon, isLong, setText } from "./dom.js";
import { parseInline, toPlainText, parseSafeUrl } from "./markdown_inline.js";
import { colorGrowing, colorWhenVisible } from "./highlighting.js";
import { renderDiagram } from "./diagram_view.js";
import { renderMath } from "./math_view.js";
import { growTable, renderTable } from "./table_view.js";
import { parseBlocks } from "./markdown_blocks.js";
import { escapeInvisible } from "./invisible_characters.js";
import { translate } from "./language.js";

/** Characters of a paragraph that is parsed for emphasis and links; a longer paragraph is shown as plain text. */
const MAX_PARAGRAPH = 40_000;

/** Lines of a group of blocks. Groups that are not near the visible part of the page are not laid out. */
const GROUP_SIZE = 60;
const LINE_LENGTH = 80;
/** The height of a line of code, in rem: that of "pre" in turn.css. */
const CODE_LINE = 1.302;

/** A last line that is still ambiguous: a "1" may become "10." and belong to the list before it. */
const AMBIGUOUS_LINE = /(?<=\n)[ \t]*(?:\d{1,9}[.)]?|[-*+`~#>|]{1,6})$/;

/** A Markdown text that grows. Only its last block, or the last part of a long block, is rebuilt when text is added. */
export class MarkdownView {
  /** The text of the last block, and the part of a divided block that it may continue. */
  #tail = "";
  #before = null;
  /** The last block and its element. */
  #last = null;
  #node = null;
  /** The last code, to which its further parts are added. */
  #code = null;
  /** The element to which blocks are added; its number of lines, with the last block and without it. */
  #group;
  #lines = 0;
  #finishedLines = 0;
  #nextRender = 0;
  #isScheduled = false;

  constructor(root) {
    this.root = root;
    this.#group = root;
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
    const text = isOpen ? this.#tail.replace(AMBIGUOUS_LINE, "") : this.#tail;
    const blocks = parseBlocks(text, { before: this.#before });
    const last = blocks.at(-1);
    const isSame = isOpen && blocks.length === 1 && last.type === this.#last?.type && !last.isDivided;
    if (!isSame || !growBlock(this.#node, this.#last, last)) {
      this.#node?.remove();
      this.#lines = this.#finishedLines;
      for (const block of blocks) this.#append(block, isOpen && block === last);
    }
    this.#last = last;
    this.#lines = this.#finishedLines + (last ? countLines(last) : 0);
    if (last?.from) {
      this.#tail = this.#tail.replace(/\r\n?/g, "\n").split("\n").slice(last.from).join("\n");
      this.#before = last.continues ? blocks.at(-2) : null;
    }
    // A long block is rendered again in at most a tenth of the time.
    this.#nextRender = performance.now() + 9 * (performance.now() - startedAt);
  }

  #append(block, isOpen) {
    if (block.type === "code" && block.continues) {
      this.#node = renderCodePart(block);
      this.#code.append(this.#node);
      return;
    }
    this.#node = renderBlock(block, isOpen);
    this.#code = this.#node.querySelector("code");
    this.#node.classList.toggle("divided", Boolean(block.isDivided));
    this.#node.classList.toggle("continued", Boolean(block.continues));
    if (this.#lines >= GROUP_SIZE) {
      this.#group = el("div.blocks");
      this.root.append(this.#group);
      this.#lines = 0;
    }
    this.#group.append(this.#node);
    this.#finishedLines = this.#lines;
    this.#lines += countLines(block);
  }
}

/** Return the approximate number of lines that a block has on the page. */
function countLines({ items, rows, text = "" }) {
  return items?.length ?? rows?.length ?? Math.ceil(text.length / LINE_LENGTH);
}

/** Extend a block in place with its new content. Returns false if the block has to be rendered again. */
function growBlock(node, before, now) {
  switch (now.type) {
    case "code":
      return growCode(node, before, now);
    case "list":
      return growList(node, before, now);
    case "table":
      return growTable(node, before, now, renderCell);
    default:
      return false;
  }
}

/** Append to a code block in place, which keeps a selection in it. */
function growCode(node, before, now) {
  const code = now.continues ? node : node.querySelector("code");
  if (isLong(now.text) || before.language !== now.language || !now.text.startsWith(before.text)) return false;
  code.append(now.text.slice(before.text.length));
  if (now.continues) reserveHeight(code, now.text);
  else colorGrowing(code, now.language);
  return true;
}

function renderBlock(block, isOpen) {
  switch (block.type) {
    case "heading":
      return el(`h${Math.min(block.level + 2, 6)}`, { class: `level-${block.level}` }, ...renderInline(block.text, isOpen));
    case "code":
      return renderCode(block);
    case "math":
      return renderFormula(block.text);
    case "rule":
      return el("hr");
    case "quote":
      return el("blockquote", {}, ...renderBlocks(block.blocks, isOpen));
    case "list":
      return renderList(block, isOpen);
    case "table":
      return renderTable(block, renderCell);
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

function renderFormula(text) {
  const label = translate("markdown.formula");
  return el("div.formula", { tabindex: "0", role: "group", "aria-label": label }, renderMath(text, true));
}

function renderCode({ language, text, isClosed, isDivided }) {
  if (isClosed && language.toLowerCase() === "mermaid") return renderDiagram(text);
  if (isClosed && ["math", "latex-math"].includes(language.toLowerCase())) return renderFormula(text);
  const code = el("code");
  // Without `dir`, tokens take quadratic time.
  const pre = el("pre", { tabindex: "0", dir: "ltr" }, code);
  const copy = createCopyButton(() => (isLong(text) ? text : code.textContent), translate("markdown.copy_code"));
  const kind = el("span", {}, escapeInvisible(language) || translate("markdown.text"));
  const block = el("div.code", {}, el("div.code-head", {}, kind, copy), pre);
  setText(code, isDivided ? `${text}\n` : text, block);
  if (!isDivided && !isLong(text)) colorWhenVisible(code, language);
  return block;
}

/** Render a further part of code, which starts on a new line. */
function renderCodePart({ text, isDivided }) {
  const part = el("span.code-part", {}, isDivided ? `${text}\n` : text);
  reserveHeight(part, text);
  return part;
}

/** Set the height that a part of code has while it is not laid out. */
function reserveHeight(part, text) {
  part.style.containIntrinsicHeight = `auto ${(text.split("\n").length * CODE_LINE).toFixed(1)}rem`;
}

function renderList(block, isOpen) {
  const { start, items } = block;
  const list = start === null ? el("ul") : el("ol", { start: start === 1 ? null : start });
  list.append(...items.map((item, at) => renderItem(item, block, isOpen && at === items.length - 1)));
  indentNumbers(list, block);
  return list;
}

/** Make space for numbers of three and more digits: a group of blocks clips what is outside of it. */
function indentNumbers(list, { start, items }) {
  const digits = start === null ? 0 : String(start + items.length - 1).length;
  if (digits > 2) list.style.paddingInlineStart = `${(0.6 + 0.6 * digits).toFixed(1)}rem`;
}

/** Render the last item and the new items after it: the text before them is the same. */
function growList(list, before, now) {
  const first = before.items.length - 1;
  if (before.isLoose !== now.isLoose || before.start !== now.start || now.items.length <= first) return false;
  const items = now.items.slice(first).map((item, at) => renderItem(item, now, at === now.items.length - 1 - first));
  list.lastElementChild.replaceWith(...items);
  indentNumbers(list, now);
  return true;
}

function renderItem({ blocks, done }, { isLoose }, isOpen) {
  const item = el("li");
  if (done !== null) {
    const label = translate(done ? "markdown.done" : "markdown.to_do");
    const box = el("input", { type: "checkbox", disabled: true, checked: done, "aria-label": label });
    item.className = "task";
    item.append(box);
  }
  blocks.forEach((block, index) => {
    const isTight = !isLoose && block.type === "paragraph" && block.text.length <= MAX_PARAGRAPH;
    const isOpenBlock = isOpen && index === blocks.length - 1;
    item.append(...(isTight ? renderInline(block.text, isOpenBlock) : [renderBlock(block, isOpenBlock)]));
  });
  return item;
}

const renderCell = (text) => renderInline(text, false);

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
    const title = translate("markdown.blocked_link", { address: escapeInvisible(href).slice(0, 200) });
    return el("span.blocked-link", { title }, ...renderNodes(c));
  }
  const host = hostOf(url);
  const text = toPlainText(c).replace(/^(?:https?:\/\/|mailto:)/, "");
  const isPlain = text === host || text.startsWith(`${host}/`);
  return el("span.linked", {}, createLink(url, ...renderNodes(c)), isPlain ? null : el("span.host", {}, host));
}

/** A link instead of an image: loading the image would tell its host who reads it and when. */
function renderImage({ href, alt }) {
  const url = parseSafeUrl(href);
  const name = alt || translate("markdown.image");
  if (!url || url.protocol === "mailto:") {
    return el("span.blocked-image", { title: translate("markdown.no_images") }, createIcon("image"), name);
  }
  return el("span.linked.blocked-image", {}, createIcon("image"), createLink(url, name), el("span.host", {}, hostOf(url)));
}

/** Create a link that opens in a new tab and sends no referrer. */
export function createLink(url, ...children) {
  const title = escapeInvisible(url.href);
  return el("a", { href: url.href, target: "_blank", rel: "noopener noreferrer", title }, ...children);
}

const hostOf = (url) => (url.protocol === "mailto:" ? url.pathname.split("@").at(-1) : url.host);
