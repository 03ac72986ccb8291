// Markdown: text to a tree of blocks, in time linear in its length. Knows no document; `inline` reads the lines.
//
// A block has `type` and `from`, the line it begins with: {type: "paragraph", text}, {type: "heading", level, text},
// {type: "code", language, text, isClosed}, {type: "rule"}, {type: "quote", blocks},
// {type: "list", start (null for bullets), items: [{blocks, done (null for no task)}], isLoose},
// {type: "table", align, header, rows}.
//
// Other than CommonMark: a single line break is kept, as people and models write it; "---" under a paragraph is a
// rule; there is no indented code, no HTML and no link defined elsewhere.

/** Quotes and lists that may lie in one another; what lies deeper is a paragraph. */
const DEEPEST = 10;
const MOST_COLUMNS = 60;

/** Read a text. */
export function parseBlocks(text) {
  return blocksOf(text.replace(/\r\n?/g, "\n").split("\n"), 0);
}

function blocksOf(lines, depth) {
  const blocks = [];
  let at = 0;
  while (at < lines.length) {
    if (isBlank(lines[at])) {
      at += 1;
      continue;
    }
    const [block, next] = blockAt(lines, at, depth);
    blocks.push({ from: at, ...block });
    at = next;
  }
  return blocks;
}

function blockAt(lines, at, depth) {
  const line = lines[at];
  const fence = fenceOf(line);
  if (fence) return codeAt(lines, at, fence);
  const heading = headingOf(line);
  if (heading) return [heading, at + 1];
  if (isRule(line)) return [{ type: "rule" }, at + 1];
  if (depth < DEEPEST && isQuote(line)) return quoteAt(lines, at, depth);
  if (depth < DEEPEST && markerOf(line)) return listAt(lines, at, depth);
  if (isTable(lines, at)) return tableAt(lines, at);
  return paragraphAt(lines, at, depth);
}

const isBlank = (line) => line === undefined || /^\s*$/.test(line);

const indentOf = (line) => /^[ \t]*/.exec(line)[0].replaceAll("\t", "    ").length;

