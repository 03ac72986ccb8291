// One conversation: its turns, the turn that is running, and what that turn asks for.

import { el, say } from "./dom.js";
import { follow, pause } from "./follow.js";
import { TurnView, saidIn } from "./turn.js";
import { sentence } from "./words.js";

/** Turns that are shown at first of a long conversation; the earlier ones are a button away. */
const SHOWN = 30;

/** Milliseconds between looks at a turn that another process runs. */
const LOOK = 1_500;

/** Tells of itself: "change" (status, running, asks), "named" (it has an id now), "said", "over", "servers". */
export class Thread extends EventTarget {
  #api;
  #actions;
  #serverOf;
  #turns = [];
  #ending = null;
  #earlier = [];

  constructor(api, id, { actions, serverOf }) {
    super();
    this.#api = api;
    this.#actions = actions;
    this.#serverOf = serverOf;
    this.id = id;
    this.title = "";
    /** What the person said, counted. */
    this.count = 0;
    this.status = "";
    this.isRunning = false;
    this.isStopping = false;
    this.isLost = false;
    /** Kept when what there is has been read: until then nothing is said. */
    this.ready = Promise.resolve();
    this.asks = new Map();
    this.element = el("div.thread");
  }

  get isEmpty() {
    return this.#turns.length === 0;
  }

  /** Read the conversation, and go on with the turn that is running. */
  async load() {
    const { title, messages, notes, running } = await this.#api.json("GET", this.#path());
    this.title = title;
    this.#show(messages, Boolean(running));
    for (const note of notes ?? []) this.#last?.addNote(note);
    this.#changed();
    if (!running) return;
    this.#go({ turn: running === true ? null : running, answer: null });
    await Promise.all(["approval", "question"].map((kind) => this.#pending(kind)));
  }

  /** Say something: {text, files}. What the server does not take is thrown, and not shown. */
  async send(said) {
    this.isRunning = true;
    this.#setStatus("Sending…");
    const turn = this.#add(said);
    try {
      if (this.id === null) {
        this.id = (await this.#api.json("POST", "conversations", {})).id;
        this.dispatchEvent(new Event("named"));
      }
      const answer = await this.#api.ask("POST", this.#path("/chat"), { body: { ...asSent(said), stream: true } });
      this.#go({ turn: answer.headers.get("X-Turn-Id"), answer });
    } catch (error) {
      turn.element.remove();
      this.#turns.pop();
      this.count -= 1;
      this.#over();
      throw error;
    }
  }

  async stop() {
    if (!this.isRunning || this.isStopping || this.id === null) return;
    this.isStopping = true;
    this.#setStatus("Stopping…");
    await this.#api.json("POST", this.#path("/stop")).catch((error) => {
      this.isStopping = false;
      this.#setStatus(sentence(error));
    });
  }

  /** Answer an approval or a question. One that somebody else has answered meanwhile is settled too. */
  async answer(ask, body) {
    try {
      await this.#api.json("POST", `${ask.kind}s/${encodeURIComponent(ask.id)}`, body);
    } catch (error) {
      if (error.status !== 404) throw error;
    }
    this.#settled(ask.id);
  }

  /** Leave the running turn to itself. */
  close() {
    this.#ending?.abort();
  }

  get #last() {
    return this.#turns.at(-1);
  }

