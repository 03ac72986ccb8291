// Polls for changes that other browsers and programs make to a conversation.

/** Milliseconds between two polls. */
const INTERVAL = 2_000;

/**
 * Call `onChange()` whenever the server's state of the conversation differs from the state that is shown. `hooks`:
 * {isIdle(), readState(), shown()}. Returns a function that stops polling.
 */
export function watchChanges({ isIdle, readState, shown }, onChange) {
  const poll = async () => {
    if (document.hidden || !isIdle()) return;
    // A failed poll is repeated; a deleted conversation reports an error when it is used.
    const state = await readState().catch(() => null);
    if (state !== null && state !== shown() && isIdle()) await onChange().catch(() => {});
  };
  const timer = setInterval(poll, INTERVAL);
  return () => clearInterval(timer);
}
