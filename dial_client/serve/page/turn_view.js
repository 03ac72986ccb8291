// The view of a turn: the user's message and everything that follows it. Fed by events or by stored messages.

import { createCopyButton, el, createIcon, createIconButton, announce } from "./dom.js";
import { ButtonRow } from "./button_row.js";
import { isText, renderPart, toText } from "./content_parts.js";
import { MarkdownView } from "./markdown_view.js";
import { createMessageLink } from "./deep_links.js";
import { renderEditor } from "./message_editor.js";
import { parseUserMessage, renderUserMessage } from "./user_message.js";
import { insertMarkers, linkMarkers, renderSources } from "./sources.js";
import { SpokenAnswer } from "./spoken_answer.js";
import { ToolCard } from "./tool_card.js";
import { escapeInvisible } from "./invisible_characters.js";
import { goesOn, readLateResult } from "./late_results.js";
import { toSteps } from "./stored_turns.js";
import { listVersions } from "./version_switcher.js";
import { translate } from "./language.js";
import { describeStopReason, describeUsage } from "./descriptions.js";

/** Stop reasons after which the answer can be continued. */
const CUT = [
  "truncated", "cancelled", "timeout", "max_depth", "token_budget", "cost_budget", "consecutive_errors", "repeated_calls",
];

/** Replace the view of a text by a view with the numbers of its sources, which link to the list. */
function markSources(view, citations, list) {
  const root = el("div.prose");
  view.root.replaceWith(root);
  const marked = new MarkdownView(root);
  marked.append(insertMarkers(view.text, citations));
  marked.finish();
  linkMarkers(root, list);
  return marked;
}

export class TurnView {
  #answer = el("div.answer");
  #cards = new Map();
  #text = null;
  #texts = [];
  #reasoning = null;
  #end = null;
  /** The agent that has the conversation; "" for the model. */
  #agent = "";
  #actions;
  #number;
  #user = null;
  /** Announces the text of the events. A conversation that is not open is silent. */
  #spoken = new SpokenAnswer((text) => this.element.isConnected && announce(text));
  /** Positions and versions, as stored_turns.js has them; null until the turn is stored. */
  #stored = null;
  #userButtons = new ButtonRow(".user-foot");
  #foot = new ButtonRow(".turn-foot");
  /** Number of tool calls that are shown. */
  calls = 0;

