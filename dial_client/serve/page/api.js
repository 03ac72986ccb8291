// Requests to the server. Each request carries the token; each failure has a message for the user.

import { parseJson } from "./exact_json.js";
import { LANGUAGE, translate } from "./language.js";

const TOKEN = "dial-token";
/** The open conversation, while the user logs in at another site. */
const PLACE = "dial-place";

/** A request that failed. `status` is the HTTP status, or 0 if there was no response. */
export class RequestError extends Error {
  constructor(message, status = 0) {
    super(message);
    this.status = status;
  }
}

export class Api {
  #token = sessionStorage.getItem(TOKEN);
  #promptForToken;
  #prompt = null;
  #person = null;
  /** True for a token of a login that no request has been accepted with: to log in again would not help. */
  #isUntried = false;

  /** `promptForToken(wasWrong)` resolves to the token the user types. Requests that wait share one prompt. */
  constructor(promptForToken) {
    this.#promptForToken = promptForToken;
  }

  /** Read the token from the page's URL and remove it there. */
  readToken() {
    const match = /[#&]token=([^&]*)/.exec(location.hash);
    if (!match) return;
    this.#storeToken(decodeURIComponent(match[1]));
    const place = sessionStorage.getItem(PLACE);
    this.#isUntried = place !== null;
    sessionStorage.removeItem(PLACE);
    history.replaceState(null, "", location.pathname + location.search + (place ?? ""));
  }

  /** Send a request and return the JSON of the response; null if it has no content. */
  async fetchJson(method, path, body, signal) {
    const response = await this.fetch(method, path, { body, signal });
    return response.status === 204 ? null : parseJson(await response.text());
  }

  /**
   * Send a request and return the response. After a 401 the request is sent again, with a token of the login, or the one
   * that the user types.
   */
  async fetch(method, path, { body, headers = {}, signal } = {}) {
    for (let wasWrong = this.#token !== null; ; wasWrong = true) {
      const token = this.#token;
      const response = await this.#send(method, path, { body, headers, signal });
      if (response.status !== 401) {
        // An answer to the token before says nothing about this one.
        if (token === this.#token) this.#isUntried = false;
        if (!response.ok) throw await toRequestError(response);
        return response;
      }
      if (token !== this.#token) continue;
      this.#prompt ??= this.#findToken(wasWrong).finally(() => (this.#prompt = null));
      this.#storeToken(await this.#prompt);
    }
  }

  /** Return who uses the page, and for what: {name, shown_name, scopes}. It is asked for once for each token. */
  readPerson() {
    this.#person ??= this.fetchJson("GET", "me");
    this.#person.catch(() => (this.#person = null));
    return this.#person;
  }

  /** False if no token is needed, or a proxy says who uses the page. */
  get hasToken() {
    return this.#token !== null;
  }

  /** End the login, if there is one, and forget the token. The page is left. */
  async logOut() {
    const response = await this.#send("POST", "login/logout", {});
    const url = response.ok ? (await response.json()).url : "";
    sessionStorage.removeItem(TOKEN);
    if (url) location.assign(url);
    else location.reload();
  }

  async #findToken(wasWrong) {
    if (!this.#isUntried) {
      const response = await this.#send("POST", "login/refresh", {});
      this.#isUntried = response.ok;
      if (response.ok) return (await response.json()).token;
      if (response.status === 503) throw await toRequestError(response);
      const { error } = await response.json().catch(() => ({}));
      if (error?.code === "login_needed") {
        sessionStorage.setItem(PLACE, location.hash);
        location.assign("login");
        await new Promise(() => {});  // the page is left
      }
    }
    return this.#promptForToken(wasWrong);
  }

  #send(method, path, { body, headers, signal }) {
    const allHeaders = { ...headers };
    if (this.#token) allHeaders.Authorization = `Bearer ${this.#token}`;
    if (body !== undefined) allHeaders["Content-Type"] = "application/json";
    const text = body === undefined || typeof body === "string" ? body : JSON.stringify(body);
    return fetch(path, { method, headers: allHeaders, body: text, signal, cache: "no-store" }).catch((error) => {
      if (signal?.aborted) throw error;
      throw new RequestError(translate("error.unreachable"));
    });
  }

  #storeToken(token) {
    this.#token = token;
    this.#person = null;
    sessionStorage.setItem(TOKEN, token);
  }
}

const STATUS_MESSAGES = {
  403: translate("error.rejected"),
  404: translate("error.not_found"),
  409: translate("error.conflict"),
  413: translate("error.too_large"),
  429: translate("error.busy"),
  503: translate("error.closing"),
};

/** Error codes for which the translated message of the status is enough: the server's own messages are English. */
const PLAIN_CODES = new Set([
  "conversation_busy", "conversation_not_found", "not_found", "request_too_large", "stopping", "too_many_bodies",
  "too_many_calls", "too_many_turns",
]);

async function toRequestError(response) {
  const { message: detail, code } = await response.json().then((body) => body?.error ?? {}, () => ({}));
  const isTranslated = LANGUAGE !== "en" && PLAIN_CODES.has(code);
  const message = typeof detail === "string" && detail && !isTranslated ? detail : STATUS_MESSAGES[response.status];
  return new RequestError(message ?? translate("error.status", { status: response.status }), response.status);
}

/** Seconds without a byte after which the connection counts as lost. The server sends a comment every 15 seconds. */
const READ_TIMEOUT = 60;

/** Yield the server-sent events of a response: {name, data (a string), id}. Ends when the connection does. */
export async function* readEvents(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  try {
    let event = { name: "message", data: [], id: null };
    for await (const line of readLines(reader)) {
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

async function* readLines(reader) {
  let pieces = [];
  for (;;) {
    const { value, done } = await withTimeout(READ_TIMEOUT, reader.read());
    if (done) return;
    const lines = value.split("\n");
    const last = lines.pop();
    for (const line of lines) {
      pieces.push(line);
      yield pieces.join("").replace(/\r$/, "");
      pieces = [];
    }
    if (last) pieces.push(last);
  }
}

function withTimeout(seconds, promise) {
  let timer;
  const timeout = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new RequestError(translate("error.timeout"))), seconds * 1000);
  });
  return Promise.race([promise, timeout]).finally(() => clearTimeout(timer));
}
