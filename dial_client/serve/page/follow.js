// Following a turn to its end, over as many connections as it takes.

import { Refused, eventsOf } from "./api.js";

/** Connections in a row that may fail before it is given up: about two minutes. */
const TRIES = 20;
const LONGEST_PAUSE = 8_000;
/** The position by which the first event of a turn has come; not every one of them is sent. */
const FIRST = 10;

/**
 * Hand each event of a turn to `take({name, data})`; true when the turn is over, false when the conversation has to be
 * read instead: the turn's process is gone, or its events are, or the first of them (a server keeps so many and no more).
 *
 * `answer` is the answer that already carries the events, or null to ask for all of them from the beginning.
 * `lost(isLost)` hears when the connection breaks, and when it is back.
 */
export async function follow(api, { conversation, turn, answer }, take, { lost, signal }) {
  const reading = { id: null, isWhole: true };
  let tries = 0;
  let isLeft = false;
  while (!signal.aborted) {
    try {
      answer ??= await again(api, conversation, turn, reading.id, signal);
      lost(false);
      if (answer === null) return false;
      for await (const event of eventsOf(answer)) {
        tries = 0;
        if (reading.id === null && event.id) reading.isWhole = Number(event.id.split(":").at(-1)) <= FIRST;
        reading.id = event.id ?? reading.id;
        if (event.data === "[DONE]") return reading.isWhole;
        const data = JSON.parse(event.data);
        if (event.name === "error" && data.type === "TurnLost") return false;
        if (event.name === "error" && data.type === "ConversationBusy") {
          // Its server is about to leave, and another one goes on with it; one that stays says so again.
          if (isLeft) return false;
          isLeft = true;
          break;
        }
        take({ name: event.name, data });
      }
    } catch (error) {
      if (signal.aborted) break;
      if (!(error instanceof Refused || error instanceof TypeError) || error.status === 403) throw error;
    }
    answer = null;
    tries += 1;
    if (tries > TRIES) throw new Refused("The connection to the server is lost.");
    if (tries > 1) lost(true);
    await pause(Math.min(LONGEST_PAUSE, 250 * 2 ** (tries - 1)), signal);
  }
  return true;
}

async function again(api, conversation, turn, id, signal) {
  const path = `conversations/${encodeURIComponent(conversation)}/turns/${encodeURIComponent(turn)}/events`;
  try {
    return await api.ask("GET", path, { headers: id ? { "Last-Event-ID": id } : {}, signal });
  } catch (error) {
    if (error.status === 404) return null;
    throw error;
  }
}

/** Wait, but no longer than until the network is back or the person is. */
export function pause(milliseconds, signal) {
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
