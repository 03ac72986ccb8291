// One conversation: its turns, the running turn, and the requests that need the user's answer.

import { el } from "./dom.js";
import { watchChanges } from "./change_watch.js";
import { addEarlierButton, PAGE_SIZE } from "./earlier_turns.js";
import { PendingRequests } from "./pending_requests.js";
import { followTurn, waitForEnd } from "./turn_stream.js";
import { countCalls, cutAfter, isQuestion, toTurns } from "./stored_turns.js";
import { toRequestBody, parseUserMessage } from "./user_message.js";
import { TurnView } from "./turn_view.js";
import { translate } from "./language.js";
import { describeError, describeStatus } from "./descriptions.js";

/** Characters of a title. */
const MAX_TITLE = 60;

/**
 * Dispatches "change" (status, running, requests), "created" (has an id now), "sent", "finished", "stored" (what is shown
 * is what is stored) and "servers".
 */
export class Transcript extends EventTarget {
  #api;
  #actions;
  #serverOf;
  #turns = [];
  #abort = null;
  /** The server's state of the conversation that is shown, and the function that stops polling for changes. */
  #state = null;
  #endWatch;
  #compared = Promise.resolve();
  /** Counts the changes of the turns that are shown, so that an answer from before a change is not shown after it. */
  #changes = 0;
  #positions = "";

