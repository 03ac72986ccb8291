// Tables of an answer. A long table is shown in parts with the same columns: the browser lays out a table as a whole.

import { createTextCopyButton, el } from "./dom.js";
import { translate } from "./language.js";
import { parseInline, toPlainText } from "./markdown_inline.js";
import { toCsv, toMarkdown } from "./table_text.js";

/** Minimum and maximum characters that count for the width of a column in a long table. */
const MIN_WIDTH = 4;
const MAX_WIDTH = 40;
/** Characters that fit into a line of a cell at least, if the cell has as many. */
const READABLE_WIDTH = 20;

/** Maps the element of a table to the table. */
const tables = new WeakMap();

/** Render a table, or a part of one. `renderCell(text)` returns the nodes of a cell. */
export function renderTable(table, renderCell) {
  const { header, rows, isDivided, continues } = table;
  const head = el("thead", {}, renderRow("th", header, table, renderCell));
  const body = el("tbody", {}, ...rows.map((row) => renderRow("td", row, table, renderCell)));
  const isPart = isDivided || continues;
  const element = isPart ? el("table.fixed", {}, createColumns(table), head, body) : el("table", {}, head, body);
  const scroller = el("div.table", { tabindex: "0", role: "group", "aria-label": translate("markdown.table") }, element);
  widenColumns(element, rows);
  const block = el("div.table-block", {}, scroller);
  if (!isDivided) block.append(createButtons(block));
  tables.set(block, table);
  return block;
}

/** Render the last row and the new rows after it: the text before them is the same. */
export function growTable(block, before, now, renderCell) {
  const kept = before.rows.length - 1;
  if (kept < 0 || now.rows.length <= kept || before.header.length !== now.header.length) return false;
  const rows = now.rows.slice(kept).map((row) => renderRow("td", row, now, renderCell));
  block.querySelector("tbody").lastElementChild.replaceWith(...rows);
  widenColumns(block.querySelector("table"), now.rows.slice(kept));
  tables.set(block, now);
  return true;
}

function renderRow(tag, texts, { align }, renderCell) {
  return el("tr", {}, ...texts.map((text, at) => {
    const side = align[at] ? `.${align[at]}` : "";
    return el(`${tag}${side}`, tag === "th" ? { scope: "col" } : {}, ...renderCell(text));
  }));
}

/** Give columns with long texts a minimum width, so that a table that is too wide scrolls and its rows stay low. */
function widenColumns(element, rows) {
  const cells = element.tHead.rows[0].cells;
  for (const row of rows) {
    row.forEach((text, at) => {
      const width = Math.min(text.length, READABLE_WIDTH);
      if (cells[at] && width > (parseFloat(cells[at].style.minWidth) || 0)) cells[at].style.minWidth = `${width}ch`;
    });
  }
}

/** Return the parts of a table from the first one on. */
function listParts(table) {
  const parts = [];
  for (let part = table; part; part = part.above) parts.unshift(part);
  return parts;
}

/** Create columns with the widths that suit the first part. */
function createColumns(table) {
  const [{ header, rows }] = listParts(table);
  const widths = header.map((name, at) => {
    const longest = rows.reduce((length, row) => Math.max(length, row[at]?.length ?? 0), name.length);
    return Math.min(Math.max(longest, MIN_WIDTH), MAX_WIDTH) + 3;
  });
  const sum = widths.reduce((total, width) => total + width, 0);
  return el("colgroup", {}, ...widths.map((width) => {
    const column = el("col");
    column.style.width = `max(${((100 * width) / sum).toFixed(2)}%, ${(width / 2).toFixed(2)}rem)`;
    return column;
  }));
}

/** Create the buttons that copy the whole table. */
function createButtons(block) {
  const join = () => {
    const table = tables.get(block);
    return { ...table, rows: listParts(table).flatMap(({ rows }) => rows) };
  };
  const toPlain = ({ header, rows }) => [header, ...rows].map((row) => row.map((cell) => toPlainText(parseInline(cell))));
  return el("div.table-buttons", {},
    createTextCopyButton("CSV", () => toCsv(toPlain(join())), translate("markdown.copy_csv")),
    createTextCopyButton("Markdown", () => toMarkdown(join()), translate("markdown.copy_markdown")));
}
