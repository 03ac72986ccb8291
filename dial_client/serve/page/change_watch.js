// Looks for what other browsers and programs do to a conversation.

/** Milliseconds between two looks. */
const INTERVAL = 2_000;

/**
 * Call `onChange()` whenever the state of the conversation at the server is not the one shown. `hooks`: {isIdle(),
 * readState(), shown()}. Returns a function that ends the watch.
 */
export function watchChanges({ isIdle, readState, shown }, onChange) {
  const look = async () => {
    if (document.hidden || !isIdle()) return;
    // A look that fails is repeated; a conversation that was deleted says so when it is used.
    const state = await readState().catch(() => null);
    if (state !== null && state !== shown() && isIdle()) await onChange().catch(() => {});
  };
  const timer = setInterval(look, INTERVAL);
  return () => clearInterval(timer);
}
