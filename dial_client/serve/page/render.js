// Markdown as elements: what `markdown` and `inline` read, made of nodes, never of markup.
//
// Nothing is fetched: an image is a link to it, and a link goes to http, https or mailto only, with its host in sight.

import { copyButton, el, icon, isLong, setText } from "./dom.js";
import { parseInline, plain, safeAddress } from "./inline.js";
import { parseBlocks } from "./markdown.js";
import { visible } from "./unseen.js";

/** Characters of one paragraph that are read for emphasis and links; a longer one is no prose. */
const PROSE = 40_000;

/** A last line of which nobody can tell yet what it begins: a "1" may become "10.", and belong to the list before it. */
const BEGUN = /(?<=\n)[ \t]*(?:\d{1,9}[.)]?|[-*+`~#>|]{1,6})$/;

/** A Markdown text that may still grow. Only its last block is made anew when more comes. */
export class MarkdownView {
  #tail = "";
  #nodes = [];
  #last = null;
  #rest = 0;
  #isDue = false;

  constructor(root) {
    this.root = root;
    this.text = "";
  }

  /** Add text; it is shown with the next frame. */
  append(text) {
    this.text += text;
    this.#tail += text;
    if (this.#isDue) return;
    this.#isDue = true;
    const wait = Math.max(0, this.#rest - performance.now());
    setTimeout(() => {
      const show = () => this.#isDue && this.#show(true);
      if (document.hidden) show();
      else requestAnimationFrame(show);
    }, wait);
  }

  /** Show all there is; no more will come. */
  finish() {
    this.#show(false);
  }

  #show(open) {
    const begun = performance.now();
    this.#isDue = false;
    const blocks = parseBlocks(open ? this.#tail.replace(BEGUN, "") : this.#tail);
    const last = blocks.at(-1);
    const isSame = open && blocks.length === 1 && last.type === "code" && this.#last?.type === "code";
    if (isSame && grown(this.#nodes[0], this.#last, last)) {
      this.#last = last;
    } else {
      for (const node of this.#nodes) node.remove();
      const made = blocks.map((block) => blockNode(block, open && block === last));
      this.root.append(...made);
      this.#nodes = made.slice(-1);
      this.#last = last;
    }
    if (last?.from) this.#tail = this.#tail.replace(/\r\n?/g, "\n").split("\n").slice(last.from).join("\n");
    // A long block costs more each time: showing it takes a tenth of the time, however long it is.
    this.#rest = performance.now() + 9 * (performance.now() - begun);
  }
}

/** Put a whole text into an element. */
export function markdown(root, text) {
  const view = new MarkdownView(root);
  view.append(text);
  view.finish();
  return view;
}

/** Let a block of code grow in its place, so that what is selected in it stays so. */
function grown(node, before, now) {
  const code = node.querySelector("code");
  if (isLong(now.text) || before.language !== now.language || !now.text.startsWith(before.text)) return false;
  code.append(now.text.slice(before.text.length));
  return true;
}

function blockNode(block, open) {
  switch (block.type) {
    case "heading":
      return el(`h${Math.min(block.level + 2, 6)}`, { class: `level-${block.level}` }, ...inlineNodes(block.text, open));
    case "code":
      return codeNode(block);
    case "rule":
      return el("hr");
    case "quote":
      return el("blockquote", {}, ...blockNodes(block.blocks, open));
    case "list":
      return listNode(block, open);
    case "table":
      return tableNode(block);
    default:
      return paragraphNode(block.text, open);
  }
}

const blockNodes = (blocks, open) => blocks.map((block, at) => blockNode(block, open && at === blocks.length - 1));

function paragraphNode(text, open) {
  if (text.length <= PROSE) return el("p", {}, ...inlineNodes(text, open));
  const paragraph = el("p.unformatted");
  const whole = el("div", {}, paragraph);
  setText(paragraph, text, whole);
  return whole;
}

function codeNode({ language, text }) {
  const code = el("code");
  const pre = el("pre", { tabindex: "0" }, code);
  const copy = copyButton(() => (isLong(text) ? text : code.textContent), "Copy code");
  const block = el("div.code", {}, el("div.code-head", {}, el("span", {}, visible(language) || "text"), copy), pre);
  setText(code, text, block);
  return block;
}

function listNode({ start, items, isLoose }, open) {
  const list = start === null ? el("ul") : el("ol", { start: start === 1 ? null : start });
  items.forEach(({ blocks, done }, at) => {
    const isLast = open && at === items.length - 1;
    const item = el("li");
    if (done !== null) {
      const box = el("input", { type: "checkbox", disabled: true, checked: done, "aria-label": done ? "done" : "to do" });
      item.className = "task";
      item.append(box);
    }
    blocks.forEach((block, index) => {
      const isTight = !isLoose && block.type === "paragraph" && block.text.length <= PROSE;
      const isOpen = isLast && index === blocks.length - 1;
      item.append(...(isTight ? inlineNodes(block.text, isOpen) : [blockNode(block, isOpen)]));
    });
    list.append(item);
  });
  return list;
}

function tableNode({ align, header, rows }) {
  const cells = (tag, texts) => texts.map((text, at) => {
    const side = align[at] ? `.${align[at]}` : "";
    return el(`${tag}${side}`, tag === "th" ? { scope: "col" } : {}, ...inlineNodes(text, false));
  });
  const head = el("thead", {}, el("tr", {}, ...cells("th", header)));
  const body = el("tbody", {}, ...rows.map((row) => el("tr", {}, ...cells("td", row))));
  return el("div.table", { tabindex: "0", role: "group", "aria-label": "Table" }, el("table", {}, head, body));
}

function inlineNodes(text, open) {
  return text.length > PROSE ? [text] : nodesOf(parseInline(text, { open }));
}

function nodesOf(nodes) {
  return nodes.map((node) => {
    switch (typeof node === "string" ? "text" : node.t) {
      case "text":
        return node;
      case "br":
        return el("br");
      case "code":
        return el("code", {}, node.text);
      case "link":
        return linkNode(node);
      case "image":
        return imageNode(node);
      default:
        return el(node.t, {}, ...nodesOf(node.c));
    }
  });
}

/** A link to where anybody can see it goes; one that may not be followed is its text. */
function linkNode({ href, c }) {
  const url = safeAddress(href);
  if (!url) {
    const title = `Not a link that can be followed: ${visible(href).slice(0, 200)}`;
    return el("span.no-link", { title }, ...nodesOf(c));
  }
  const host = hostOf(url);
  const said = plain(c).replace(/^(?:https?:\/\/|mailto:)/, "");
  const isPlain = said === host || said.startsWith(`${host}/`);
  return el("span.linked", {}, anchor(url, ...nodesOf(c)), isPlain ? null : el("span.host", {}, host));
}

/** An image would tell its host who reads this, and when: it is a link like any other. */
function imageNode({ href, alt }) {
  const url = safeAddress(href);
  const name = alt || "image";
  if (!url || url.protocol === "mailto:") {
    return el("span.no-image", { title: "Images are not loaded" }, icon("image"), name);
  }
  return el("span.linked.no-image", {}, icon("image"), anchor(url, name), el("span.host", {}, hostOf(url)));
}

/** A link that opens apart, and tells its host nothing of this page. */
export function anchor(url, ...children) {
  return el("a", { href: url.href, target: "_blank", rel: "noopener noreferrer", title: visible(url.href) }, ...children);
}

const hostOf = (url) => (url.protocol === "mailto:" ? url.pathname.split("@").at(-1) : url.host);
