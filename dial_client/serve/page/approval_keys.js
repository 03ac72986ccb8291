// The keys y, n and e for the request that is shown. Keys that were typed ahead, or into a field, have no effect.

/** Milliseconds without a key, since the request appeared, before a key has an effect. */
const QUIET = 700;
const FIELDS = "input, textarea, select, [contenteditable]";

/** Let keys press the buttons of the request in a container. */
export function connectApprovalKeys(container) {
  let quietSince = performance.now();
  const restart = () => { quietSince = performance.now(); };
  new MutationObserver(restart).observe(container, { childList: true });
  // Called before all other listeners: a key that a field handles counts as typing, too.
  addEventListener("keydown", (event) => {
    const isQuiet = performance.now() - quietSince >= QUIET;
    restart();
    const isBlocked = container.inert || document.querySelector("dialog[open], .menu");
    if (isQuiet && isPlain(event) && !isBlocked) press(container, event);
  }, true);
}

const isPlain = (event) => !event.repeat && !event.isComposing && !event.ctrlKey && !event.metaKey && !event.altKey
  && !event.target.closest?.(FIELDS);

function press(container, event) {
  const control = container.querySelector(`[data-shortcut="${CSS.escape(event.key.toLowerCase())}"]`);
  if (!control) return;
  event.preventDefault();
  if (control.matches("input")) control.focus();
  else control.click();
}