  /**
   * `message`: as in user_message.js, or null if the turn has no user message. `number`: the number of the user message,
   * from 0. `actions`: {fork(number), resend(message), edit(position, message), regenerate(position), continueAnswer(),
   * switchTo(position), remove(position, what)}.
   */
  constructor(message, number, actions) {
    this.message = message;
    this.#number = number;
    this.#actions = actions;
    this.#user = message && el("div.user");
    const label = message ? translate("turn.heading", { number: number + 1 }) : translate("turn.beginning");
    const heading = el("h2.visually-hidden", {}, label);
    this.element = el("section.turn", {}, heading, this.#user, this.#answer);
    this.#renderUser();
  }

  /** True while the user edits the message. */
  get isEdited() {
    return Boolean(this.#user?.querySelector(".message-editor"));
  }

  get positions() {
    return this.#stored;
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
      const body = el("div.reasoning-text", { dir: "auto" });
      const title = el("span", {}, translate("turn.thinking"));
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

  /** Show a running call that a program makes, whose id is as unique as that of the program's own call. */
  #addInner(call) {
    const card = this.#cards.get(call.parent).addInner(call, call.server);
    this.#cards.set(call.id, card);
    card.startTimer();
  }

  /** Return the card of a call. `agentCalls`: the ids of the calls of the agents that lead to it. */
  card(id, agentCalls = []) {
    const [first, ...others] = [...agentCalls, id];
    return others.reduce((card, inner) => card?.findInner(inner), this.#cards.get(first));
  }

  /** Show images and files of the answer. */
  addMedia(parts) {
    this.#endText();
    this.#answer.append(...parts.map((part) => renderPart(part, translate("answer.image"))));
  }

  /** Number the sources in the last text, if that is the answer of `length` code points, and list them after it. */
  addSources(citations, length) {
    if (!citations?.length) return;
    this.#endText();
    const view = this.#texts.at(-1);
    const list = renderSources(citations);
    const isCited = view && Array.from(view.text).length === length;
    if (isCited) this.#texts.splice(-1, 1, markSources(view, citations, list));
    this.#answer.append(list);
  }

  addNote(text, kind = "note") {
    this.#endText();
    this.#answer.append(el(`p.${kind}`, {}, escapeInvisible(text)));
  }

  addFailure(text) {
    this.#endText();
    const onclick = () => {
      const question = this.#stored?.question;
      if (typeof question === "number") this.#actions.regenerate(question);
      else this.#actions.resend(this.message);
    };
    const resend = this.message && el("button.text-button", { type: "button", onclick }, translate("turn.ask_again"));
    this.#answer.append(el("div.failed", { role: "alert" }, el("p", {}, escapeInvisible(text)), resend));
  }

  /** Show an event of the turn's stream. */
  handle({ name, data }) {
    switch (name) {
      case "message":
        this.#addDelta(data.choices?.[0]?.delta?.content);
        break;
      case "reasoning":
        this.addReasoning(data.text);
        break;
      case "tool_call":
        if (this.#cards.has(data.parent)) {
          this.#addInner(data);
          break;
        }
        this.#spoken.append("\n\n");
        this.addCall(data, data.server, { isLive: true });
        break;
      case "agent_event":
        this.card(data.id)?.handleAgent(data);
        break;
      case "agent":
        this.#showAgent(data.agent);
        break;
      case "app":
        this.card(data.call_id)?.openApp(data);
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
      case "late_result":
        this.#addLate(data);
        break;
      case "error":
        this.addFailure(data.message);
        break;
      case "done":
        this.addSources(data.citations, data.text_chars);
        this.#addEnd(data);
        break;
    }
  }

  /** Show a stored turn: {messages, details} and its positions and versions (stored_turns.js). */
  addStored(turn, serverOf) {
    for (const { reasoning, call, message, records, end } of toSteps(turn)) {
      if (reasoning !== undefined) this.addReasoning(reasoning);
      else if (call) this.#addEndpointCall(call);
      else if (message) this.#addMessage(message, serverOf, records);
      else this.#addEnd(end);
    }
  }

  /** Set positions, versions and details of a turn that is shown already. */
  setStored(turn) {
    this.#stored = turn;
    this.#end = turn.details.at(-1) ?? this.#end;
    this.#renderUserButtons();
    if (typeof turn.question === "number") this.element.dataset.position = turn.question;
    this.#renderFoot();
  }

  /** Continue the last answer: further text extends it. The notes on its first part move before the answer. */
  resume() {
    this.element.querySelector(".turn-foot")?.remove();
    const last = this.#texts.at(-1);
    const following = last ? [...this.#answer.children].slice([...this.#answer.children].indexOf(last.root) + 1) : [];
    if (!last || !following.every((element) => element.matches(".note, .stopped"))) return;
    const root = el("div.prose");
    last.root.replaceWith(...following.filter((element) => element.matches(".note")), root);
    for (const element of following) if (element.matches(".stopped")) element.remove();
    this.#text = new MarkdownView(root);
    this.#text.append(last.text);
    this.#texts.splice(-1, 1, this.#text);
  }

  #addEnd(end) {
    for (const note of end.notes ?? []) this.addNote(note);
    if (end.error) this.addFailure(end.error);
    else if (end.stop_reason && describeStopReason(end.stop_reason)) {
      this.addNote(describeStopReason(end.stop_reason), "stopped");
    }
    this.#end = end;
  }

  /** Show who writes from here on: an agent that has the conversation, or "" for the model. */
  #showAgent(agent) {
    if (agent === this.#agent) return;
    this.#agent = agent;
    this.#endText();
    this.#endReasoning();
    const text = agent ? translate("agent.answers", { agent }) : translate("agent.ended");
    this.#answer.append(el("p.speaker", {}, escapeInvisible(text)));
  }

  #addEndpointCall(record) {
    this.addCall(record, record.server);
    this.card(record.id).finish({ success: !record.is_error, content: record.content, duration: record.duration_s });
  }

  /** Show the result of a call in the background: a card of its own, because its call may be far above. */
  #addLate({ id, name, success, content }) {
    const label = translate("call.late");
    this.addCall({ id: `late ${id}`, name: name || label, arguments: null }, name ? label : "");
    this.card(`late ${id}`).finish({ success, content });
  }

  /** Show a message that the user sent while the turn ran. */
  #addSteering(message) {
    this.#endText();
    this.#endReasoning();
    const speaker = el("span.visually-hidden", {}, translate("user.said"));
    this.#answer.append(el("div.user", {}, speaker, ...renderUserMessage(parseUserMessage(message))));
  }

  /** Show a stored message of the model, a tool or the system. `records`: the details of the calls of its turn. */
  #addMessage(message, serverOf, records) {
    if (message.role === "tool") {
      const record = records.find(({ id }) => id === message.tool_call_id);
      const duration = record?.duration_s;
      const { content, app } = message;
      const background = goesOn(content);
      this.card(message.tool_call_id)?.addInnerCalls(record?.calls ?? []);
      this.card(message.tool_call_id)?.finish({ success: !message.is_error, content, duration, app, background });
      return;
    }
    if (message.role === "assistant" && this.#end && CUT.includes(this.#end.stop_reason)) this.resume();
    const late = message.role === "user" ? readLateResult(message) : null;
    if (late) return this.#addLate(late);
    if (message.role === "user") return this.#addSteering(message);
    if (message.role === "assistant") this.#showAgent(message.agent ?? "");
    const { content } = message;
    const text = toText(typeof content === "string" || message.role === "system" ? content : content.filter(isText));
    if (message.role === "system") return this.addNote(translate("turn.instructions", { text: text.slice(0, 500) }));
    if (text.trim()) this.addText(text);
    this.#endText();
    if (typeof message.content !== "string") this.addMedia(message.content.filter((part) => !isText(part)));
    this.addSources(message.citations, Array.from(text).length);
    for (const call of message.tool_calls ?? []) {
      const record = records.find(({ id }) => id === call.id);
      this.addCall(call, record ? record.server : serverOf(call.name));
    }
  }

