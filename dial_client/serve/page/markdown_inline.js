// Inline Markdown: parses text into a tree of plain values, in linear time. Does not use the document.
//
// A node is a string, or {t: "em" | "strong" | "del", c: nodes}, {t: "code", text}, {t: "br"},
// {t: "link", href, c: nodes}, {t: "image", href, alt}, {t: "math", text, isDisplay}. HTML is plain text, except <br>.

import { parseMath } from "./markdown_math.js";

const SPECIAL = /[\\`*_~[!<&$\n]|https?:\/\//g;
const PUNCTUATION = /[\p{P}\p{S}]/u;
const ENTITIES = { amp: "&", lt: "<", gt: ">", quot: '"', nbsp: "\u00a0", "#39": "'", apos: "'" };

/** Open delimiters at a time: limits the depth of the tree and the length of each search. */
const MAX_OPEN = 24;
const MAX_MARKS = 8;
const MAX_URL = 2_000;

/**
 * Parse a text. With `open` the text is still growing: unclosed emphasis and links count as closed,
 * so that a word does not change its look twice while it is written.
 */
export function parseInline(text, { open = false, links = true } = {}) {
  const { codes, closers } = scan(text, open);
  const builder = new Builder();
  const failed = {};
  let at = 0;
  while (at < text.length) {
    SPECIAL.lastIndex = at;
    const found = SPECIAL.exec(text);
    if (!found) break;
    builder.text(text.slice(at, found.index));
    at = parseSpecial(text, found.index, { codes, closers, failed, open, links }, builder);
  }
  builder.text(text.slice(at));
  return builder.finish(open);
}

/** Return the text of nodes without formatting. */
export function toPlainText(nodes) {
  return nodes.map((node) => {
    if (typeof node === "string") return node;
    return node.t === "br" ? " " : node.text ?? node.alt ?? toPlainText(node.c);
  }).join("");
}

/** Parse a URL that a link may lead to; null for other schemes. The browser parses it, so both agree on its meaning. */
export function parseSafeUrl(address) {
  try {
    const url = new URL(address);
    return ["http:", "https:", "mailto:"].includes(url.protocol) ? url : null;
  } catch {
    return null;
  }
}

/** Find code spans and pairs of brackets. Both bind more tightly than emphasis, so they are found first. */
function scan(text, open) {
  const runs = new Map();
  for (const run of text.matchAll(/`+/g)) {
    if (!runs.has(run[0].length)) runs.set(run[0].length, []);
    runs.get(run[0].length).push(run.index);
  }
  for (const positions of runs.values()) positions.reverse();
  const codes = new Map();
  const closers = new Map();
  const brackets = [];
  let next = 0;
  for (const found of text.matchAll(/\\[^]|`+|[[\]]/g)) {
    if (found.index < next || found[0][0] === "\\") continue;
    if (found[0] === "[") brackets.push(found.index);
    else if (found[0] === "]") {
      if (brackets.length) closers.set(brackets.pop(), found.index);
    } else {
      const { length } = found[0];
      const positions = runs.get(length) ?? [];
      while (positions.length && positions.at(-1) <= found.index) positions.pop();
      const end = positions.length ? positions.at(-1) : open && length < 3 ? text.length : -1;
      if (end < 0) continue;
      next = Math.min(end + length, text.length);
      codes.set(found.index, { from: found.index + length, to: end, next });
    }
  }
  return { codes, closers };
}

/** Parse the element at a special character and return the position after it. */
function parseSpecial(text, at, known, builder) {
  switch (text[at]) {
    case "\n":
      builder.node({ t: "br" });
      return at + 1;
    case "$":
    case "\\":
      return parseFormula(text, at, known, builder) ?? parseEscape(text, at, builder);
    case "`":
      return parseCode(text, at, known.codes, builder);
    case "*":
    case "_":
    case "~":
      return parseDelimiters(text, at, builder);
    case "[":
      return parseLink(text, at, known, builder, false);
    case "!":
      if (text[at + 1] === "[") return parseLink(text, at + 1, known, builder, true);
      break;
    case "<":
      return parseAngleBrackets(text, at, known, builder);
    case "&":
      return parseEntity(text, at, builder);
    default:
      return parseBareUrl(text, at, known, builder);
  }
  builder.text(text[at]);
  return at + 1;
}

