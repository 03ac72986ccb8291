// The button before the turns of a long conversation, which shows earlier turns.

import { el } from "./dom.js";
import { translate } from "./language.js";

/** Turns of a long conversation that are shown at first, and with each press of the button. */
export const PAGE_SIZE = 30;

/**
 * Put the button before the turns in `element`. `builders` are functions that build the turns that are not shown yet, in
 * the order of the conversation. `onBuilt(turns)` receives the turns that a press of the button has shown.
 */
export function addEarlierButton(element, builders, onBuilt) {
  if (!builders.length) return;
  const button = el("button.text-button.earlier", {
    type: "button",
    onclick: () => {
      const first = button.nextElementSibling;
      const turns = builders.splice(-PAGE_SIZE).map((build) => build());
      button.remove();
      onBuilt(turns);
      element.prepend(...turns.map((turn) => turn.element));
      addEarlierButton(element, builders, onBuilt);
      first?.scrollIntoView();
    },
  }, translate("turn.earlier", { count: Math.min(PAGE_SIZE, builders.length) }));
  element.prepend(button);
}
