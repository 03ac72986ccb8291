// The requests of a conversation that need the user's answer: approvals, and questions of servers.

import { announce } from "./dom.js";
import { describeRequest } from "./descriptions.js";

export class PendingRequests {
  #api;
  #hooks;
  #requests = new Map();

  /** `hooks`: {findCard(request), onChange()}: find the card of its tool call, if any; called after each change. */
  constructor(api, hooks) {
    this.#api = api;
    this.#hooks = hooks;
  }

  get size() {
    return this.#requests.size;
  }

  get all() {
    return [...this.#requests.values()];
  }

  /** The oldest request; undefined if there is none. */
  get first() {
    return this.#requests.values().next().value;
  }

  /** Show a request. */
  add(request) {
    if (this.#requests.has(request.id)) return;
    this.#requests.set(request.id, request);
    this.#hooks.findCard(request)?.setWaiting(true);
    announce(describeRequest(request), { isUrgent: true });
    this.#hooks.onChange();
  }

  /** Mark the cards of calls that came after their requests. */
  markCards() {
    for (const request of this.all) this.#hooks.findCard(request)?.setWaiting(true);
  }

  /** Load the requests of a turn: its events announce each request only once. `isRunning()` is false after its end. */
  async load(turn, isRunning) {
    await Promise.all(["approval", "question"].map(async (kind) => {
      const response = await this.#api.fetchJson("GET", `${kind}s`).catch(() => null);
      for (const request of response?.[`${kind}s`] ?? []) {
        if (request.turn === turn && isRunning()) this.add({ ...request, kind });
      }
    }));
  }

  /** Answer a request. A request that is already answered elsewhere (404) counts as answered. */
  async answer(request, body) {
    try {
      await this.#api.fetchJson("POST", `${request.kind}s/${encodeURIComponent(request.id)}`, body);
    } catch (error) {
      if (error.status !== 404) throw error;
    }
    this.remove(request.id);
  }

  /** Remove a request that is answered or withdrawn. */
  remove(id) {
    const request = this.#requests.get(id);
    if (!request) return;
    this.#requests.delete(id);
    this.#hooks.findCard(request)?.setWaiting(false);
    this.#hooks.onChange();
  }

  clear() {
    this.#requests.clear();
  }
}
