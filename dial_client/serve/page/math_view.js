// Formulas as MathML, by KaTeX, which is loaded with the first formula. Until then, and for an invalid formula, the text of
// the formula is shown. KaTeX creates elements here, no markup; without HTML output it needs neither fonts nor styles.

import { el } from "./dom.js";

const MAX_TEX = 5_000;
/** Depth of elements: the layout of deeper formulas may fail in the browser. */
const MAX_DEPTH = 60;

/** Macros that a formula defines: with them a short text may become millions of elements. */
const DEFINITION = /\\(?:[egx]?def|g?let|futurelet|(?:re)?newcommand|providecommand)(?![a-z])/i;
/** Expansions of macros; and characters of all expansions together, for a formula that defines macros. */
const MAX_EXPAND = 300;
const MAX_EXPANDED = 20_000;

const OPTIONS = { output: "mathml", throwOnError: true, trust: false, strict: "ignore", maxSize: 20 };

let library = null;

/** Return the element of a formula. */
export function renderMath(tex, isDisplay) {
  const element = el(isDisplay ? "span.math.display" : "span.math", {}, el("code", {}, tex));
  if (tex.length <= MAX_TEX) loadLibrary().then((katex) => katex && typeset(element, tex, isDisplay, katex));
  return element;
}

/** Load KaTeX. Formulas that were rendered before are typeset when the promise resolves. */
export function loadLibrary() {
  library ??= import("./vendor/katex/katex.min.js").then(() => globalThis.katex, () => null);
  return library;
}

function typeset(element, tex, isDisplay, katex) {
  const formula = document.createElement("span");
  const limit = DEFINITION.test(tex) ? Math.floor(MAX_EXPANDED / tex.length) : MAX_EXPAND;
  try {
    katex.render(tex, formula, { ...OPTIONS, maxExpand: Math.min(limit, MAX_EXPAND), displayMode: isDisplay });
  } catch (error) {
    element.title = String(error?.message ?? error).slice(0, 200);
    return;
  }
  if (measureDepth(formula) <= MAX_DEPTH) element.replaceChildren(...formula.childNodes);
}

function measureDepth(root) {
  let level = [root];
  let depth = 0;
  while (level.length && depth <= MAX_DEPTH) {
    level = level.flatMap((element) => [...element.children]);
    depth += 1;
  }
  return depth;
}
