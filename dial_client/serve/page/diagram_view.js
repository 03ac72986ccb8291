// Diagrams: a sandboxed frame draws them with Mermaid, and the page shows the result as an image. The frame is created for
// the first diagram; it has an opaque origin and no network, and is removed if it takes too long.

import { createCopyButton, el } from "./dom.js";
import { translate } from "./language.js";

const MAX_SOURCE = 20_000;
const MAX_SVG = 3_000_000;
/** Milliseconds for the frame to load, and for one diagram. */
const LOAD_LIMIT = 30_000;
const DRAW_LIMIT = 10_000;

const isDark = () => document.documentElement.dataset.theme === "dark";

let frame = null;
let nextId = 1;
/** Diagrams that wait for the frame: {id, source, onDrawn(svg)}. The first one is being drawn. */
const queue = [];
let timer;
/** The diagrams on the page, which are drawn again when the theme changes: {block, draw}. */
let shown = [];

/** Return the block of a diagram: its image, and its source, which a button shows and hides. */
export function renderDiagram(source) {
  const pre = el("pre", { tabindex: "0", dir: "ltr" }, el("code", {}, source));
  const label = translate("diagram");
  const picture = el("div.diagram-picture", { tabindex: "0", role: "group", "aria-label": label, hidden: true });
  const toggle = el("button.text-button", {
    type: "button",
    "aria-pressed": "true",
    hidden: true,
    onclick: () => {
      pre.hidden = !pre.hidden;
      toggle.setAttribute("aria-pressed", String(!pre.hidden));
    },
  }, translate("diagram.source"));
  const copy = createCopyButton(() => source, translate("diagram.copy"));
  const head = el("div.code-head", {}, el("span", {}, translate("diagram.kind")), el("span.code-buttons", {}, toggle, copy));
  const block = el("div.code.diagram", {}, head, picture, pre);
  let isFirst = true;
  const draw = () => request(source, (svg) => {
    if (!svg) return;
    const alt = translate("diagram.alt", { text: source.trim().split("\n", 1)[0].slice(0, 100) });
    const onload = () => {
      picture.hidden = false;
      toggle.hidden = false;
      if (isFirst) toggle.click();
      isFirst = false;
    };
    const src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`;
    picture.replaceChildren(el("img", { src, alt, onload }));
  });
  if (source.length <= MAX_SOURCE) {
    shown.push({ block, draw });
    observer.observe(block);
  }
  return block;
}

const observer = globalThis.IntersectionObserver && new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries) {
    if (!isIntersecting) continue;
    observer.unobserve(target);
    shown.find(({ block }) => block === target)?.draw();
  }
}, { rootMargin: "600px" });

globalThis.MutationObserver && new MutationObserver(() => {
  shown = shown.filter(({ block }) => block.isConnected);
  for (const { block, draw } of shown) if (block.querySelector("img")) draw();
}).observe(document.documentElement, { attributeFilter: ["data-theme"] });

function request(source, onDrawn) {
  queue.push({ id: nextId++, source, onDrawn });
  if (queue.length === 1) startNext();
}

function startNext() {
  if (!queue.length) return;
  if (!frame) return createFrame();
  const { id, source } = queue[0];
  timer = setTimeout(() => finish(null), DRAW_LIMIT);
  frame.contentWindow.postMessage({ id, source, isDark: isDark() }, "*");
}

function createFrame() {
  frame = el("iframe.diagram-frame", {
    sandbox: "allow-scripts", src: "assets/diagram_frame.html", title: translate("diagram"),
    tabindex: "-1", "aria-hidden": "true",
  });
  timer = setTimeout(() => finish(null), LOAD_LIMIT);
  document.body.append(frame);
}

globalThis.addEventListener?.("message", ({ source: sender, data }) => {
  if (!frame || sender !== frame.contentWindow || !queue.length) return;
  if (data?.isReady) {
    clearTimeout(timer);
    startNext();
  } else if (data?.id === queue[0].id) {
    finish(data.svg, { isAnswered: true });
  }
});

function finish(svg, { isAnswered = false } = {}) {
  clearTimeout(timer);
  if (!isAnswered) {
    frame.remove();
    frame = null;
  }
  const isImage = typeof svg === "string" && svg.length <= MAX_SVG && svg.startsWith("<svg");
  queue.shift().onDrawn(isImage ? svg : null);
  startNext();
}
