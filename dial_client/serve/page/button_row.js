// A row of buttons below a message or an answer, which changes when the turn has been stored.

import { el } from "./dom.js";

/**
 * Buttons stay the same elements while other buttons are added or removed. This keeps the focus, a click in progress, and
 * the position of the button under the pointer.
 */
export class ButtonRow {
  #elements = new Map();

  /** `classes`: the classes of the row, such as ".turn-foot". */
  constructor(classes) {
    this.element = el(`div${classes}`);
  }

  /** Show the entries [key, create]; `create` is called once for a key, until the row is updated without that key. */
  update(entries) {
    const keys = new Set(entries.map(([key]) => key));
    for (const [key, element] of this.#elements) {
      if (keys.has(key)) continue;
      element.remove();
      this.#elements.delete(key);
    }
    let next = null;
    for (const [key, create] of [...entries].reverse()) {
      if (!this.#elements.has(key)) {
        this.#elements.set(key, create());
        this.element.insertBefore(this.#elements.get(key), next);
      }
      next = this.#elements.get(key);
    }
  }
}
