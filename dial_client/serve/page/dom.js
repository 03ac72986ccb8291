// Making elements. Text goes in as text nodes only: nothing here, or in any other module, parses markup.

import { visible } from "./unseen.js";

/**
 * Make an element: el("button.small", {type: "button", onclick: act}, "Save").
 * An attribute that is false, null or undefined is left out; true is an attribute without a value.
 */
export function el(what, attributes = {}, ...children) {
  const [tag, ...classes] = what.split(".");
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

export const byId = (id) => document.getElementById(id);

const SHAPES = {
  menu: "M4 7h16M4 12h16M4 17h16",
  plus: "M12 5v14M5 12h14",
  more: "M6 12h.01M12 12h.01M18 12h.01",
  send: "M12 19V5M6 11l6-6 6 6",
  stop: "M8 8h8v8H8z",
  copy: "M9 9h10v11H9zM5 15V4h10",
  check: "M5 12.5l4.5 4.5L19 7.5",
  cross: "M6 6l12 12M18 6L6 18",
  attach: "M20 11l-8.5 8.5a5 5 0 0 1-7-7L13 4a3.4 3.4 0 0 1 4.8 4.8L9.5 17a1.7 1.7 0 0 1-2.4-2.4L15 6.8",
  file: "M6 3h8l4 4v14H6zM14 3v4h4",
  fork: "M6 4v6a4 4 0 0 0 4 4h8M14 10l4 4-4 4",
  edit: "M5 19l1-4L16 5l3 3L9 18zM14 7l3 3",
  down: "M12 5v14M6 13l6 6 6-6",
  theme: "M12 4a8 8 0 1 0 8 8 6 6 0 0 1-8-8z",
  tool: "M14.5 6.5a4 4 0 0 0-5 5L4 17l3 3 5.5-5.5a4 4 0 0 0 5-5L15 12l-3-3z",
  chevron: "M9 6l6 6-6 6",
  servers: "M4 5h16v6H4zM4 13h16v6H4zM7.5 8h.01M7.5 16h.01",
  image: "M4 5h16v14H4zM4 16l5-5 4 4 3-3 4 4M15 9h.01",
  shield: "M12 3l7 3v5c0 5-3 8-7 10-4-2-7-5-7-10V6z",
  question: "M9 9a3 3 0 1 1 4 3c-1 .5-1 1-1 2M12 17.5h.01",
};

/** Draw one of the small pictures. It says nothing: what it stands on has a name of its own. */
export function icon(name) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  svg.setAttribute("class", `icon icon-${name}`);
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("aria-hidden", "true");
  path.setAttribute("d", SHAPES[name]);
  svg.append(path);
  return svg;
}

/** Make a button with words on it; `style` is more classes, such as ".primary". */
export function button(words, onclick, style = "") {
  return el(`button.button${style}`, { type: "button", onclick }, words);
}

/** Make a button that is only a picture; its name is read aloud, and shown on hovering. */
export function iconButton(name, label, onclick, extra = "") {
  return el(`button.icon-button${extra}`, { type: "button", "aria-label": label, title: label, onclick }, icon(name));
}

/** Make a button that puts a text on the clipboard, and says so. `text` is a function: it may still grow. */
export function copyButton(text, label = "Copy") {
  const button = iconButton("copy", label, async () => {
    const done = await navigator.clipboard.writeText(text()).then(() => true, () => false);
    button.replaceChildren(icon(done ? "check" : "cross"));
    button.title = done ? "Copied" : "The browser did not allow it";
    say(button.title);
    setTimeout(() => {
      button.replaceChildren(icon("copy"));
      button.title = label;
    }, 1500);
  });
  return button;
}

/** Have a screen reader say something: when it is free, or at once. */
export function say(text, { atOnce = false } = {}) {
  const region = byId(atOnce ? "said-at-once" : "said");
  // The same text twice is only heard twice if the region changes in between.
  region.replaceChildren();
  setTimeout(() => region.replaceChildren(text), 50);
}

/** Write a value for a person to check before it is sent anywhere. */
export function asJson(value) {
  return visible(JSON.stringify(value, null, 2) ?? "");
}

const LONG = 60_000;
const BEGINNING = 20_000;

/** Put a text into an element; of a very long one the beginning, with a button for the rest. */
export function setText(element, text, where = element.parentElement ?? element) {
  if (text.length <= LONG) {
    element.replaceChildren(text);
    return;
  }
  const all = el("button.text-button", {
    type: "button",
    onclick: () => {
      element.replaceChildren(text);
      all.remove();
    },
  }, `Show all of it (${count(text.length)} characters)`);
  element.replaceChildren(`${text.slice(0, BEGINNING)}…`);
  where.append(all);
}

export const isLong = (text) => text.length > LONG;

export const count = (number) => number.toLocaleString("en");
