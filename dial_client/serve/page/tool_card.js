// The card of a tool call: one line, which unfolds to the arguments, progress and result.

import { createAppFrame } from "./app_services.js";
import { toJson, createCopyButton, el, createIcon, setText } from "./dom.js";
import { renderPart } from "./content_parts.js";
import { parseJson, toPlain } from "./exact_json.js";
import { escapeInvisible } from "./invisible_characters.js";
import { translate } from "./language.js";
import { formatDuration } from "./descriptions.js";

const STATES = {
  running: translate("call.running"),
  waiting: translate("call.waiting"),
  done: translate("call.done"),
  failed: translate("call.failed"),
  background: translate("call.background"),
  unknown: translate("call.unknown"),
};
const ICONS = { waiting: "shield", done: "check", failed: "cross" };

export class ToolCard {
  #state = el("span.tool-state", { "aria-hidden": "true" });
  #spokenState = el("span.visually-hidden");
  #time = el("span.tool-time");
  #preview = el("span.tool-preview", { "aria-hidden": "true" });
  #previewText = "";
  #progress = el("div.tool-progress", { hidden: true });
  /** The calls of an agent or a program, which are cards of their own: by their ids, unique within a round of the agent. */
  #inner = new Map();
  #innerCalls = el("div.agent-calls", { hidden: true });
  #result = el("div.tool-result", { hidden: true });
  #startedAt = performance.now();
  #timer = null;
  #details;
  #app = null;

