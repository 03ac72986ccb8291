// The switch between the versions of a question or an answer: ‹ 2/3 ›.

import { createIconButton, el } from "./dom.js";
import { translate } from "./language.js";

const LABELS = {
  message: { previous: "version.previous_message", next: "version.next_message", current: "version.message" },
  answer: { previous: "version.previous_answer", next: "version.next_answer", current: "version.answer" },
};

/**
 * Create the switch. `versions`: {positions, current}, where `current` is null if none of them is shown.
 * `onSwitch(position)` shows another version.
 */
function renderVersions({ positions, current }, kind, onSwitch) {
  // A shown version without a position, such as an answer that failed, counts as the last one.
  const count = positions.length + (current === null ? 1 : 0);
  const at = current ?? count - 1;
  const go = (index) => () => onSwitch(positions[index]);
  const previous = createIconButton("back", translate(LABELS[kind].previous), go(at - 1));
  const next = createIconButton("chevron", translate(LABELS[kind].next), go(at + 1));
  previous.disabled = at === 0;
  next.disabled = at >= positions.length - 1;
  const label = translate(LABELS[kind].current, { number: at + 1, total: count });
  const number = el("span.version-number", { "aria-hidden": "true" }, `${at + 1}/${count}`);
  return el("span.versions", { role: "group", "aria-label": label }, previous, number, next);
}

/** Return the entries of a ButtonRow for the switch: none without versions. Each state of the switch has its own key. */
export function listVersions(versions, kind, onSwitch) {
  if (!versions) return [];
  return [[`versions ${JSON.stringify(versions)}`, () => renderVersions(versions, kind, onSwitch)]];
}
