// One tool call: a line while it is folded; its arguments, progress and result when it is not.

import { asJson, copyButton, el, icon, setText } from "./dom.js";
import { partNode } from "./parts.js";
import { visible } from "./unseen.js";
import { seconds } from "./words.js";

const STATES = {
  running: "running",
  waiting: "waiting for permission",
  done: "done",
  failed: "failed",
  unknown: "no result",
};
const PICTURES = { waiting: "shield", done: "check", failed: "cross" };

export class ToolCard {
  #state = el("span.tool-state", { "aria-hidden": "true" });
  #heard = el("span.unseen");
  #time = el("span.tool-time");
  #progress = el("div.tool-progress", { hidden: true });
  #result = el("div.tool-result", { hidden: true });
  #begun = performance.now();
  #timer = null;

  constructor({ id, name, arguments: given, unreadable }, server) {
    this.id = id;
    this.name = name;
    const said = unreadable === undefined ? asJson(given ?? {}) : visible(unreadable);
    const isEmpty = unreadable === undefined && Object.keys(given ?? {}).length === 0;
    const summary = el("summary", {},
      this.#state,
      el("span.tool-name", {}, visible(name)),
      server ? el("span.tool-server", {}, el("span.unseen", {}, "of "), visible(server)) : null,
      el("span.tool-brief", { "aria-hidden": "true" }, isEmpty ? "" : brief(given, unreadable)),
      this.#time,
      this.#heard,
      icon("chevron"));
    const parts = isEmpty ? el("p.quiet", {}, "No arguments") : section("Arguments", said);
    this.element = el("details.tool", {}, summary, el("div.tool-inside", {}, parts, this.#progress, this.#result));
    this.#set("running");
  }

  get isOver() {
    return !["running", "waiting"].includes(this.element.dataset.state);
  }

  /** Show that it runs and for how long; only for a call that is running now. */
  run() {
    this.#begun = performance.now();
    this.#timer ??= setInterval(() => {
      const passed = (performance.now() - this.#begun) / 1000;
      if (this.element.dataset.state === "running" && passed >= 2) this.#time.textContent = `${Math.round(passed)} s`;
    }, 1000);
  }

  wait(isWaiting) {
    if (this.isOver) return;
    this.#begun = performance.now();
    this.#time.textContent = "";
    this.#set(isWaiting ? "waiting" : "running");
  }

  progress({ progress, total, message }) {
    const words = el("span", {}, visible(message ?? (total ? "" : String(progress))));
    this.#progress.hidden = false;
    this.#progress.replaceChildren(words);
    if (!total) return;
    const done = Math.min(progress, total);
    this.#progress.prepend(el("progress", { max: total, value: done, "aria-label": `Progress of ${this.name}` }));
    if (!this.isOver) this.#time.textContent = `${Math.floor((100 * done) / total)} %`;
  }

  /** Show what came of it: `success`, the content as a message has it, and how many seconds it took, if that is known. */
  finish({ success, content, duration }) {
    clearInterval(this.#timer);
    this.#set(success ? "done" : "failed");
    this.#time.textContent = duration === undefined ? "" : seconds(duration);
    this.#progress.hidden = true;
    this.#result.hidden = false;
    this.#result.replaceChildren(...parts(content, success));
  }

  /** The turn is over, and this never was. */
  leave() {
    clearInterval(this.#timer);
    if (this.isOver) return;
    this.#time.textContent = "";
    this.#set("unknown");
  }

  #set(state) {
    this.element.dataset.state = state;
    this.#state.replaceChildren(...(PICTURES[state] ? [icon(PICTURES[state])] : []));
    this.#heard.textContent = `, ${STATES[state]}`;
  }
}

function brief(given, unreadable) {
  if (unreadable !== undefined) return visible(unreadable.slice(0, 120));
  const pairs = Object.entries(given).map(([name, value]) => {
    return `${name}: ${typeof value === "string" ? value.slice(0, 120) : JSON.stringify(value).slice(0, 120)}`;
  });
  return visible(pairs.join(", ").slice(0, 200).replace(/\s+/g, " "));
}

function section(title, text, isFailure = false) {
  const pre = el("pre", { tabindex: "0", "aria-label": title });
  const head = el("div.tool-head", {}, el("h4", {}, title), copyButton(() => text, `Copy ${title.toLowerCase()}`));
  const whole = el("section", { class: isFailure ? "failure" : null }, head, pre);
  setText(pre, text, whole);
  return whole;
}

function parts(content, success) {
  const title = success ? "Result" : "What went wrong";
  if (typeof content === "string") return [section(title, pretty(content), !success)];
  return content.map((part) => {
    return part.type === "text" ? section(title, pretty(part.text), !success) : partNode(part, "Image of the tool's result");
  });
}

/** Lay out JSON, as most tools answer in it; anything else stays as it is. */
function pretty(text) {
  if (!/^\s*[[{]/.test(text) || text.length > 200_000) return visible(text);
  try {
    return asJson(JSON.parse(text));
  } catch {
    return visible(text);
  }
}
