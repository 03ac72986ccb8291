// The sources of an answer: numbers in its text, and a list after it. The same rules as in citations.py.

import { el } from "./dom.js";
import { escapeInvisible } from "./invisible_characters.js";
import { parseSafeUrl } from "./markdown_inline.js";
import { translate } from "./language.js";

const MAX_QUOTE = 120;

/** A number in a text, as `insertMarkers` and many models write it. */
const MARKER = /\[(\d{1,4})\]/g;

/** Elements in which a number in brackets is not a marker. */
const NO_MARKERS = "a, code, pre, math, .math";

let lists = 0;

/** Return the citations grouped by their source, in the order of the sources' numbers. */
function groupBySource(citations) {
  const groups = new Map();
  for (const citation of citations) {
    if (!groups.has(citation.source)) groups.set(citation.source, []);
    groups.get(citation.source).push(citation);
  }
  return [...groups.values()];
}

/** Return the text with "[1]" after each cited part, unless the model has written it. Spans count code points. */
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
  lists += 1;
  const items = groupBySource(citations).map((group, at) => {
    const { name, url, quote } = describeSource(group);
    const attributes = { href: url?.href, rel: "noopener noreferrer nofollow", target: "_blank", dir: "auto" };
    return el("li", { id: `source-${lists}-${at + 1}`, tabindex: "-1" },
      url ? el("a", attributes, name) : el("bdi", {}, name),
      url ? el("span.quiet", { dir: "ltr" }, ` ${url.host}`) : null,
      quote ? el("q.quiet", { dir: "auto" }, quote) : null);
  });
  const title = translate("sources.title");
  return el("section.sources", { "aria-label": title }, el("h3", {}, title), el("ol", {}, ...items));
}

function describeSource(group) {
  const first = (name) => group.find((citation) => citation[name])?.[name] ?? "";
  const address = parseSafeUrl(first("url"));
  const url = address?.protocol === "mailto:" ? null : address;
  const locations = [...new Set(group.map(({ location }) => location).filter(Boolean))];
  const name = [first("title") || (url ? url.host : group[0].source), ...locations].join(", ");
  return { name: escapeInvisible(name), url, quote: escapeInvisible(shorten(first("quote"))) };
}

/** Make the numbers in a rendered text links to the items of its list of sources, and the items lead back to the text. */
export function linkMarkers(root, list) {
  const items = [...list.querySelectorAll("li")];
  for (const text of findTexts(root)) {
    const parts = text.data.split(MARKER);
    if (parts.length === 1) continue;
    // Every second part is the number of a marker.
    text.replaceWith(...parts.map((part, at) => {
      if (at % 2 === 0) return part;
      const item = items[Number(part) - 1];
      return item ? createMarker(part, item) : `[${part}]`;
    }));
  }
}

function findTexts(root) {
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  const texts = [];
  while (walker.nextNode()) if (!walker.currentNode.parentElement.closest(NO_MARKERS)) texts.push(walker.currentNode);
  return texts;
}

function createMarker(number, item) {
  const label = `[${number}] ${item.firstElementChild.textContent}`;
  const marker = createJump(item, { role: "doc-noteref", "aria-label": label, title: label }, `[${number}]`);
  if (!item.querySelector(".back")) {
    marker.id = `${item.id}-text`;
    const back = translate("sources.back");
    item.append(" ", createJump(marker, { class: "back", role: "doc-backlink", "aria-label": back, title: back }, "↩"));
  }
  return el("sup.marker", {}, marker);
}

/** Return a link within the page. Its address is for the exported file: on the page it would name a conversation. */
function createJump(target, attributes, text) {
  const onclick = (event) => {
    event.preventDefault();
    target.scrollIntoView({ block: "nearest" });
    target.focus();
  };
  return el("a", { href: `#${target.id}`, onclick, ...attributes }, text);
}

function shorten(text) {
  const line = text.replace(/\s+/g, " ").trim();
  return line.length > MAX_QUOTE ? `${line.slice(0, MAX_QUOTE - 1)}…` : line;
}
