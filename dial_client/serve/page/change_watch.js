// Polls for changes that other browsers and programs make to a conversation.

/** Milliseconds between two polls. */
const INTERVAL = 2_000;

/**
 * Call `onChange()` whenever the server's state of the conversation differs from the state that is shown. `hooks`:
 * {isIdle(), readState(), shown()}. Returns a function that stops polling.
 */
export function watchChanges({ isIdle, readState, shown }, onChange) {
  let isPolling = false;
  const poll = async () => {
    if (isPolling || document.hidden || !isIdle()) return;
    isPolling = true;
    const before = shown();
    const state = await readState().catch(() => before);
    if (state !== before && shown() === before && isIdle()) await onChange().catch(() => {});
    isPolling = false;
  };
  const timer = setInterval(poll, INTERVAL);
  return () => clearInterval(timer);
}
