// Links to conversations and messages: #/c/ID and #/c/ID/POSITION, with the position of the message in the store. Links
// of earlier versions, #/ID, are read too.

/** Return the URL hash of a conversation; the id of a new conversation is "". */
export const toHash = (id) => (id ? `#/c/${encodeURIComponent(id)}` : "#/");

/** Return {id, position} from the page's address: `id` is "" for a new conversation, `position` null without a message. */
export function readHash() {
  const [, id = "", position] = /^#\/(?:c\/)?([^/]*)(?:\/(\d+))?$/.exec(location.hash) ?? [];
  return { id: decode(id), position: position === undefined ? null : Number(position) };
}

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** Return the address of a message of the open conversation. */
export function createMessageLink(position) {
  return new URL(`${toHash(readHash().id)}/${position}`, location.href).href;
}

/** Show all turns of a conversation; a long one begins with a button for earlier turns. */
export function showAllTurns(transcript) {
  for (let button; (button = transcript.querySelector(":scope > .earlier"));) button.click();
}

/** Scroll to the message at a position, and show its version first. Resolves to false if there is no such message. */
export async function revealMessage(transcript, position) {
  const find = () => transcript.element.querySelector(`[data-position="${position}"]`);
  if (!find()) showAllTurns(transcript.element);
  if (!find()) await transcript.switchTo(position).then(() => showAllTurns(transcript.element), () => {});
  const turn = find();
  if (!turn) return false;
  turn.scrollIntoView({ block: "start" });
  turn.tabIndex = -1;
  turn.focus({ preventScroll: true });
  return true;
}