/** Parse a formula; null if there is none at the position. */
function parseFormula(text, at, { failed }, builder) {
  const math = parseMath(text, at, failed);
  if (math) builder.node({ t: "math", text: math.tex, isDisplay: math.isDisplay });
  return math?.end ?? null;
}

function parseEscape(text, at, builder) {
  if (text[at] === "$") {
    builder.text("$");
    return at + 1;
  }
  const next = text[at + 1] ?? "";
  if (next === "\n") {
    builder.node({ t: "br" });
    return at + 2;
  }
  if (/[!-/:-@[-`{-~]/.test(next)) {
    builder.text(next);
    return at + 2;
  }
  builder.text("\\");
  return at + 1;
}

function parseCode(text, at, codes, builder) {
  const span = codes.get(at);
  if (!span) {
    const run = /`+/y;
    run.lastIndex = at;
    const ticks = run.exec(text)[0];
    builder.text(ticks);
    return at + ticks.length;
  }
  let content = text.slice(span.from, span.to).replaceAll("\n", " ");
  if (content.startsWith(" ") && content.endsWith(" ") && content.trim()) content = content.slice(1, -1);
  builder.node({ t: "code", text: content });
  return span.next;
}

function parseDelimiters(text, at, builder) {
  const mark = text[at];
  let end = at;
  while (text[end] === mark) end += 1;
  const before = at ? text[at - 1] : " ";
  const after = end < text.length ? text[end] : " ";
  const opensBefore = !/\s/.test(after) && (!PUNCTUATION.test(after) || /\s/.test(before) || PUNCTUATION.test(before));
  const closesAfter = !/\s/.test(before) && (!PUNCTUATION.test(before) || /\s/.test(after) || PUNCTUATION.test(after));
  const within = mark === "_" && opensBefore && closesAfter;
  const usable = mark === "~" ? end - at === 2 : end - at <= MAX_MARKS;
  builder.delimiter(mark, end - at, {
    canOpen: usable && opensBefore && (!within || PUNCTUATION.test(before)),
    canClose: usable && closesAfter && (!within || PUNCTUATION.test(after)),
  });
  return end;
}

function parseLink(text, at, { closers, open, links }, builder, isImage) {
  const close = closers.get(at);
  const inside = close === undefined ? "" : text.slice(at + 1, close);
  const target = close === undefined || text[close + 1] !== "(" ? null : parseDestination(text, close + 2, open);
  if (!target || (!links && !isImage)) {
    builder.text(isImage ? "![" : "[");
    return at + 1;
  }
  const content = parseInline(inside, { links: false });
  if (target.href === null) builder.nodes(content);
  else if (isImage) builder.node({ t: "image", href: target.href, alt: toPlainText(content) });
  else builder.node({ t: "link", href: target.href, c: content });
  return target.end;
}

/** Parse the URL after "](" up to its ")". Returns null if there is none; `href` is null while the URL is being written. */
function parseDestination(text, at, open) {
  const limit = Math.min(text.length, at + MAX_URL);
  const pointed = text[at] === "<";
  let depth = 0;
  let end = pointed ? at + 1 : at;
  for (; end < limit; end += 1) {
    const char = text[end];
    if (pointed ? char === ">" : char === ")" && depth === 0) break;
    if (char === "\n" || (!pointed && /\s/.test(char))) break;
    if (!pointed && char === "(" && (depth += 1) > 8) return null;
    if (!pointed && char === ")") depth -= 1;
  }
  const href = text.slice(pointed ? at + 1 : at, end);
  const rest = text.slice(pointed ? end + 1 : end, limit);
  const closing = /^\s{0,4}(?:"[^"]{0,300}"|'[^']{0,300}')?\s{0,4}\)/.exec(rest);
  if (closing) return { href, end: (pointed ? end + 1 : end) + closing[0].length };
  const isUnfinished = open && limit === text.length && !/[\n)]/.test(text.slice(at));
  return isUnfinished ? { href: null, end: text.length } : null;
}

function parseAngleBrackets(text, at, { links }, builder) {
  const candidate = text.slice(at, at + MAX_URL + 20);
  const found = /^<(?:(br)\s{0,3}\/?|((?:https?:\/\/|mailto:)[^\s<>]{1,2000}))>/i.exec(candidate);
  if (!found) {
    builder.text("<");
    return at + 1;
  }
  if (found[1]) builder.node({ t: "br" });
  else if (links) builder.node({ t: "link", href: found[2], c: [found[2]] });
  else builder.text(found[2]);
  return at + found[0].length;
}

function parseEntity(text, at, builder) {
  const found = /^&(amp|lt|gt|quot|nbsp|apos|#39);/.exec(text.slice(at, at + 8));
  builder.text(found ? ENTITIES[found[1]] : "&");
  return at + (found ? found[0].length : 1);
}

function parseBareUrl(text, at, { links }, builder) {
  const run = /[^\s<>"`]+/y;
  run.lastIndex = at;
  let address = run.exec(text)[0];
  let end = address.length;
  const depth = (address.match(/\(/g) ?? []).length - (address.match(/\)/g) ?? []).length;
  let unmatched = Math.max(0, -depth);
  while (end && (/[.,:;!?'*_~\]|]/.test(address[end - 1]) || (address[end - 1] === ")" && unmatched > 0))) {
    if (address[end - 1] === ")") unmatched -= 1;
    end -= 1;
  }
  address = address.slice(0, end);
  const isWord = at > 0 && /\w/.test(text[at - 1]);
  if (!links || isWord || end > MAX_URL || end <= "https://".length) builder.text(address);
  else builder.node({ t: "link", href: address, c: [address] });
  return at + end;
}

/** Builds the tree. A frame is a run of delimiters that may open emphasis, with the nodes after it. */
class Builder {
  #frames = [{ c: [] }];

  text(text) {
    const { c } = this.#frames.at(-1);
    if (typeof c.at(-1) === "string") c[c.length - 1] += text;
    else if (text) c.push(text);
  }

  node(node) {
    this.#frames.at(-1).c.push(node);
  }

  nodes(nodes) {
    for (const node of nodes) typeof node === "string" ? this.text(node) : this.node(node);
  }

  delimiter(mark, length, { canOpen, canClose }) {
    let left = length;
    while (canClose && left) {
      const at = this.#findOpener(mark, length, canOpen);
      if (at < 0) break;
      while (this.#frames.length > at + 1) this.#dissolve(this.#frames.length - 1);
      left -= this.#wrap(this.#frames[at], mark === "~" ? 2 : Math.min(left, 2));
    }
    if (!left) return;
    if (!canOpen) return this.text(mark.repeat(left));
    if (this.#frames.length > MAX_OPEN) this.#dissolve(1);
    this.#frames.push({ mark, left, length, isBoth: canClose, c: [] });
  }

  finish(open) {
    while (this.#frames.length > 1) {
      const frame = this.#frames.at(-1);
      const isUnclosed = open && frame.c.length && frame.left <= 2;
      if (isUnclosed) this.#wrap(frame, frame.left);
      else this.#dissolve(this.#frames.length - 1);
    }
    return this.#frames[0].c;
  }

  #findOpener(mark, length, isBoth) {
    for (let at = this.#frames.length - 1; at > 0; at -= 1) {
      const frame = this.#frames[at];
      const isOdd = (isBoth || frame.isBoth) && (frame.length + length) % 3 === 0 && (frame.length % 3 || length % 3);
      if (frame.mark === mark && !isOdd) return at;
    }
    return -1;
  }

  /** Close the last frame with at most `limit` of its delimiters; return how many were used. */
  #wrap(frame, limit) {
    const used = Math.min(limit, frame.left, 2);
    const node = { t: frame.mark === "~" ? "del" : used === 2 ? "strong" : "em", c: frame.c };
    frame.left -= used;
    frame.c = [node];
    if (!frame.left) {
      this.#frames.pop();
      this.node(node);
    }
    return used;
  }

  /** Merge a frame into the frame before it: its delimiters are plain text. */
  #dissolve(at) {
    const [frame] = this.#frames.splice(at, 1);
    const below = this.#frames[at - 1];
    const last = below.c.at(-1);
    const text = frame.mark.repeat(frame.left);
    if (typeof last === "string") below.c[below.c.length - 1] = last + text;
    else below.c.push(text);
    for (const node of frame.c) {
      if (typeof node === "string" && typeof below.c.at(-1) === "string") below.c[below.c.length - 1] += node;
      else below.c.push(node);
    }
  }
}
