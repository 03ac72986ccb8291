// Markdown blocks: parses text into a tree of blocks, in linear time. markdown_inline.js parses their lines.
//
// A block has `type` and `from`, the number of its first line: {type: "paragraph", text}, {type: "heading", level, text},
// {type: "code", language, text, isClosed}, {type: "rule"}, {type: "quote", blocks},
// {type: "list", start (null for bullets), items: [{blocks, done (null for no task)}], isLoose},
// {type: "table", align, header, rows}, {type: "math", text}.
//
// Long blocks are divided, so that a view that follows a growing text has little to do: `isDivided` is true for a part that
// the next block continues, and `continues` for that next block. The `above` of a table is its previous part.
//
// Differences from CommonMark: a single line break is kept, as people and models write it; "---" under a paragraph is a
// rule; indented code, HTML and link reference definitions are not supported.

import { parseMathBlock } from "./markdown_math.js";

/** Maximum nesting of quotes and lists; deeper blocks are paragraphs. */
const MAX_DEPTH = 10;
const MAX_COLUMNS = 60;

/** Lines of a paragraph, items of a list and rows of a table after which the block is divided. */
const MAX_LINES = 100;
/** Characters after which code is divided, and characters of each further part. Shorter code gets colours. */
export const MAX_CODE = 60_000;
const CODE_PART = 8_000;
/** Languages of code that is drawn as a whole. */
const DRAWN = ["mermaid", "math", "latex-math"];

/** Parse a text. `before`: the divided block that the first line of the text may continue. */
export function parseBlocks(text, { before = null } = {}) {
  return splitBlocks(text.replace(/\r\n?/g, "\n").split("\n"), 0, before);
}

function splitBlocks(lines, depth, before = null) {
  const blocks = [];
  let at = 0;
  let divided = before;
  while (at < lines.length) {
    const continued = divided && continueBlock(lines, at, divided);
    divided = null;
    if (!continued && isBlank(lines[at])) {
      at += 1;
      continue;
    }
    const [block, next] = continued ?? parseBlock(lines, at, depth);
    blocks.push({ from: at, ...block });
    if (block.isDivided) divided = block;
    at = next;
  }
  return blocks;
}

/** Parse the next part of a divided block. Null if the line does not continue the block. */
function continueBlock(lines, at, before) {
  const parse = { code: continueCode, list: continueList, table: continueTable, paragraph: continueParagraph }[before.type];
  const [block, next] = parse(lines, at, before) ?? [];
  return block ? [{ ...block, continues: true }, next] : null;
}

function parseBlock(lines, at, depth) {
  const line = lines[at];
  const fence = parseFence(line);
  if (fence) return parseCodeBlock(lines, at + 1, fence, depth === 0 ? MAX_CODE : Infinity);
  const heading = parseHeading(line);
  if (heading) return [heading, at + 1];
  if (isRule(line)) return [{ type: "rule" }, at + 1];
  const math = parseMathBlock(lines, at);
  if (math) return math;
  if (depth < MAX_DEPTH && isQuote(line)) return parseQuote(lines, at, depth);
  if (depth < MAX_DEPTH && parseMarker(line)) return parseList(lines, at, depth);
  if (isTable(lines, at)) return parseTable(lines, at);
  return parseParagraph(lines, at, depth);
}

const isBlank = (line) => line === undefined || /^\s*$/.test(line);

const measureIndent = (line) => /^[ \t]*/.exec(line)[0].replaceAll("\t", "    ").length;