  #path(rest = "") {
    return `conversations/${encodeURIComponent(this.id)}${rest}`;
  }

  #show(messages, isRunning) {
    this.#turns = [];
    this.#earlier = [];
    this.element.replaceChildren();
    const turns = [];
    for (const message of messages) {
      if (message.role === "user" || turns.length === 0) turns.push([]);
      turns.at(-1).push(message);
    }
    let number = 0;
    const makers = turns.map(([first, ...rest]) => {
      const own = first.role === "user" ? number++ : null;
      return () => this.#made(first, rest, own);
    });
    // A running turn's events are told again from its beginning.
    if (isRunning && turns.length && turns.at(-1)[0].role === "user") {
      turns.at(-1).length = 1;
      makers[makers.length - 1] = () => new TurnView(saidIn(turns.at(-1)[0].content), number - 1, this.#actions);
    }
    this.#earlier = makers.splice(0, Math.max(0, makers.length - SHOWN));
    this.#turns = makers.map((make) => make());
    this.element.append(...this.#turns.map((turn) => turn.element));
    this.count = number;
    this.#offerEarlier();
  }

  #made(first, rest, number) {
    const turn = new TurnView(number === null ? null : saidIn(first.content), number, this.#actions);
    for (const message of number === null ? [first, ...rest] : rest) turn.addMessage(message, this.#serverOf);
    turn.finish();
    return turn;
  }

  #offerEarlier() {
    if (!this.#earlier.length) return;
    const button = el("button.text-button.earlier", {
      type: "button",
      onclick: () => {
        const first = button.nextElementSibling;
        const turns = this.#earlier.splice(-SHOWN).map((make) => make());
        button.remove();
        this.#turns.unshift(...turns);
        this.element.prepend(...turns.map((turn) => turn.element));
        this.#offerEarlier();
        first?.scrollIntoView();
      },
    }, `Show ${Math.min(SHOWN, this.#earlier.length)} earlier questions`);
    this.element.prepend(button);
  }

  #add(said) {
    const turn = new TurnView(said, this.count, this.#actions);
    this.count += 1;
    this.#turns.push(turn);
    this.element.append(turn.element);
    this.dispatchEvent(new Event("said"));
    return turn;
  }

  async #go({ turn, answer }) {
    const { signal } = (this.#ending = new AbortController());
    this.isRunning = true;
    this.#changed();
    const view = this.#last;
    const lost = (isLost) => {
      if (isLost === this.isLost) return;
      this.isLost = isLost;
      this.#changed();
    };
    try {
      const about = { conversation: this.id, turn, answer };
      const isWhole = turn && (await follow(this.#api, about, (event) => this.#take(view, event), { lost, signal }));
      if (!isWhole) await this.#wait(signal);
    } catch (error) {
      if (!signal.aborted) view?.addFailure(sentence(error));
    }
    if (signal.aborted) return;
    view?.finish();
    this.#over();
    view?.readAloud();
    this.dispatchEvent(new Event("over"));
  }

  /** Wait for a turn whose events are not to be had here, and show what it came to. */
  async #wait(signal) {
    for (;;) {
      const { messages, notes, running } = await this.#api.json("GET", this.#path(), undefined, signal);
      if (!running) {
        this.#show(messages, false);
        for (const note of notes ?? []) this.#last?.addNote(note);
        return;
      }
      this.#setStatus("The answer is being written elsewhere…");
      await pause(LOOK, signal);
    }
  }

  #take(view, { name, data }) {
    switch (name) {
      case "status":
        if (data.text && !this.isStopping) this.#setStatus(data.text);
        break;
      case "approval":
      case "question":
        this.#ask({ ...data, kind: name });
        break;
      case "server":
        this.dispatchEvent(new Event("servers"));
        break;
      case "approval_done":
      case "question_done":
        this.#settled(data.id);
        break;
      default:
        view?.take({ name, data });
    }
  }

  #ask(ask) {
    if (this.asks.has(ask.id)) return;
    this.asks.set(ask.id, ask);
    this.#last?.card(ask.call?.id)?.wait(true);
    const what = ask.kind === "approval" ? `Permission needed for ${ask.call.name}.` : `${ask.server} asks a question.`;
    say(`${what} Shift and Tab lead to it.`, { atOnce: true });
    this.#changed();
  }

  /** Read what is being asked for; a turn's own events tell of it only once. */
  async #pending(kind) {
    const found = await this.#api.json("GET", `${kind}s`).catch(() => null);
    for (const ask of found?.[`${kind}s`] ?? []) {
      if (ask.conversation === this.id && this.isRunning) this.#ask({ ...ask, kind });
    }
  }

  #settled(id) {
    const ask = this.asks.get(id);
    if (!ask) return;
    this.asks.delete(id);
    this.#last?.card(ask.call?.id)?.wait(false);
    this.#changed();
  }

  #over() {
    this.isRunning = false;
    this.isStopping = false;
    this.isLost = false;
    this.asks.clear();
    this.status = "";
    this.#changed();
  }

  #setStatus(text) {
    this.status = text;
    this.#changed();
  }

  #changed() {
    this.dispatchEvent(new Event("change"));
  }
}

/** Give what is said as the server reads it: a text, or parts as OpenAI's clients send them. */
function asSent({ text, files }) {
  if (!files.length) return { text };
  const parts = files.map(({ type, data, mime_type: kind, name }) => {
    const url = `data:${kind};base64,${data}`;
    return type === "image"
      ? { type: "image_url", image_url: { url } }
      : { type: "file", file: { filename: name, file_data: url } };
  });
  return { content: [...(text.trim() ? [{ type: "text", text }] : []), ...parts] };
}