  constructor({ id, name, arguments: args, unreadable }, server) {
    this.id = id;
    this.name = name;
    // A program is shown as it was written, and not as a string of JSON.
    const plain = unreadable ?? (name === "run_code" && !server && typeof args?.code === "string" ? args.code : null);
    const text = plain === null ? toJson(args ?? {}) : escapeInvisible(plain);
    const isEmpty = unreadable === undefined && Object.keys(args ?? {}).length === 0;
    const isKnown = args !== null;
    this.#previewText = isEmpty ? "" : previewArguments(args, unreadable);
    this.#preview.textContent = this.#previewText;
    const spokenOf = el("span.visually-hidden", {}, translate("call.of"));
    const summary = el("summary", {},
      this.#state,
      el("span.tool-name", {}, ...separateWords(escapeInvisible(name))),
      server ? el("span.tool-server", {}, spokenOf, escapeInvisible(server)) : null,
      this.#preview,
      this.#time,
      this.#spokenState,
      createIcon("chevron"));
    const given = isEmpty ? el("p.quiet", {}, translate("call.no_arguments")) : renderSection("arguments", text);
    const parts = isKnown ? given : null;
    const body = el("div.tool-body", {}, parts, this.#innerCalls, this.#progress, this.#result);
    this.#details = el("details.tool", {}, summary, body);
    this.element = el("div.call", {}, this.#details);
    this.#setState("running");
  }

  get isFinished() {
    return !["running", "waiting"].includes(this.#details.dataset.state);
  }

  /** Show the app of the call below the card. */
  openApp(app) {
    if (this.#app) return;
    this.#app = createAppFrame(app, this.element);
  }

  /** Show for how long the call has been running. */
  startTimer() {
    this.#startedAt = performance.now();
    this.#timer ??= setInterval(() => {
      const elapsed = (performance.now() - this.#startedAt) / 1000;
      if (this.#details.dataset.state === "running" && elapsed >= 2) this.#time.textContent = `${Math.round(elapsed)} s`;
    }, 1000);
  }

  /** Show an event of the agent that the call has called: {event, data}, as of a turn. */
  handleAgent({ event, data }) {
    if (event === "tool_call") this.addInner(data, data.server).startTimer();
    else if (event === "tool_result") this.#inner.get(data.tool_call_id)?.finish({ ...data, duration: data.duration_s });
    else this.#inner.get(data.id)?.handleAgent(data);
  }

  /** Show the stored calls of the agent or program that the call has started. */
  addInnerCalls(calls) {
    for (const call of calls) {
      const card = this.addInner(call, call.server);
      card.addInnerCalls(call.calls ?? []);
      if (call.content === undefined) card.stop();
      else card.finish({ success: !call.is_error, content: call.content, duration: call.duration_s });
    }
  }

  /** Show a call that an agent or program makes, or a program of the agent; return its card. */
  addInner(call, server) {
    const card = new ToolCard(call, server);
    this.#inner.set(call.id, card);
    const calls = (this.#inner.get(call.parent) ?? this).#innerCalls;
    calls.hidden = false;
    calls.append(card.element);
    return card;
  }

  /** Return the last call of the agent or program with an id; undefined if there is none. */
  findInner(id) {
    return this.#inner.get(id);
  }

  /** Show whether the call waits for permission. */
  setWaiting(isWaiting) {
    if (this.isFinished) return;
    this.#startedAt = performance.now();
    this.#time.textContent = "";
    this.#setState(isWaiting ? "waiting" : "running");
  }

  showProgress(event) {
    const { progress, total, message } = toPlain(event);
    const text = el("span", {}, escapeInvisible(message ?? (total ? "" : String(progress))));
    this.#progress.hidden = false;
    this.#progress.replaceChildren(text);
    // A folded card shows the latest message in place of the arguments, and a bar.
    if (message && !this.isFinished) this.#preview.textContent = escapeInvisible(message);
    if (!total) return;
    const done = Math.min(progress, total);
    const label = translate("call.progress", { tool: this.name });
    this.#progress.prepend(el("progress", { max: total, value: done, "aria-label": label }));
    if (this.isFinished) return;
    this.#time.textContent = `${Math.floor((100 * done) / total)} %`;
    this.#details.firstElementChild.style.setProperty("--progress", done / total);
  }

  /** Show the result: `success`, the `content` of its message, `duration` in seconds if it is known, and its `app`. */
  finish({ success, content, duration, app, background }) {
    clearInterval(this.#timer);
    this.#setState(background ? "background" : success ? "done" : "failed");
    this.#time.textContent = duration === undefined ? "" : formatDuration(duration);
    this.#progress.hidden = true;
    this.#result.hidden = false;
    this.#result.replaceChildren(...renderResult(content, success));
    if (app?.result) this.openApp(app);
    if (app?.result) this.#app.then((frame) => frame?.setResult(app.result));
    else this.#cancelApp("The call has no result.");
  }

  /** Mark a call without a result when its turn is over. */
  stop() {
    clearInterval(this.#timer);
    for (const card of this.#inner.values()) card.stop();
    if (this.isFinished) return;
    this.#time.textContent = "";
    this.#setState("unknown");
    this.#cancelApp("The call was stopped.");
  }

  #cancelApp(reason) {
    this.#app?.then((frame) => frame?.cancel(reason));
  }

  #setState(state) {
    this.#details.dataset.state = state;
    if (this.isFinished) {
      this.#preview.textContent = state === "background" ? STATES.background : this.#previewText;
      this.#details.firstElementChild.style.removeProperty("--progress");
    }
    this.#state.replaceChildren(...(ICONS[state] ? [createIcon(ICONS[state])] : []));
    this.#spokenState.textContent = translate("call.state", { state: STATES[state] });
  }
}

function previewArguments(args, unreadable) {
  if (unreadable !== undefined) return escapeInvisible(unreadable.slice(0, 120));
  const pairs = Object.entries(args).map(([name, value]) => {
    return `${name}: ${typeof value === "string" ? value.slice(0, 120) : JSON.stringify(value).slice(0, 120)}`;
  });
  return escapeInvisible(pairs.join(", ").slice(0, 200).replace(/\s+/g, " "));
}

const SECTIONS = {
  arguments: { title: translate("call.arguments"), copy: translate("call.copy_arguments") },
  result: { title: translate("call.result"), copy: translate("call.copy_result") },
  error: { title: translate("call.error"), copy: translate("call.copy_error") },
};

/** Return the nodes of a name in which a line may break after each word, as in "show_|counter". */
function separateWords(name) {
  return name.split(/(?<=[._/-])/).flatMap((word, at) => (at ? [el("wbr"), word] : [word]));
}

function renderSection(kind, text) {
  const { title, copy } = SECTIONS[kind];
  const pre = el("pre", { tabindex: "0", "aria-label": title });
  const head = el("div.tool-head", {}, el("h3", {}, title), createCopyButton(() => text, copy));
  const section = el("section", { class: kind === "error" ? "failure" : null }, head, pre);
  setText(pre, text, section);
  return section;
}

/** Return the elements that show the content of a result. */
export function renderResult(content, success) {
  const kind = success ? "result" : "error";
  if (typeof content === "string") return [renderSection(kind, formatResult(content))];
  return content.map((part) => {
    if (part.type === "text") return renderSection(kind, formatResult(part.text));
    return renderPart(part, translate("call.image"));
  });
}

/** Indent a result that is JSON; other text is unchanged. */
function formatResult(text) {
  if (!/^\s*[[{]/.test(text) || text.length > 200_000) return escapeInvisible(text);
  try {
    return toJson(parseJson(text, { keepsForm: true }));
  } catch {
    return escapeInvisible(text);
  }
}
