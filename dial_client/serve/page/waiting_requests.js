// The requests of all conversations that need the user's answer: for marks in the list, the title of the page, and
// notifications. Requests of loaded conversations come with their events, those of all others are polled.

import { escapeInvisible } from "./invisible_characters.js";
import { translate } from "./language.js";
import { notify } from "./notifications.js";

/** Milliseconds between two polls, also while the page is hidden: that is when notifications matter. */
const INTERVAL = 4_000;

export class WaitingRequests {
  #api;
  #hooks;
  #polled = [];
  /** The ids of requests that the user could see, or was notified of. */
  #known = new Set();
  #text = "";

  /**
   * `hooks`: {loaded(), isOpen(conversation), onChange(), open(conversation)}. `loaded` returns a Map of the ids of
   * loaded conversations to their requests (PendingRequests).
   */
  constructor(api, hooks) {
    this.#api = api;
    this.#hooks = hooks;
  }

  /** Poll now and from now on. Requests that wait already need no notification: the user has just opened the page. */
  async start() {
    await this.#poll();
    for (const { id } of this.#list()) this.#known.add(id);
    setInterval(() => this.#poll(), INTERVAL);
  }

  get count() {
    return this.#list().length;
  }

  isWaiting(conversation) {
    const loaded = this.#hooks.loaded().get(conversation);
    return loaded ? loaded.size > 0 : this.#polled.some((request) => request.conversation === conversation);
  }

  /** Look for new requests in the loaded conversations. */
  update() {
    const requests = this.#list();
    for (const request of requests) {
      if (this.#known.has(request.id)) continue;
      this.#known.add(request.id);
      if (document.hidden || !this.#hooks.isOpen(request.conversation)) this.#notify(request);
    }
    const text = requests.map(({ id }) => id).join();
    if (text === this.#text) return;
    this.#text = text;
    this.#hooks.onChange();
  }

  #list() {
    const loaded = this.#hooks.loaded();
    const own = [...loaded].flatMap(([conversation, requests]) => {
      return requests.all.map(({ id, server, tool }) => ({ id, server, tool, conversation }));
    });
    return [...own, ...this.#polled.filter(({ conversation }) => !loaded.has(conversation))];
  }

  async #poll() {
    const found = await this.#api.fetchJson("GET", "waiting").catch(() => null);
    if (found) this.#polled = found.waiting;
    this.update();
  }

  #notify({ id, server, tool, conversation }) {
    const values = { server: escapeInvisible(server), tool: escapeInvisible(tool ?? "") };
    const text = translate(tool ? "notify.approval" : "notify.question", values);
    notify(text, id, () => conversation && this.#hooks.open(conversation));
  }
}
