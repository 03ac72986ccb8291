// A call's arguments for a person to read, written as the terminal writes them (people/argument_block.py): line breaks
// are line breaks, and what nobody sees is written out.

import { visible } from "./unseen.js";

const MAX_DEPTH = 20;
const PLAIN_NAME = /^[A-Za-z0-9_.$-]+$/;
const NEEDS_QUOTES = /^(?:$|[\s"'[\]{}|>&*!%@`#,?-]|[.+]?[0-9]|(?:true|false|null|yes|no|~)$|.*(?:\s|:)$|.*: )/;

const json = (value) => JSON.stringify(value) ?? "null";
const keyOf = (name) => PLAIN_NAME.test(name) ? name : json(name);

function linesOfText(value) {
  const text = value.replaceAll("\r\n", "\n");
  if (text.includes("\n")) return ["|", ...text.replace(/\n$/, "").split("\n")];
  return [NEEDS_QUOTES.test(text) ? json(text) : text];
}

function* entry(head, value, depth) {
  if (typeof value === "string") {
    const [first, ...lines] = linesOfText(value);
    yield `${head} ${first}`;
    for (const line of lines) yield `  ${line}`;
  } else if (value !== null && typeof value === "object" && Object.keys(value).length && depth < MAX_DEPTH) {
    yield head;
    const isList = Array.isArray(value);
    for (const [key, item] of Object.entries(value)) {
      for (const line of entry(isList ? "-" : `${keyOf(key)}:`, item, depth + 1)) yield `  ${line}`;
    }
  } else {
    yield `${head} ${json(value)}`;
  }
}

/** Write the arguments of a call. */
export function argumentBlock(given) {
  const lines = Object.entries(given ?? {}).flatMap(([name, value]) => [...entry(`${keyOf(name)}:`, value, 0)]);
  return lines.map(visible).join("\n");
}
