// The view of a turn: the user's message and everything that follows it. Fed by events or by stored messages.

import { createCopyButton, formatNumber, el, createIcon, createIconButton, announce } from "./dom.js";
import { isText, renderPart, toText } from "./content_parts.js";
import { MarkdownView } from "./markdown_view.js";
import { renderUserMessage } from "./user_message.js";
import { insertMarkers, renderSources } from "./sources.js";
import { ToolCard } from "./tool_card.js";
import { escapeInvisible } from "./invisible_characters.js";
import { describeStopReason, describeUsage } from "./strings.js";

/** Characters of a finished answer that screen readers announce. */
const MAX_ANNOUNCED = 2_000;

/** Replace the view of a text by one with the numbers of its sources. */
function markSources(view, citations) {
  const root = el("div.prose");
  view.root.replaceWith(root);
  const marked = new MarkdownView(root);
  marked.append(insertMarkers(view.text, citations));
  marked.finish();
  return marked;
}

export class TurnView {
  #answer = el("div.answer");
  #cards = new Map();
  #text = null;
  #texts = [];
  #reasoning = null;
  #cost = "";
  #actions;
  #number;
  /** Number of tool calls that are shown. */
  calls = 0;

  /**
   * `message`: as in user_message.js, or null if the turn has no user message. `number`: the number of the user message,
   * from 0. `actions`: {fork(number), edit(number, message), resend(message)}.
   */
  constructor(message, number, actions) {
    this.message = message;
    this.#number = number;
    this.#actions = actions;
    const speaker = el("span.visually-hidden", {}, "You said: ");
    const user = message && el("div.user", {}, speaker, ...renderUserMessage(message), this.#renderUserButtons());
    const label = message ? `Message ${number + 1} and its answer` : "Beginning";
    this.element = el("section.turn", { "aria-label": label }, user, this.#answer);
  }

  get text() {
    return this.#texts.map((view) => view.text.trim()).filter(Boolean).join("\n\n");
  }

  addText(text) {
    this.#endReasoning();
    if (!this.#text) {
      const root = el("div.prose");
      this.#answer.append(root);
      this.#text = new MarkdownView(root);
      this.#texts.push(this.#text);
    }
    this.#text.append(text);
  }

  addReasoning(text) {
    this.#endText();
    if (!this.#reasoning) {
      const body = el("div.reasoning-text");
      const title = el("span", {}, "Thinking…");
      const element = el("details.reasoning", {}, el("summary", {}, title, createIcon("chevron")), body);
      this.#reasoning = { body, title };
      this.#answer.append(element);
    }
    this.#reasoning.body.append(escapeInvisible(text));
  }

  addCall(call, server, { isLive = false } = {}) {
    this.#endText();
    this.#endReasoning();
    const card = new ToolCard(call, server);
    this.#cards.set(call.id, card);
    this.calls += 1;
    this.#answer.append(card.element);
    if (isLive) card.startTimer();
  }

  card(id) {
    return this.#cards.get(id);
  }

  /** Show images and files of the answer. */
  addMedia(parts) {
    this.#endText();
    this.#answer.append(...parts.map((part) => renderPart(part, "Image in the answer")));
  }

  /** Number the sources in the last text, if that is the answer of `length` code points, and list them behind it. */
  addSources(citations, length) {
    if (!citations?.length) return;
    this.#endText();
    const view = this.#texts.at(-1);
    if (view && Array.from(view.text).length === length) this.#texts.splice(-1, 1, markSources(view, citations));
    this.#answer.append(renderSources(citations));
  }

  addNote(text, kind = "note") {
    this.#endText();
    this.#answer.append(el(`p.${kind}`, {}, escapeInvisible(text)));
  }

  addFailure(text) {
    this.#endText();
    const onclick = () => this.#actions.resend(this.message);
    const resend = this.message && el("button.text-button", { type: "button", onclick }, "Ask again");
    this.#answer.append(el("div.failed", { role: "alert" }, el("p", {}, escapeInvisible(text)), resend));
  }

  /** Show an event of the turn's stream. */
  handle({ name, data }) {
    switch (name) {
      case "message":
        if (data.choices?.[0]?.delta?.content) this.addText(data.choices[0].delta.content);
        break;
      case "reasoning":
        this.addReasoning(data.text);
        break;
      case "tool_call":
        this.addCall(data, data.server, { isLive: true });
        break;
      case "media":
        this.addMedia(data.content);
        break;
      case "tool_progress":
        this.card(data.id)?.showProgress(data);
        break;
      case "tool_result":
        this.card(data.tool_call_id)?.finish({ ...data, duration: data.duration_s });
        break;
      case "error":
        this.addFailure(data.message);
        break;
      case "done":
        this.addSources(data.citations, data.text_chars);
        for (const note of data.notes ?? []) this.addNote(note);
        if (describeStopReason(data.stop_reason)) this.addNote(describeStopReason(data.stop_reason), "stopped");
        this.#cost = describeUsage(data);
        break;
    }
  }

  /** Show a stored message of the model, a tool or the system. */
  addMessage(message, serverOf) {
    if (message.role === "tool") {
      this.card(message.tool_call_id)?.finish({ success: !message.is_error, content: message.content });
      return;
    }
    const { content } = message;
    const text = toText(typeof content === "string" || message.role === "system" ? content : content.filter(isText));
    if (message.role === "system") return this.addNote(`Instructions: ${text.slice(0, 500)}`);
    if (text.trim()) this.addText(text);
    this.#endText();
    if (typeof message.content !== "string") this.addMedia(message.content.filter((part) => !isText(part)));
    this.addSources(message.citations, Array.from(text).length);
    for (const call of message.tool_calls ?? []) this.addCall(call, serverOf(call.name));
  }

  /** End the turn: nothing will be added. */
  finish() {
    this.#endText();
    this.#endReasoning();
    for (const card of this.#cards.values()) card.stop();
    this.element.querySelector(".turn-foot")?.remove();
    if (!this.text && !this.#cards.size) return;
    const onclick = () => this.#actions.fork(this.#number);
    const fork = createIconButton("fork", "Continue from here in a new conversation", onclick);
    const copy = createCopyButton(() => this.text, "Copy the answer");
    this.element.append(el("div.turn-foot", {}, this.text ? copy : null, fork, el("span.quiet", {}, this.#cost)));
  }

  announceAnswer() {
    const { text } = this;
    const isLong = text.length > MAX_ANNOUNCED;
    const beginning = `${text.slice(0, MAX_ANNOUNCED)}… ${formatNumber(text.length)} characters in total.`;
    announce(isLong ? beginning : text);
  }

  #renderUserButtons() {
    const onclick = () => this.#actions.edit(this.#number, this.message);
    const edit = createIconButton("edit", "Edit this message in a new conversation", onclick);
    return el("div.user-foot", {}, createCopyButton(() => this.message.text, "Copy your message"), edit);
  }

  #endText() {
    this.#text?.finish();
    this.#text = null;
  }

  #endReasoning() {
    if (this.#reasoning) this.#reasoning.title.textContent = "Thoughts";
    this.#reasoning = null;
  }
}
