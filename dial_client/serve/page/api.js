// Talking to the server: every request has the token, every failure is a sentence.

const TOKEN = "dial-token";

/** What the server, or the way to it, had against a request. `status` is 0 where there was no answer. */
export class Refused extends Error {
  constructor(message, status = 0) {
    super(message);
    this.status = status;
  }
}

export class Api {
  #token = sessionStorage.getItem(TOKEN);
  #askForToken;
  #asked = null;

  /** `askForToken(wasWrong)` promises what the person types; it is asked for once, however many requests wait. */
  constructor(askForToken) {
    this.#askForToken = askForToken;
  }

  /** Take the token out of the address, where nobody should find it later. */
  takeToken() {
    const found = /[#&]token=([^&]*)/.exec(location.hash);
    if (!found) return;
    this.#keep(decodeURIComponent(found[1]));
    history.replaceState(null, "", location.pathname + location.search);
  }

  /** Ask, and give the answer's JSON; null where there is none. */
  async json(method, path, body, signal) {
    const response = await this.ask(method, path, { body, signal });
    return response.status === 204 ? null : response.json();
  }

  /** Ask, and give the answer. A 401 asks the person for the token, and asks again. */
  async ask(method, path, { body, headers = {}, signal } = {}) {
    for (let wasWrong = this.#token !== null; ; wasWrong = true) {
      const token = this.#token;
      const response = await this.#fetch(method, path, { body, headers, signal });
      if (response.status !== 401) {
        if (!response.ok) throw await refused(response);
        return response;
      }
      if (token !== this.#token) continue;
      this.#asked ??= this.#askForToken(wasWrong).finally(() => (this.#asked = null));
      this.#keep(await this.#asked);
    }
  }

  #fetch(method, path, { body, headers, signal }) {
    const sent = { ...headers };
    if (this.#token) sent.Authorization = `Bearer ${this.#token}`;
    if (body !== undefined) sent["Content-Type"] = "application/json";
    const text = body === undefined || typeof body === "string" ? body : JSON.stringify(body);
    return fetch(path, { method, headers: sent, body: text, signal, cache: "no-store" }).catch((error) => {
      if (signal?.aborted) throw error;
      throw new Refused("The server cannot be reached. Is it still running?");
    });
  }

  #keep(token) {
    this.#token = token;
    sessionStorage.setItem(TOKEN, token);
  }
}

const WORDS = {
  403: "The server does not allow this from here.",
  404: "It is not there any more.",
  409: "Another turn of this conversation is still running.",
  413: "This is too long for the server.",
  429: "The server has too much to do right now. Try again in a moment.",
  503: "The server is shutting down, or has too much to do. Try again in a moment.",
};

async function refused(response) {
  const said = await response.json().then((body) => body?.error?.message, () => null);
  const message = typeof said === "string" && said ? said : WORDS[response.status];
  return new Refused(message ?? `The server answered with an error (${response.status}).`, response.status);
}

/** Seconds without a single byte after which a connection is taken for dead; a living one is pinged. */
const SILENCE = 60;

/** Give the server-sent events of an answer: {name, data (a string), id}. Ends where the connection does. */
export async function* eventsOf(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  try {
    let event = { name: "message", data: [], id: null };
    for await (const line of linesOf(reader)) {
      if (line === "") {
        if (event.data.length) yield { ...event, data: event.data.join("\n") };
        event = { name: "message", data: [], id: event.id };
        continue;
      }
      const colon = line.indexOf(":");
      const field = colon < 0 ? line : line.slice(0, colon);
      const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
      if (field === "event") event.name = value;
      else if (field === "data") event.data.push(value);
      else if (field === "id") event.id = value;
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

async function* linesOf(reader) {
  let begun = [];
  for (;;) {
    const { value, done } = await within(SILENCE, reader.read());
    if (done) return;
    const lines = value.split("\n");
    const last = lines.pop();
    for (const line of lines) {
      begun.push(line);
      yield begun.join("").replace(/\r$/, "");
      begun = [];
    }
    if (last) begun.push(last);
  }
}

function within(seconds, promise) {
  let timer;
  const silence = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Refused("The connection fell silent.")), seconds * 1000);
  });
  return Promise.race([promise, silence]).finally(() => clearTimeout(timer));
}
