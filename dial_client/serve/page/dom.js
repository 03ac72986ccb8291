// Creates elements. Text becomes text nodes: no module of the page parses markup.

import { escapeInvisible } from "./invisible_characters.js";
import { translate } from "./language.js";

/**
 * Create an element: el("button.small", {type: "button", onclick: save}, "Save").
 * Attributes that are false, null or undefined are left out; true is an attribute without a value.
 */
export function el(selector, attributes = {}, ...children) {
  const [tag, ...classes] = selector.split(".");
  const element = document.createElement(tag);
  if (classes.length) element.className = classes.join(" ");
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** Make `children` the children of an element. Children that stay in order are not touched: they keep focus and clicks. */
export function placeChildren(parent, children) {
  const kept = new Set(children);
  for (const child of [...parent.childNodes]) if (!kept.has(child)) child.remove();
  children.forEach((child, at) => {
    if (parent.childNodes[at] !== child) parent.insertBefore(child, parent.childNodes[at] ?? null);
  });
}

/** Create a fold, which is open if its key is in the set `open`. */
export function createFold(key, open, label, ...children) {
  const summary = el("summary", {}, label, createIcon("chevron"));
  return el("details.more", { "data-key": key, open: open.has(key) }, summary, ...children);
}

export const byId = (id) => document.getElementById(id);

const ICON_PATHS = {
  menu: "M4 7h16M4 12h16M4 17h16",
  plus: "M12 5v14M5 12h14",
  more: "M6 12h.01M12 12h.01M18 12h.01",
  send: "M12 19V5M6 11l6-6 6 6",
  stop: "M8 8h8v8H8z",
  copy: "M9 9h10v11H9zM5 15V4h10",
  link: "M10 14a4 4 0 0 1 0-6l3-3a4 4 0 0 1 6 6l-1.5 1.5M14 10a4 4 0 0 1 0 6l-3 3a4 4 0 0 1-6-6l1.5-1.5",
  search: "M11 4a7 7 0 1 0 0 14 7 7 0 0 0 0-14zM16 16l4 4",
  up: "M6 15l6-6 6 6",
  check: "M5 12.5l4.5 4.5L19 7.5",
  cross: "M6 6l12 12M18 6L6 18",
  attach: "M20 11l-8.5 8.5a5 5 0 0 1-7-7L13 4a3.4 3.4 0 0 1 4.8 4.8L9.5 17a1.7 1.7 0 0 1-2.4-2.4L15 6.8",
  file: "M6 3h8l4 4v14H6zM14 3v4h4",
  fork: "M6 4v6a4 4 0 0 0 4 4h8M14 10l4 4-4 4",
  edit: "M5 19l1-4L16 5l3 3L9 18zM14 7l3 3",
  back: "M15 6l-6 6 6 6",
  again: "M19 12a7 7 0 1 1-2-5M19 4v4h-4",
  forward: "M5 6l7 6-7 6zM13 6l6 6-6 6z",
  trash: "M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13M10.5 11v5M13.5 11v5",
  sliders: "M4 8h9M17 8h3M4 16h3M11 16h9M15 6v4M9 14v4",
  down: "M12 5v14M6 13l6 6 6-6",
  theme: "M12 4a8 8 0 1 0 8 8 6 6 0 0 1-8-8z",
  tool: "M14.5 6.5a4 4 0 0 0-5 5L4 17l3 3 5.5-5.5a4 4 0 0 0 5-5L15 12l-3-3z",
  chevron: "M9 6l6 6-6 6",
  servers: "M4 5h16v6H4zM4 13h16v6H4zM7.5 8h.01M7.5 16h.01",
  image: "M4 5h16v14H4zM4 16l5-5 4 4 3-3 4 4M15 9h.01",
  shield: "M12 3l7 3v5c0 5-3 8-7 10-4-2-7-5-7-10V6z",
  bell: "M6 17V11a6 6 0 0 1 12 0v6l1.5 1.5h-15zM10 21h4",
  question: "M9 9a3 3 0 1 1 4 3c-1 .5-1 1-1 2M12 17.5h.01",
};

/** Create an icon. Icons are hidden from screen readers: the element around an icon has a label. */
export function createIcon(name) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  svg.setAttribute("class", `icon icon-${name}`);
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("aria-hidden", "true");
  path.setAttribute("d", ICON_PATHS[name]);
  svg.append(path);
  return svg;
}

/** Create a button with a text; `classes` are further classes, such as ".primary". */
export function createButton(text, onclick, classes = "") {
  return el(`button.button${classes}`, { type: "button", onclick }, text);
}

/** Create a button with an icon; its label is the tooltip and the accessible name. */
export function createIconButton(name, label, onclick) {
  return el("button.icon-button", { type: "button", "aria-label": label, title: label, onclick }, createIcon(name));
}

/** Set the label of a button with an icon. */
export function setLabel(button, label) {
  button.setAttribute("aria-label", label);
  button.title = label;
}

/** Create a button that copies a text. `getText` is called on each click. */
export function createCopyButton(getText, label = translate("copy"), icon = "copy") {
  const button = createIconButton(icon, label, () => copy(button, getText, label, icon));
  return button;
}

/** Create a button with an icon and a label, which copies a text like `createCopyButton`. */
export function createTextCopyButton(text, getText, label) {
  const onclick = () => copy(button, getText, label);
  const button = el("button.text-button.copy-button", { type: "button", "aria-label": label, title: label, onclick },
    createIcon("copy"), text);
  return button;
}

async function copy(button, getText, label, icon = "copy") {
  const isCopied = await navigator.clipboard.writeText(getText()).then(() => true, () => false);
  button.firstElementChild.replaceWith(createIcon(isCopied ? "check" : "cross"));
  button.title = translate(isCopied ? "copied" : "copy.refused");
  announce(button.title);
  setTimeout(() => {
    button.firstElementChild.replaceWith(createIcon(icon));
    button.title = label;
  }, 1500);
}

/** Announce a text to screen readers; an urgent text interrupts them. */
export function announce(text, { isUrgent = false } = {}) {
  const region = byId(isUrgent ? "alerts" : "announcements");
  // A repeated text is announced again only if the region changes in between.
  region.replaceChildren();
  setTimeout(() => region.replaceChildren(text), 50);
}

/** Format a value as JSON, with invisible characters escaped. */
export function toJson(value) {
  return escapeInvisible(JSON.stringify(value, null, 2) ?? "");
}

/** Characters above which only the beginning of a text is shown at first. */
const LONG_TEXT = 60_000;
const BEGINNING = 20_000;

/** Set an element's text. Of a long text only the beginning is shown, with a button in `parent` for the rest. */
export function setText(element, text, parent = element.parentElement ?? element) {
  if (text.length <= LONG_TEXT) {
    element.replaceChildren(text);
    return;
  }
  const button = el("button.text-button", {
    type: "button",
    onclick: () => {
      element.replaceChildren(text);
      button.remove();
    },
  }, translate("characters.all", { count: text.length }));
  element.replaceChildren(`${text.slice(0, BEGINNING)}…`);
  parent.append(button);
}

export const isLong = (text) => text.length > LONG_TEXT;

/** Save a blob as a file that is named after a title. */
export function saveFile(blob, title, extension) {
  const url = URL.createObjectURL(blob);
  const name = title.replace(/[^\p{L}\p{N} _-]+/gu, " ").trim().slice(0, 60) || "conversation";
  el("a", { href: url, download: `${name}.${extension}` }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
