// Reads the events of a turn to its end and reconnects when the connection breaks.

import { RequestError, readEvents } from "./api.js";
import { parseJson } from "./exact_json.js";
import { translate } from "./language.js";

/** Failed connections in a row after which the page gives up: about two minutes. */
const MAX_ATTEMPTS = 20;
const MAX_PAUSE = 8_000;
/** Milliseconds between polls of a conversation whose turn another process runs. */
const POLL_INTERVAL = 1_500;
/** The first event of a complete stream has at most this position; some events are not sent. */
const FIRST_POSITION = 10;

/**
 * Pass each event of a turn to `handle({name, data})`. Resolves to true when the turn is over, and to false when the
 * conversation has to be read instead: the turn's process has ended, or its events are gone or lack their beginning.
 *
 * `response` is the response that already carries the events, or null to request all of them.
 * `onConnection(isDisconnected)` is called when the connection breaks and when it is back.
 */
export async function followTurn(api, { conversation, turn, response }, handle, { onConnection, signal }) {
  const position = { id: null, isComplete: true };
  let attempts = 0;
  let wasReleased = false;
  while (!signal.aborted) {
    try {
      response ??= await reconnect(api, conversation, turn, position.id, signal);
      onConnection(false);
      if (response === null) return false;
      for await (const event of readEvents(response)) {
        attempts = 0;
        if (position.id === null && event.id) position.isComplete = Number(event.id.split(":").at(-1)) <= FIRST_POSITION;
        position.id = event.id ?? position.id;
        if (event.data === "[DONE]") return position.isComplete;
        const data = parseJson(event.data);
        if (event.name === "error" && data.type === "TurnLost") return false;
        if (event.name === "error" && data.type === "ConversationBusy") {
          // The process shuts down and another one takes over the turn. A second error of this type is final.
          if (wasReleased) return false;
          wasReleased = true;
          break;
        }
        handle({ name: event.name, data });
      }
    } catch (error) {
      if (signal.aborted) break;
      if (!(error instanceof RequestError || error instanceof TypeError) || error.status === 403) throw error;
    }
    response = null;
    attempts += 1;
    if (attempts > MAX_ATTEMPTS) throw new RequestError(translate("error.gone"));
    if (attempts > 1) onConnection(true);
    await pause(Math.min(MAX_PAUSE, 250 * 2 ** (attempts - 1)), signal);
  }
  return true;
}

async function reconnect(api, conversation, turn, id, signal) {
  const path = `conversations/${encodeURIComponent(conversation)}/turns/${encodeURIComponent(turn)}/events`;
  try {
    return await api.fetch("GET", path, { headers: id ? { "Last-Event-ID": id } : {}, signal });
  } catch (error) {
    if (error.status === 404) return null;
    throw error;
  }
}

/** Wait for the end of a turn whose events are not available. Resolves to the conversation, which `read()` resolves to. */
export async function waitForEnd(turn, read, { onWait, signal }) {
  for (;;) {
    const stored = await read();
    if (stored.running !== turn) return stored;
    onWait();
    await pause(POLL_INTERVAL, signal);
  }
}

/** Wait for a time, or until the network is back or `signal` is aborted. */
function pause(milliseconds, signal) {
  return new Promise((resolve) => {
    const end = () => {
      clearTimeout(timer);
      removeEventListener("online", end);
      signal?.removeEventListener("abort", end);
      resolve();
    };
    const timer = setTimeout(end, milliseconds);
    addEventListener("online", end);
    signal?.addEventListener("abort", end);
  });
}