  constructor(api, id, { actions, serverOf }) {
    super();
    this.#api = api;
    this.#actions = actions;
    this.#serverOf = serverOf;
    this.id = id;
    this.title = "";
    this.settings = {};
    this.count = 0; // the number of user messages
    this.status = "";
    this.isRunning = false;
    this.isStopping = this.isDisconnected = false;
    /** Resolved when the stored conversation is loaded. */
    this.ready = Promise.resolve();
    this.requests = new PendingRequests(api, {
      findCard: (request) => this.#last?.card(request.call?.id, request.agent_calls),
      onChange: () => this.#dispatchChange(),
    });
    this.element = el("div.transcript");
    const isIdle = () => this.id !== null && this.element.isConnected && !this.isRunning && !this.isEdited;
    // Until its comparison ends, a turn of this page looks like a change of others; until its request ends, so does an edit.
    const readState = () => this.#compared.then(() => this.#readState());
    this.#endWatch = watchChanges({ isIdle, readState, shown: () => this.#state }, async () => {
      const compared = this.#compared;
      const stored = await this.#fetch();
      if (!isIdle() || compared !== this.#compared) return;
      // A new title changes nothing of what is shown: folds stay as they are.
      const isSame = !stored.running && JSON.stringify(stored.positions) === this.#positions;
      if (!isSame) return this.#show(stored);
      this.title = stored.title;
      this.#applyStored(stored);
      this.#dispatchChange();
    });
  }

  get isEmpty() {
    return this.#turns.length === 0;
  }

  /** Load the conversation and follow its running turn. */
  async load() {
    await this.#show(await this.#fetch());
  }

  /** Show changes that others made to the conversation, and follow its running turn. */
  async catchUp() {
    await this.#compared;
    if (this.id !== null && !this.isRunning && (await this.#readState()) !== this.#state) await this.load();
  }

  async #readState() {
    return (await this.#api.fetchJson("GET", this.#buildPath("/state"))).state;
  }

  /** Render a stored conversation and follow its running turn. */
  async #show(stored) {
    this.title = stored.title;
    this.#render(stored);
    for (const note of stored.notes) this.#last?.addNote(note);
    this.#dispatchChange();
    if (!stored.running) return;
    this.#follow({ turn: stored.running, response: null });
    await this.requests.load(stored.running, () => this.isRunning);
  }

  /** Send a message, {text, files}. A message that the server rejects is removed, and the error is thrown. */
  async send(message) {
    this.isRunning = true;
    this.#setStatus(translate("status.sending"));
    const turn = this.#addTurn(message);
    // Until the title is read from the server, which makes it in the same way: the beginning of the first message.
    this.title ||= message.text.replace(/\s+/g, " ").trim().slice(0, MAX_TITLE);
    try {
      await this.#create();
      const body = { ...toRequestBody(message), stream: true };
      const response = await this.#api.fetch("POST", this.#buildPath("/chat"), { body });
      this.#follow({ turn: response.headers.get("X-Turn-Id"), response });
    } catch (error) {
      turn.element.remove();
      this.#turns.pop();
      this.count -= 1;
      this.#markFinished();
      throw error;
    }
  }

  /** Answer a question again: a new version of its answer. */
  regenerate(message) {
    return this.#startVersion("/regenerate", { message });
  }

  /** Ask with a new version of an earlier message, {text, files}. Resolves to true if the server accepted it. */
  edit(position, message) {
    return this.#startVersion("/chat", { ...toRequestBody(message), edits: position });
  }

  /** Let the user edit the last message, once its position is known. */
  async editLast() {
    await this.#compared;
    if (!this.isRunning) this.#turns.findLast(({ positions }) => typeof positions?.question === "number")?.edit();
  }

  async continueAnswer() {
    if (this.isRunning) return;
    this.#last?.resume();
    await this.#startVersion("/continue", {}, { isSameTurn: true });
  }

  /** Show the version of the conversation with the message at a position. */
  switchTo(message) {
    return this.#change(() => this.#api.fetchJson("POST", this.#buildPath("/switch"), { message }));
  }

  remove(position) {
    return this.#change(() => this.#api.fetchJson("DELETE", this.#buildPath(`/messages/${position}`)));
  }

  async #change(request) {
    if (!this.isRunning) {
      const changing = request();
      this.#compared = changing.catch(() => {});
      this.#render(await changing);
    }
    this.#dispatchChange();
  }

  /** Take the last question and its answer back. Resolves to true if there was one. */
  undo() {
    return this.#editHistory("/undo");
  }

  /** Undo the latest `undo` or `compact` (`edit`). Resolves to true if there was one. */
  restore(edit) {
    return this.#editHistory("/restore", { edit });
  }

  /** Let the model summarize the older messages. Resolves to a note; to "" if there is nothing to summarize. */
  async compact() {
    // Messages that are sent meanwhile wait for the summary, which cannot be stopped.
    this.isRunning = this.isStopping = true;
    this.#setStatus(translate("status.compacting"));
    try {
      const stored = await this.#api.fetchJson("POST", this.#buildPath("/compact"));
      this.#render(stored);
      return stored.note ?? "";
    } finally {
      this.#markFinished();
      this.dispatchEvent(new Event("finished"));
    }
  }

  async #editHistory(rest, body) {
    await this.#compared;
    const before = this.#state;
    await this.#change(() => this.#api.fetchJson("POST", this.#buildPath(rest), body));
    return this.#state !== before;
  }

  /** Start a turn that begins another version, and follow it. */
  async #startVersion(rest, body, { isSameTurn = false } = {}) {
    if (this.isRunning) return false;
    this.isRunning = true;
    this.#setStatus(translate("status.sending"));
    try {
      const response = await this.#api.fetch("POST", this.#buildPath(rest), { body: { ...body, stream: true } });
      const turn = response.headers.get("X-Turn-Id");
      if (!isSameTurn) this.#render(await this.#fetch(), { running: turn });
      this.dispatchEvent(new Event("sent"));
      this.#follow({ turn, response });
      return true;
    } catch (error) {
      this.#markFinished();
      await this.#fetch().then((stored) => this.#render(stored)).catch(() => {});
      throw error;
    }
  }

  /** Choose the model from the next turn on; null for the standard model. A new conversation is stored when it begins. */
  async chooseModel(name) {
    const { model: _, ...others } = this.settings;
    const settings = name ? { ...others, model: name } : others;
    if (this.id !== null) return this.saveSettings(settings);
    this.settings = settings;
    this.#dispatchChange();
  }

  /** Store the settings of the conversation, which apply from its next turn on. */
  async saveSettings(settings) {
    await this.#create({});
    ({ settings: this.settings } = await this.#api.fetchJson("PATCH", this.#buildPath(), { settings }));
    this.#dispatchChange();
  }

  async #create(settings = this.settings) {
    if (this.id !== null) return;
    this.id = (await this.#api.fetchJson("POST", "conversations", {})).id;
    this.dispatchEvent(new Event("created"));
    if (Object.keys(settings).length) await this.#api.fetchJson("PATCH", this.#buildPath(), { settings });
  }

  async stop() {
    if (!this.isRunning || this.isStopping || this.id === null) return;
    this.isStopping = true;
    this.#setStatus(translate("status.stopping"));
    await this.#api.fetchJson("POST", this.#buildPath("/stop")).catch((error) => {
      this.isStopping = false;
      this.#setStatus(describeError(error));
    });
  }

  /** Stop following the running turn; the turn itself continues. */
  close() {
    this.#abort?.abort();
    this.#endWatch();
  }

  get isEdited() {
    return this.#turns.some((turn) => turn.isEdited);
  }

  get #last() {
    return this.#turns.at(-1);
  }

  #buildPath(rest = "") {
    return `conversations/${encodeURIComponent(this.id)}${rest}`;
  }

  #fetch(signal) {
    return this.#api.fetchJson("GET", this.#buildPath(), undefined, signal);
  }

  /** Render stored messages. A running turn is cut after its first `calls` calls: the rest comes with its events. */
  #render(stored, { calls = 0, running = stored.running } = {}) {
    this.#changes += 1;
    const isRunning = Boolean(running);
    const turns = toTurns(stored, running);
    if (isRunning && turns.length) turns.push(cutAfter(turns.pop(), calls));
    if (turns.length) turns.at(-1).isLast = true;
    let number = 0;
    const builders = turns.map((turn) => {
      const index = isQuestion(turn.messages[0]) ? number++ : null;
      const isFinished = !isRunning || turn !== turns.at(-1);
      return () => this.#buildTurn(turn, index, isFinished);
    });
    this.#state = isRunning ? null : stored.state;
    this.#positions = JSON.stringify(stored.positions);
    this.dispatchEvent(new Event("stored"));
    this.settings = stored.settings ?? {};
    const earlier = builders.splice(0, Math.max(0, builders.length - PAGE_SIZE));
    this.#turns = builders.map((build) => build());
    this.element.replaceChildren(...this.#turns.map((turn) => turn.element));
    this.count = number;
    addEarlierButton(this.element, earlier, (turns) => this.#turns.unshift(...turns));
  }

  #buildTurn(stored, number, isFinished) {
    const turn = new TurnView(number === null ? null : parseUserMessage(stored.messages[0]), number, this.#actions);
    turn.addStored(stored, this.#serverOf);
    if (!isFinished) {
      if (stored.details.length) turn.resume();
      return turn;
    }
    turn.finish();
    turn.setStored(stored);
    return turn;
  }

  #addTurn(message) {
    this.#changes += 1;
    const turn = new TurnView(message, this.count, this.#actions);
    this.count += 1;
    this.#turns.push(turn);
    this.element.append(turn.element);
    this.dispatchEvent(new Event("sent"));
    return turn;
  }

  async #follow({ turn, response }) {
    const { signal } = (this.#abort = new AbortController());
    this.isRunning = true;
    this.#dispatchChange();
    try {
      await this.#followToEnd(turn, response, signal);
    } catch (error) {
      if (!signal.aborted) this.#last?.addFailure(describeError(error));
    }
    if (signal.aborted) return;
    this.#last?.finish();
    this.#markFinished();
    this.#last?.announceEnd();
    this.dispatchEvent(new Event("finished"));
    this.#compared = this.#compareWithStored().catch(() => {});
  }

  /** Follow a turn to its end. If its process ended, render the stored messages and follow the turn that resumes it. */
  async #followToEnd(turn, response, signal) {
    const onConnection = (isDisconnected) => {
      if (isDisconnected === this.isDisconnected) return;
      this.isDisconnected = isDisconnected;
      this.#dispatchChange();
    };
    const handle = (event) => this.#handle(event);
    while (!(await followTurn(this.#api, { conversation: this.id, turn, response }, handle, { onConnection, signal }))) {
      const onWait = () => this.#setStatus(translate("status.elsewhere"));
      const stored = await waitForEnd(turn, () => this.#fetch(signal), { onWait, signal });
      this.#reset();
      const isSame = stored.messages.filter(isQuestion).length === this.count;
      this.#render(stored, { calls: isSame ? this.#last?.calls : 0 });
      if (!stored.running) {
        if (stored.notes.length) this.#last?.addFailure(stored.notes.join("; "));
        return;
      }
      this.#dispatchChange();
      [turn, response] = [stored.running, null];
    }
  }

  /** After a turn, load the title, positions and versions, and the calls that its events did not include. */
  async #compareWithStored() {
    const changes = this.#changes;
    const stored = await this.#fetch();
    this.title = stored.title;
    if (!stored.running && !this.isRunning && changes === this.#changes) this.#applyStored(stored);
    this.dispatchEvent(new Event("stored"));
    this.#dispatchChange();
  }

  #applyStored(stored) {
    const turns = toTurns(stored);
    const shown = turns.slice(turns.length - this.#turns.length);
    const isMissing = countCalls(turns.at(-1)?.messages ?? []) > (this.#last?.calls ?? 0);
    const isUnknown = stored.messages.filter(isQuestion).length !== this.count;
    if (isMissing || isUnknown || shown.length !== this.#turns.length) return this.#render(stored);
    if (shown.length) shown.at(-1).isLast = true;
    this.#state = stored.state;
    this.#positions = JSON.stringify(stored.positions);
    shown.forEach((turn, at) => this.#turns[at].setStored(turn));
  }

  #handle({ name, data }) {
    switch (name) {
      case "status":
        if (data.text && !this.isStopping) this.#setStatus(describeStatus(data));
        break;
      case "approval":
      case "question":
        this.requests.add({ ...data, kind: name });
        break;
      case "server":
        this.dispatchEvent(new Event("servers"));
        break;
      case "approval_done":
      case "question_done":
        this.requests.remove(data.id);
        break;
      default:
        this.#last?.handle({ name, data });
        if (name === "tool_call" || name === "agent_event") this.requests.markCards();
    }
  }

  #markFinished() {
    this.isRunning = false;
    this.#reset();
    this.#dispatchChange();
  }

  #reset() {
    this.isStopping = this.isDisconnected = false;
    this.requests.clear();
    this.status = "";
  }

  #setStatus(text) {
    this.status = text;
    this.#dispatchChange();
  }

  #dispatchChange() {
    this.dispatchEvent(new Event("change"));
  }
}