function parseFence(line) {
  const found = /^ {0,3}(`{3,}|~{3,})/.exec(line);
  if (!found) return null;
  const rest = line.slice(found[0].length).trim();
  if (found[1][0] === "`" && rest.includes("`")) return null;
  return { mark: found[1], indent: found[0].length - found[1].length, language: rest.split(/\s/, 1)[0].slice(0, 40) };
}

/** Parse code from its first line, or from the first line of a further part, up to `limit` characters. */
function parseCodeBlock(lines, at, fence, limit) {
  const { mark, indent, language } = fence;
  const maxLength = DRAWN.includes(language.toLowerCase()) ? Infinity : limit;
  let end = at;
  let length = 0;
  const closes = (line) => {
    const text = line.trim();
    return text.length >= mark.length && measureIndent(line) < 4 && text === mark[0].repeat(text.length);
  };
  while (end < lines.length && !closes(lines[end])) {
    length += lines[end].length + 1;
    if (length > maxLength && end > at) break;
    end += 1;
  }
  const isDivided = length > maxLength && end < lines.length && !closes(lines[end]);
  const strip = indent ? new RegExp(`^ {1,${indent}}`) : null;
  const inside = lines.slice(at, end);
  const text = (strip ? inside.map((line) => line.replace(strip, "")) : inside).join("\n");
  if (isDivided) return [{ type: "code", language, text, isClosed: false, isDivided, fence }, end];
  return [{ type: "code", language, text, isClosed: end < lines.length }, end + 1];
}

const continueCode = (lines, at, { fence }) => parseCodeBlock(lines, at, fence, CODE_PART);

function parseHeading(line) {
  const found = /^ {0,3}(#{1,6})(?=[ \t]|$)/.exec(line);
  if (!found) return null;
  const text = line.slice(found[0].length).trim();
  let end = text.length;
  while (end && text[end - 1] === "#") end -= 1;
  const isClosing = end < text.length && (end === 0 || /\s/.test(text[end - 1]));
  return { type: "heading", level: found[1].length, text: isClosing ? text.slice(0, end).trimEnd() : text };
}

function isRule(line) {
  if (line.length > 200 || measureIndent(line) > 3) return false;
  const marks = line.replace(/\s/g, "");
  return marks.length >= 3 && "-*_".includes(marks[0]) && marks === marks[0].repeat(marks.length);
}

const isQuote = (line) => /^ {0,3}>/.test(line);

function parseQuote(lines, at, depth) {
  const inside = [];
  let end = at;
  while (end < lines.length) {
    if (isQuote(lines[end])) inside.push(lines[end].replace(/^ {0,3}> ?/, ""));
    else if (isBlank(lines[end]) || isBlank(inside.at(-1)) || isBlockStart(lines, end)) break;
    else inside.push(lines[end]);
    end += 1;
  }
  return [{ type: "quote", blocks: splitBlocks(inside, depth + 1) }, end];
}

/** Parse the list marker of a line: its indent, the column of its text, and its number (null for bullets). */
function parseMarker(line) {
  const found = /^([ \t]*)([-*+]|\d{1,9}[.)])([ \t]+|$)/.exec(line);
  if (!found || isRule(line)) return null;
  const indent = measureIndent(line);
  const gap = found[3].length;
  const width = indent + found[2].length + (gap > 4 || gap === 0 ? 1 : gap);
  const number = /^\d/.test(found[2]) ? Number.parseInt(found[2], 10) : null;
  return { indent, width, number, isEmpty: isBlank(line.slice(found[0].length)) };
}

function parseList(lines, at, depth) {
  const first = parseMarker(lines[at]);
  const items = [];
  let isLoose = false;
  let end = at;
  while (end < lines.length && isSibling(parseMarker(lines[end]), first)) {
    if (depth === 0 && items.length === MAX_LINES) break;
    const [inside, next] = parseListItem(lines, end, parseMarker(lines[end]));
    const task = /^\[([ xX])\][ \t]+/.exec(inside[0]);
    if (task) inside[0] = inside[0].slice(task[0].length);
    const blocks = splitBlocks(inside, depth + 1);
    items.push({ blocks, done: task ? task[1] !== " " : null });
    const isApart = isBlank(lines[next - 1]) && next < lines.length && parseMarker(lines[next])?.indent === first.indent;
    isLoose ||= blocks.filter(({ type }) => type === "paragraph").length > 1 || isApart;
    end = next;
  }
  const list = { type: "list", start: first.number, items, isLoose };
  const isDivided = depth === 0 && end < lines.length && isSibling(parseMarker(lines[end]), first);
  return [isDivided ? { ...list, isDivided, marker: first } : list, end];
}

/** True if a marker belongs to the list of the first marker. */
const isSibling = (marker, first) =>
  marker !== null && (marker.number === null) === (first.number === null) && marker.indent <= first.indent + 1;

function continueList(lines, at, { start, items, marker, isLoose }) {
  if (!isSibling(parseMarker(lines[at] ?? ""), marker)) return null;
  const [list, next] = parseList(lines, at, 0);
  return [{ ...list, start: start === null ? null : start + items.length, isLoose: isLoose || list.isLoose }, next];
}

/** Return the lines of a list item without their indent, and the next line. An indent of two columns is enough. */
function parseListItem(lines, at, { indent, width }) {
  const inside = [removeIndent(lines[at], width)];
  let end = at + 1;
  let wasBlank = false;
  while (end < lines.length) {
    const line = lines[end];
    if (isBlank(line)) {
      wasBlank = true;
    } else {
      const column = measureIndent(line);
      const belongs = column >= width || (column > indent + 1 && (parseMarker(line) || parseFence(line.trim())));
      const continues = !wasBlank && !isBlockStart(lines, end) && !parseMarker(line);
      if (!belongs && !continues) break;
      wasBlank = false;
    }
    inside.push(removeIndent(line, width));
    end += 1;
  }
  return [inside, end];
}

/** Remove the first `width` columns of a line: white space and its list marker. */
function removeIndent(line, width) {
  const marker = /^[ \t]*(?:[-*+]|\d{1,9}[.)])/.exec(line);
  const spaces = /^[ \t]*/.exec(line)[0];
  if (measureIndent(line) >= width) return " ".repeat(measureIndent(line) - width) + line.slice(spaces.length);
  if (marker && parseMarker(line)?.width === width) return line.slice(marker[0].length).replace(/^[ \t]{1,4}/, "");
  return line.slice(spaces.length);
}

function isTable(lines, at) {
  const line = lines[at];
  const rule = lines[at + 1];
  if (!line.includes("|") || rule === undefined || rule.length > 4_000 || !/^[\s|:-]+$/.test(rule)) return false;
  const columns = splitCells(rule);
  return columns.every((cell) => /^:?-+:?$/.test(cell)) && columns.length === splitCells(line).length;
}

function parseTable(lines, at) {
  const align = splitCells(lines[at + 1]).map((cell) => {
    if (cell.endsWith(":")) return cell.startsWith(":") ? "center" : "right";
    return null;
  });
  return parseRows(lines, at + 2, { type: "table", align, header: splitCells(lines[at]) });
}

function parseRows(lines, at, table) {
  const rows = [];
  let end = at;
  while (isRow(lines, end) && rows.length < MAX_LINES) {
    rows.push(splitCells(lines[end]).slice(0, table.align.length));
    end += 1;
  }
  return [isRow(lines, end) ? { ...table, rows, isDivided: true } : { ...table, rows }, end];
}

const isRow = (lines, at) => at < lines.length && !isBlank(lines[at]) && !isBlockStart(lines, at);

const continueTable = (lines, at, above) =>
  isRow(lines, at) ? parseRows(lines, at, { type: "table", align: above.align, header: above.header, above }) : null;

/** Split a row at its bars, except those that are escaped or in code. */
function splitCells(line) {
  const cells = [];
  let cell = "";
  for (const [piece] of line.trim().matchAll(/\\[^]|`[^`]*`|\||[^\\`|]+|[^]/g)) {
    if (piece !== "|") {
      cell += piece === "\\|" || piece[0] === "`" ? piece.replaceAll("\\|", "|") : piece;
      continue;
    }
    cells.push(cell.trim());
    cell = "";
    if (cells.length > MAX_COLUMNS) break;
  }
  cells.push(cell.trim());
  if (cells.length > 1 && cells[0] === "") cells.shift();
  if (cells.length > 1 && cells.at(-1) === "") cells.pop();
  return cells;
}

/** True if a line ends the paragraph before it. A number must be 1: a year at the start of a line is not a list. */
function isBlockStart(lines, at) {
  const line = lines[at];
  if (parseFence(line) || parseHeading(line) || isRule(line) || isQuote(line) || isTable(lines, at)) return true;
  if (parseMathBlock(lines, at)) return true;
  const marker = measureIndent(line) < 4 ? parseMarker(line) : null;
  return marker !== null && !marker.isEmpty && (marker.number === null || marker.number === 1);
}

function parseParagraph(lines, at, depth) {
  const continues = (line) => !isBlank(lines[line]) && (depth >= MAX_DEPTH || !isBlockStart(lines, line));
  const limit = depth === 0 ? at + MAX_LINES : lines.length;
  let end = at + 1;
  while (end < limit && continues(end)) end += 1;
  const text = lines.slice(at, end).map((line) => line.trim()).join("\n");
  const isDivided = end === limit && continues(end);
  return [isDivided ? { type: "paragraph", text, isDivided } : { type: "paragraph", text }, end];
}

const continueParagraph = (lines, at) =>
  isBlank(lines[at]) || isBlockStart(lines, at) ? null : parseParagraph(lines, at, 0);