  /** End the turn: nothing will be added. */
  finish() {
    this.#endText();
    this.#endReasoning();
    for (const card of this.#cards.values()) card.stop();
    this.#renderFoot();
  }

  /** Announce the end of the turn, with the rest of its text. A failure announces itself. */
  announceEnd() {
    const isFailed = this.#answer.querySelector(":scope > .failed") !== null;
    this.#spoken.finish(isFailed ? "" : describeStopReason(this.#end?.stop_reason ?? "answered") || translate("answer.end"));
  }

  #addDelta(text) {
    if (!text) return;
    this.addText(text);
    this.#spoken.append(text);
  }

  #renderUser() {
    if (!this.#user) return;
    if (this.message.isSummary) return this.#user.replaceChildren(...renderUserMessage(this.message));
    const speaker = el("span.visually-hidden", {}, translate("user.said"));
    this.#user.replaceChildren(speaker, ...renderUserMessage(this.message), this.#renderUserButtons());
  }

  /** The button to copy stays at the end of the row when the other buttons appear before it. */
  #renderUserButtons() {
    const { question, questionVersions } = this.#stored ?? {};
    const { switchTo, remove } = this.#actions;
    const ofStored = () => [
      ...listVersions(questionVersions, "message", switchTo),
      ["delete", () => createIconButton("trash", translate("user.delete"),
        () => remove(this.#stored.question, "message"))],
      ["link", () => createCopyButton(() => createMessageLink(this.#stored.question),
        translate("user.link"), "link")],
      ["edit", () => createIconButton("edit", translate("user.edit"), () => this.edit())],
    ];
    const copy = () => createCopyButton(() => this.message.text, translate("user.copy"));
    this.#userButtons.update([...(typeof question === "number" ? ofStored() : []), ["copy", copy]]);
    return this.#userButtons.element;
  }

  /** Replace the message with a form that edits it. */
  edit() {
    const { question } = this.#stored ?? {};
    if (typeof question !== "number" || this.isEdited) return;
    const close = () => this.#renderUser();
    const onSend = (message) => {
      close();
      this.#actions.edit(question, message);
    };
    const onCancel = () => {
      close();
      this.#user.querySelector(".user-foot button:has(.icon-edit)")?.focus();
    };
    this.#user.replaceChildren(renderEditor(this.message, { onSend, onCancel }));
  }

  #renderFoot() {
    const { answerVersions } = this.#stored ?? {};
    if (!this.text && !this.#cards.size && !answerVersions) return this.#foot.element.remove();
    const usage = this.#end ? escapeInvisible(describeUsage(this.#end)) : "";
    this.#foot.update([
      ...(this.text ? [["copy", () => createCopyButton(() => this.text, translate("answer.copy"))]] : []),
      ["fork", () => createIconButton("fork", translate("answer.fork"),
        () => this.#actions.fork(this.#number))],
      ...this.#listAnswerButtons(),
      ...listVersions(answerVersions, "answer", this.#actions.switchTo),
      [`usage ${usage}`, () => el("span.quiet.usage", {}, usage)],
    ]);
    // Moving the element would interrupt a click in progress.
    if (this.#foot.element.parentElement !== this.element) this.element.append(this.#foot.element);
  }

  #listAnswerButtons() {
    const { question, answer, isLast } = this.#stored ?? {};
    const { regenerate, continueAnswer, remove } = this.#actions;
    const isCut = isLast && this.text && CUT.includes(this.#end?.stop_reason);
    // In words: a user whose answer met a limit has to see how to go on.
    const label = translate("answer.continue");
    const goOn = () => el("button.text-button", { type: "button", title: label, onclick: continueAnswer },
      createIcon("forward"), ` ${label}`);
    const again = () => createIconButton("again", translate("answer.again"), () => regenerate(this.#stored.question));
    const trash = () => createIconButton("trash", translate("answer.delete"),
      () => remove(this.#stored.answer, "answer"));
    return [
      ...(isCut ? [["continue", goOn]] : []),
      ...(typeof question === "number" ? [["again", again]] : []),
      ...(typeof answer === "number" ? [["delete", trash]] : []),
    ];
  }

  #endText() {
    this.#text?.finish();
    this.#text = null;
  }

  #endReasoning() {
    if (this.#reasoning) this.#reasoning.title.textContent = translate("turn.thoughts");
    this.#reasoning = null;
  }
}