function fenceOf(line) {
  const found = /^ {0,3}(`{3,}|~{3,})/.exec(line);
  if (!found) return null;
  const rest = line.slice(found[0].length).trim();
  if (found[1][0] === "`" && rest.includes("`")) return null;
  return { mark: found[1], indent: found[0].length - found[1].length, language: rest.split(/\s/, 1)[0].slice(0, 40) };
}

function codeAt(lines, at, { mark, indent, language }) {
  let end = at + 1;
  const closes = (line) => {
    const said = line.trim();
    return said.length >= mark.length && indentOf(line) < 4 && said === mark[0].repeat(said.length);
  };
  while (end < lines.length && !closes(lines[end])) end += 1;
  const strip = indent ? new RegExp(`^ {1,${indent}}`) : null;
  const inside = lines.slice(at + 1, end);
  const text = (strip ? inside.map((line) => line.replace(strip, "")) : inside).join("\n");
  return [{ type: "code", language, text, isClosed: end < lines.length }, end + 1];
}

function headingOf(line) {
  const found = /^ {0,3}(#{1,6})(?=[ \t]|$)/.exec(line);
  if (!found) return null;
  const text = line.slice(found[0].length).trim();
  let end = text.length;
  while (end && text[end - 1] === "#") end -= 1;
  const isClosing = end < text.length && (end === 0 || /\s/.test(text[end - 1]));
  return { type: "heading", level: found[1].length, text: isClosing ? text.slice(0, end).trimEnd() : text };
}

function isRule(line) {
  if (line.length > 200 || indentOf(line) > 3) return false;
  const marks = line.replace(/\s/g, "");
  return marks.length >= 3 && "-*_".includes(marks[0]) && marks === marks[0].repeat(marks.length);
}

const isQuote = (line) => /^ {0,3}>/.test(line);

function quoteAt(lines, at, depth) {
  const inside = [];
  let end = at;
  while (end < lines.length) {
    if (isQuote(lines[end])) inside.push(lines[end].replace(/^ {0,3}> ?/, ""));
    else if (isBlank(lines[end]) || isBlank(inside.at(-1)) || beginsBlock(lines, end)) break;
    else inside.push(lines[end]);
    end += 1;
  }
  return [{ type: "quote", blocks: blocksOf(inside, depth + 1) }, end];
}

/** Read the bullet or number a line begins with: where it stands, where its text begins, and what it counts. */
function markerOf(line) {
  const found = /^([ \t]*)([-*+]|\d{1,9}[.)])([ \t]+|$)/.exec(line);
  if (!found || isRule(line)) return null;
  const indent = indentOf(line);
  const gap = found[3].length;
  const width = indent + found[2].length + (gap > 4 || gap === 0 ? 1 : gap);
  const number = /^\d/.test(found[2]) ? Number.parseInt(found[2], 10) : null;
  return { indent, width, number, isEmpty: isBlank(line.slice(found[0].length)) };
}

function listAt(lines, at, depth) {
  const first = markerOf(lines[at]);
  const items = [];
  let isLoose = false;
  let end = at;
  while (end < lines.length) {
    const marker = markerOf(lines[end]);
    if (!marker || (marker.number === null) !== (first.number === null) || marker.indent > first.indent + 1) break;
    const [inside, next] = itemAt(lines, end, marker);
    const task = /^\[([ xX])\][ \t]+/.exec(inside[0]);
    if (task) inside[0] = inside[0].slice(task[0].length);
    const blocks = blocksOf(inside, depth + 1);
    items.push({ blocks, done: task ? task[1] !== " " : null });
    const isApart = isBlank(lines[next - 1]) && next < lines.length && markerOf(lines[next])?.indent === first.indent;
    isLoose ||= blocks.filter(({ type }) => type === "paragraph").length > 1 || isApart;
    end = next;
  }
  return [{ type: "list", start: first.number, items, isLoose }, end];
}

/** Give the lines of an item without their indentation, and where the next begins. Two columns are enough to belong. */
function itemAt(lines, at, { indent, width }) {
  const inside = [cut(lines[at], width)];
  let end = at + 1;
  let wasBlank = false;
  while (end < lines.length) {
    const line = lines[end];
    if (isBlank(line)) {
      wasBlank = true;
    } else {
      const own = indentOf(line);
      const belongs = own >= width || (own > indent + 1 && (markerOf(line) || fenceOf(line.trim())));
      const continues = !wasBlank && !beginsBlock(lines, end) && !markerOf(line);
      if (!belongs && !continues) break;
      wasBlank = false;
    }
    inside.push(cut(line, width));
    end += 1;
  }
  return [inside, end];
}

/** Take away so many columns of a line's beginning: white space, and the marker it may begin with. */
function cut(line, width) {
  const marker = /^[ \t]*(?:[-*+]|\d{1,9}[.)])/.exec(line);
  const spaces = /^[ \t]*/.exec(line)[0];
  if (indentOf(line) >= width) return " ".repeat(indentOf(line) - width) + line.slice(spaces.length);
  if (marker && markerOf(line)?.width === width) return line.slice(marker[0].length).replace(/^[ \t]{1,4}/, "");
  return line.slice(spaces.length);
}

function isTable(lines, at) {
  const line = lines[at];
  const rule = lines[at + 1];
  if (!line.includes("|") || rule === undefined || rule.length > 4_000 || !/^[\s|:-]+$/.test(rule)) return false;
  const columns = cellsOf(rule);
  return columns.every((cell) => /^:?-+:?$/.test(cell)) && columns.length === cellsOf(line).length;
}

function tableAt(lines, at) {
  const align = cellsOf(lines[at + 1]).map((cell) => {
    if (cell.endsWith(":")) return cell.startsWith(":") ? "center" : "right";
    return null;
  });
  const rows = [];
  let end = at + 2;
  while (end < lines.length && !isBlank(lines[end]) && !beginsBlock(lines, end)) {
    rows.push(cellsOf(lines[end]).slice(0, align.length));
    end += 1;
  }
  return [{ type: "table", align, header: cellsOf(lines[at]), rows }, end];
}

/** Split a row at its bars, but for those that are escaped or in code. */
function cellsOf(line) {
  const cells = [];
  let cell = "";
  for (const [piece] of line.trim().matchAll(/\\[^]|`[^`]*`|\||[^\\`|]+|[^]/g)) {
    if (piece !== "|") {
      cell += piece === "\\|" ? "|" : piece;
      continue;
    }
    cells.push(cell.trim());
    cell = "";
    if (cells.length > MOST_COLUMNS) break;
  }
  cells.push(cell.trim());
  if (cells.length > 1 && cells[0] === "") cells.shift();
  if (cells.length > 1 && cells.at(-1) === "") cells.pop();
  return cells;
}

/** Whether a line ends a paragraph before it. Of numbers only a 1 does: a year at a line's beginning is no list. */
function beginsBlock(lines, at) {
  const line = lines[at];
  if (fenceOf(line) || headingOf(line) || isRule(line) || isQuote(line) || isTable(lines, at)) return true;
  const marker = indentOf(line) < 4 ? markerOf(line) : null;
  return marker !== null && !marker.isEmpty && (marker.number === null || marker.number === 1);
}

function paragraphAt(lines, at, depth) {
  let end = at + 1;
  while (end < lines.length && !isBlank(lines[end]) && (depth >= DEEPEST || !beginsBlock(lines, end))) end += 1;
  const text = lines.slice(at, end).map((line) => line.trim()).join("\n");
  return [{ type: "paragraph", text }, end];
}
