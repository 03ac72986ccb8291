// The sources of an answer: numbers in its text, and a list behind it. The same rules as in citations.py.

import { el } from "./dom.js";
import { escapeInvisible } from "./invisible_characters.js";
import { parseSafeUrl } from "./markdown_inline.js";

const MAX_QUOTE = 120;

/** Return the citations grouped by their source, in the order of the sources' numbers. */
function groupBySource(citations) {
  const groups = new Map();
  for (const citation of citations) {
    if (!groups.has(citation.source)) groups.set(citation.source, []);
    groups.get(citation.source).push(citation);
  }
  return [...groups.values()];
}

/** Return the text with "[1]" behind each cited part, where the model has not written it. Spans count code points. */
export function insertMarkers(text, citations) {
  const characters = Array.from(text);
  const places = new Map();
  groupBySource(citations).forEach((group, at) => {
    const marker = `[${at + 1}]`;
    for (const { end } of group) {
      if (end === undefined || end > characters.length) continue;
      const before = characters.slice(Math.max(0, end - marker.length), end).join("");
      const after = characters.slice(end, end + marker.length).join("");
      if (before === marker || after === marker) continue;
      if (!places.has(end)) places.set(end, new Set());
      places.get(end).add(marker);
    }
  });
  const ends = [...places.keys()].sort((first, second) => second - first);
  for (const end of ends) characters.splice(end, 0, ...places.get(end));
  return characters.join("");
}

/** Return the numbered list of sources. Only addresses of the web become links. */
export function renderSources(citations) {
  const items = groupBySource(citations).map((group) => {
    const first = (name) => group.find((citation) => citation[name])?.[name] ?? "";
    const url = parseSafeUrl(first("url"));
    const locations = [...new Set(group.map(({ location }) => location).filter(Boolean))];
    const name = [first("title") || (url ? url.host : group[0].source), ...locations].join(", ");
    const quote = first("quote");
    const attributes = { href: url?.href, rel: "noopener noreferrer nofollow", target: "_blank" };
    return el("li", {},
      url ? el("a", attributes, escapeInvisible(name)) : escapeInvisible(name),
      url ? el("span.quiet", {}, ` ${url.host}`) : null,
      quote ? el("q.quiet", {}, escapeInvisible(shorten(quote))) : null);
  });
  return el("section.sources", { "aria-label": "Sources" }, el("h3", {}, "Sources"), el("ol", {}, ...items));
}

function shorten(text) {
  const line = text.replace(/\s+/g, " ").trim();
  return line.length > MAX_QUOTE ? `${line.slice(0, MAX_QUOTE - 1)}…` : line;
}
