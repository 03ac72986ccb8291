// Formulas in Markdown: $…$, $$…$$, \(…\) and \[…\], in linear time. Does not use the document.

/** Lines of a formula that is a block. */
const MAX_LINES = 200;

/**
 * Parse the formula at a position of a paragraph: {tex, isDisplay, end}, or null if there is none.
 *
 * A dollar sign often means money. An opening dollar sign has no space after it; a closing one has no space before it and
 * no digit after it. `failed` is an object that all calls for one text share: it records the delimiters that are not
 * closed, so that their ends are searched for only once.
 */
export function parseMath(text, at, failed) {
  for (const [opening, closing, isDisplay] of [["$$", "$$", true], ["\\(", "\\)", false], ["\\[", "\\]", true]]) {
    if (text.startsWith(opening, at)) return parseDelimited(text, at, { opening, closing, isDisplay }, failed);
  }
  return text[at] === "$" ? parseDollar(text, at, failed) : null;
}

function parseDelimited(text, at, { opening, closing, isDisplay }, failed) {
  if (at < (failed[opening] ?? 0)) return null;
  const from = at + opening.length;
  const end = text.indexOf(closing, from);
  if (end < 0) failed[opening] = text.length;
  const tex = text.slice(from, Math.max(from, end)).trim();
  return end < 0 || !tex ? null : { tex, isDisplay, end: end + closing.length };
}

function parseDollar(text, at, failed) {
  if (at < (failed.$ ?? 0) || /[\s$]/.test(text[at + 1] ?? " ") || /[\w$]/.test(text[at - 1] ?? "")) return null;
  for (let end = at + 1; end < text.length && text[end] !== "\n"; end += 1) {
    // A dollar sign after a space opens a formula: the dollar sign at `at` is money. Code binds more tightly.
    if (text[end] === "`" || (text[end] === "$" && /\s/.test(text[end - 1]))) {
      failed.$ = end;
      return null;
    }
    if (text[end] === "\\") end += 1;
    else if (text[end] === "$" && !/[\d$]/.test(text[end + 1] ?? "")) {
      return { tex: text.slice(at + 1, end), isDisplay: false, end: end + 1 };
    }
  }
  const line = text.indexOf("\n", at);
  failed.$ = line < 0 ? text.length : line;
  return null;
}

/** Parse a formula that takes whole lines: [block, next line], or null if there is none. */
export function parseMathBlock(lines, at) {
  const first = /^ {0,3}(\$\$|\\\[)/.exec(lines[at]);
  if (!first) return null;
  const closing = first[1] === "$$" ? "$$" : "\\]";
  const parts = [];
  for (let end = at; end < Math.min(lines.length, at + MAX_LINES) && lines[end].trim(); end += 1) {
    const line = end === at ? lines[at].slice(first[0].length) : lines[end];
    if (line.trimEnd().endsWith(closing)) {
      const text = [...parts, line.trimEnd().slice(0, -closing.length)].join("\n").trim();
      return text ? [{ type: "math", text }, end + 1] : null;
    }
    if (line.includes(closing)) return null;
    parts.push(line);
  }
  return null;
}
