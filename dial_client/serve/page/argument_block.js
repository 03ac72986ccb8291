// A call's arguments as text, in the same form as in the terminal (hooks/approval_request.py): line breaks are kept,
// invisible characters are escaped.

import { isObject } from "./exact_json.js";
import { escapeInvisible } from "./invisible_characters.js";

const MAX_DEPTH = 20;
const PLAIN_NAME = /^[A-Za-z0-9_.$-]+$/;
const NEEDS_QUOTES = /^(?:$|[\s"'[\]{}|>&*!%@`#,?-]|[.+]?[0-9]|(?:true|false|null|yes|no|~)$|.*(?:\s|:)$|.*: )/;

const json = (value) => JSON.stringify(value) ?? "null";
const formatKey = (name) => PLAIN_NAME.test(name) ? name : json(name);

function splitText(value) {
  const text = value.replaceAll("\r\n", "\n");
  if (text.includes("\n")) return ["|", ...text.replace(/\n$/, "").split("\n")];
  return [NEEDS_QUOTES.test(text) ? json(text) : text];
}

function* formatEntry(head, value, depth) {
  const isList = Array.isArray(value);
  if (typeof value === "string") {
    const [first, ...lines] = splitText(value);
    yield `${head} ${first}`;
    for (const line of lines) yield `  ${line}`;
  } else if ((isList || isObject(value)) && Object.keys(value).length && depth < MAX_DEPTH) {
    yield head;
    for (const [key, item] of Object.entries(value)) {
      for (const line of formatEntry(isList ? "-" : `${formatKey(key)}:`, item, depth + 1)) yield `  ${line}`;
    }
  } else {
    yield `${head} ${json(value)}`;
  }
}

/** Format the arguments of a call. */
export function formatArguments(args) {
  const lines = Object.entries(args ?? {}).flatMap(([name, value]) => [...formatEntry(`${formatKey(name)}:`, value, 0)]);
  return lines.map(escapeInvisible).join("\n");
}
