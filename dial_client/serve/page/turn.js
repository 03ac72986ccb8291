// One turn as it is shown: what the person said, and all that came of it. Fed by events, or by stored messages.

import { copyButton, count, el, icon, iconButton, say } from "./dom.js";
import { textOf } from "./parts.js";
import { MarkdownView } from "./render.js";
import { saidNodes } from "./said.js";
import { ToolCard } from "./tool.js";
import { visible } from "./unseen.js";
import { stopped, took } from "./words.js";

/** Characters of an answer that are read aloud when it is whole; the rest is there to be read. */
const READ_ALOUD = 2_000;

export class TurnView {
  #answer = el("div.answer");
  #cards = new Map();
  #text = null;
  #texts = [];
  #reasoning = null;
  #cost = "";
  #actions;
  #number;
  /** Calls of tools that are shown. */
  calls = 0;

  /**
   * `said`: as in said.js; null where the person said nothing. `number` counts what the person said, from 0. `actions`:
   * {fork(number), edit(number, said), again(said)}.
   */
  constructor(said, number, actions) {
    this.said = said;
    this.#number = number;
    this.#actions = actions;
    const begin = el("span.unseen", {}, "You said: ");
    const spoken = said === null ? null : el("div.person", {}, begin, ...saidNodes(said), this.#edits());
    const label = said === null ? "Beginning" : `Question ${number + 1} and its answer`;
    this.element = el("section.turn", { "aria-label": label }, spoken, this.#answer);
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
      const inside = el("div.reasoning-text");
      const title = el("span", {}, "Thinking…");
      const element = el("details.reasoning", {}, el("summary", {}, title, icon("chevron")), inside);
      this.#reasoning = { inside, title };
      this.#answer.append(element);
    }
    this.#reasoning.inside.append(visible(text));
  }

  addCall(call, server, { live = false } = {}) {
    this.#endText();
    this.#endReasoning();
    const card = new ToolCard(call, server);
    this.#cards.set(call.id, card);
    this.calls += 1;
    this.#answer.append(card.element);
    if (live) card.run();
  }

  card(id) {
    return this.#cards.get(id);
  }

  addNote(text, kind = "note") {
    this.#endText();
    this.#answer.append(el(`p.${kind}`, {}, visible(text)));
  }

  addFailure(text) {
    this.#endText();
    const again = el("button.text-button", { type: "button", onclick: () => this.#actions.again(this.said) }, "Ask again");
    this.#answer.append(el("div.failed", { role: "alert" }, el("p", {}, visible(text)), this.said === null ? null : again));
  }

  /** Show an event of the turn's stream. */
  take({ name, data }) {
    switch (name) {
      case "message":
        if (data.choices?.[0]?.delta?.content) this.addText(data.choices[0].delta.content);
        break;
      case "reasoning":
        this.addReasoning(data.text);
        break;
      case "tool_call":
        this.addCall(data, data.server, { live: true });
        break;
      case "tool_progress":
        this.card(data.id)?.progress(data);
        break;
      case "tool_result":
        this.card(data.tool_call_id)?.finish({ ...data, duration: data.duration_s });
        break;
      case "error":
        this.addFailure(data.message);
        break;
      case "done":
        for (const note of data.notes ?? []) this.addNote(note);
        if (stopped(data.stop_reason)) this.addNote(stopped(data.stop_reason), "stopped");
        this.#cost = took(data);
        break;
    }
  }

  /** Show a stored message that is not the person's. */
  addMessage(message, serverOf) {
    if (message.role === "tool") {
      this.card(message.tool_call_id)?.finish({ success: !message.is_error, content: message.content });
      return;
    }
    const text = textOf(message.content);
    if (message.role === "system") return this.addNote(`Instructions: ${text.slice(0, 500)}`);
    if (text.trim()) this.addText(text);
    this.#endText();
    for (const call of message.tool_calls ?? []) this.addCall(call, serverOf(call.name));
  }

  /** Nothing more will come. */
  finish() {
    this.#endText();
    this.#endReasoning();
    for (const card of this.#cards.values()) card.leave();
    this.element.querySelector(".turn-foot")?.remove();
    if (!this.text && !this.#cards.size) return;
    const fork = iconButton("fork", "Go on from here in a new conversation", () => this.#actions.fork(this.#number));
    const copy = copyButton(() => this.text, "Copy the answer");
    this.element.append(el("div.turn-foot", {}, this.text ? copy : null, fork, el("span.quiet", {}, this.#cost)));
  }

  readAloud() {
    const { text } = this;
    say(text.length > READ_ALOUD ? `${text.slice(0, READ_ALOUD)}… ${count(text.length)} characters in all.` : text);
  }

  #edits() {
    const onclick = () => this.#actions.edit(this.#number, this.said);
    const edit = iconButton("edit", "Ask this otherwise, in a new conversation", onclick);
    return el("div.person-foot", {}, copyButton(() => this.said.text, "Copy what you said"), edit);
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
