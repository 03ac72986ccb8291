// Sends a queued message when its conversation is free. Other tabs and browsers may send to the conversation, too.

/** Attempts to send a message that came second each time. */
const MAX_ATTEMPTS = 5;

/**
 * Send a message with `send()`, which resolves to true if the server accepted it, to false if not, and to null if another
 * turn was running. Resolves to the same; to null the conversation follows that turn, whose end is the next opportunity.
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
