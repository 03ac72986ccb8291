// The text of a table for other programs. Does not use the document.

/** Return a table as CSV (RFC 4180). A cell that a spreadsheet would treat as a formula ("=…") gets an apostrophe. */
export function toCsv(rows) {
  const cell = (text) => {
    const safe = /^[=+@\t]|^-(?![\d.,\s]*$)/.test(text) ? `'${text}` : text;
    return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  return rows.map((row) => row.map(cell).join(",")).join("\r\n");
}

/** Return a table as Markdown, from the Markdown of its cells. */
export function toMarkdown({ align, header, rows }) {
  const line = (cells) => `| ${cells.map((cell) => cell.replaceAll("|", "\\|")).join(" | ")} |`;
  const rules = { center: ":-:", right: "--:" };
  return [line(header), line(header.map((_, at) => rules[align[at]] ?? "---")), ...rows.map(line)].join("\n");
}
