// Sends a queued message when its conversation is free. Other tabs and browsers may send to the conversation, too.

/** Attempts to send a message, if another turn starts before it each time. */
const MAX_ATTEMPTS = 5;

/**
 * Send a message with `send()`, which resolves to true if the server accepted it, to false if not, and to null if another
 * turn was running. Resolves to the same value. After null, the transcript follows the other turn, and the message can be
 * sent at the end of that turn.
 */
export async function sendWhenFree(transcript, send) {
  for (let attempt = 0; attempt < MAX_ATTEMPTS; attempt += 1) {
    await transcript.catchUp();
    if (transcript.isRunning) return null;
    const isAccepted = await send();
    if (isAccepted !== null) return isAccepted;
    if (transcript.isRunning) return null;
  }
  return false;
}
