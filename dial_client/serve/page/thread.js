// One conversation: its turns, the turn that is running, and what that turn asks for.

import { el, say } from "./dom.js";
import { follow, pause } from "./follow.js";
import { asSent, saidIn } from "./said.js";
import { TurnView } from "./turn.js";
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
    const stored = await this.#read();
    this.title = stored.title;
    this.#show(stored);
    for (const note of stored.notes) this.#last?.addNote(note);
    this.#changed();
    if (!stored.running) return;
    this.#go({ turn: stored.running, answer: null });
    await Promise.all(["approval", "question"].map((kind) => this.#pending(kind, stored.running)));
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

  #read(signal) {
    return this.#api.json("GET", this.#path(), undefined, signal);
  }

  /** Show what is stored; of a turn that runs so many calls and what was before them, as its events tell the rest. */
  #show({ messages, running }, calls = 0) {
    const turns = turnsOf(messages);
    if (running && turns.length) turns.push(upTo(turns.pop(), calls));
    let number = 0;
    const makers = turns.map((turn) => {
      const own = turn[0].role === "user" ? number++ : null;
      const isOver = !running || turn !== turns.at(-1);
      return () => this.#made(turn, own, isOver);
    });
    this.#earlier = makers.splice(0, Math.max(0, makers.length - SHOWN));
    this.#turns = makers.map((make) => make());
    this.element.replaceChildren(...this.#turns.map((turn) => turn.element));
    this.count = number;
    this.#offerEarlier();
  }

  #made(messages, number, isOver) {
    const [said, rest] = number === null ? [null, messages] : [saidIn(messages[0].content), messages.slice(1)];
    const turn = new TurnView(said, number, this.#actions);
    for (const message of rest) turn.addMessage(message, this.#serverOf);
    if (isOver) turn.finish();
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
    try {
      await this.#follow(turn, answer, signal);
    } catch (error) {
      if (!signal.aborted) this.#last?.addFailure(sentence(error));
    }
    if (signal.aborted) return;
    this.#last?.finish();
    this.#over();
    this.#last?.readAloud();
    this.dispatchEvent(new Event("over"));
    await this.#check().catch(() => {});
  }

  /** Follow a turn to its end; where its process is gone, show what is stored, and follow the turn that goes on with it. */
  async #follow(turn, answer, signal) {
    const lost = (isLost) => {
      if (isLost === this.isLost) return;
      this.isLost = isLost;
      this.#changed();
    };
    const take = (event) => this.#take(event);
    while (!(await follow(this.#api, { conversation: this.id, turn, answer }, take, { lost, signal }))) {
      const stored = await this.#wait(turn, signal);
      this.#reset();
      const isSame = stored.messages.filter(({ role }) => role === "user").length === this.count;
      this.#show(stored, isSame ? this.#last?.calls : 0);
      if (!stored.running) {
        if (stored.notes.length) this.#last?.addFailure(stored.notes.join("; "));
        return;
      }
      this.#changed();
      [turn, answer] = [stored.running, null];
    }
  }

  /** Wait until a turn whose events are not to be had is not running any more; give what is stored then. */
  async #wait(turn, signal) {
    for (;;) {
      const stored = await this.#read(signal);
      if (stored.running !== turn) return stored;
      this.#setStatus("The answer is being written elsewhere…");
      await pause(LOOK, signal);
    }
  }

  /** Read what came of the turn that is over: the title, and what its events do not tell of, as another began it. */
  async #check() {
    const stored = await this.#read();
    this.title = stored.title;
    const isOver = !stored.running && !this.isRunning;
    if (isOver && callsIn(turnsOf(stored.messages).at(-1) ?? []) > this.#last?.calls) this.#show(stored);
    this.#changed();
  }

  #take({ name, data }) {
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
        this.#last?.take({ name, data });
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

  /** Read what a turn asks for; its own events tell of it only once. */
  async #pending(kind, turn) {
    const found = await this.#api.json("GET", `${kind}s`).catch(() => null);
    for (const ask of found?.[`${kind}s`] ?? []) {
      if (ask.turn === turn && this.isRunning) this.#ask({ ...ask, kind });
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
    this.#reset();
    this.#changed();
  }

  #reset() {
    this.isStopping = false;
    this.isLost = false;
    this.asks.clear();
    this.status = "";
  }

  #setStatus(text) {
    this.status = text;
    this.#changed();
  }

  #changed() {
    this.dispatchEvent(new Event("change"));
  }
}

/** Part messages into turns: what the person says, and all that comes of it. */
function turnsOf(messages) {
  const turns = [];
  for (const message of messages) {
    if (message.role === "user" || turns.length === 0) turns.push([]);
    turns.at(-1).push(message);
  }
  return turns;
}

/** Count the calls of a turn's messages. */
const callsIn = (messages) => messages.reduce((sum, { tool_calls: calls }) => sum + (calls?.length ?? 0), 0);

/** Give the beginning of a turn: what was said, and replies until there are so many calls, with their results. */
function upTo(messages, calls) {
  const isFurther = ({ role }, at) => at > 0 && role !== "tool" && callsIn(messages.slice(0, at)) >= calls;
  const end = messages.findIndex(isFurther);
  return end < 0 ? messages : messages.slice(0, end);
}
