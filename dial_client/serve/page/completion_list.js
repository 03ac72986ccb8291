// A list of proposals above a text field (WAI-ARIA: a text field with a listbox). The field keeps the focus.

import { announce, el } from "./dom.js";
import { escapeInvisible } from "./invisible_characters.js";
import { translate } from "./language.js";

const MAX_SHOWN = 50;

/** Milliseconds after the last key until proposals are requested. */
const DELAY = 60;

/**
 * Connects a field with proposals.
 *
 * `find(text, position)` returns (or resolves to) {from, to, options} or null: the options replace the text from `from`
 * to `to`. An option is {label, detail, badge, insert} with a text to insert, or {…, run} with a function to call
 * after the text was removed.
 */
export class CompletionList {
  #field;
  #find;
  #list;
  #found = null;
  #active = -1;
  #timer;
  #requests = 0;

  constructor(field, { list, find }) {
    this.#field = field;
    this.#list = list;
    this.#find = find;
    field.setAttribute("aria-autocomplete", "list");
    field.setAttribute("aria-controls", list.id);
    field.setAttribute("aria-haspopup", "listbox");
    field.addEventListener("input", () => this.#refreshSoon());
    field.addEventListener("blur", () => this.close());
    // Before other listeners of the field: Enter chooses a proposal and does not send the message.
    field.addEventListener("keydown", (event) => this.#onKeyDown(event), true);
  }

  get isOpen() {
    return this.#found !== null;
  }

  /** True if the text has changed since the proposals were found: they do not fit any more. */
  get #isOutdated() {
    return this.#field.value !== this.#found.text;
  }

  close() {
    clearTimeout(this.#timer);
    this.#requests += 1;
    this.#found = null;
    this.#list.hidden = true;
    this.#list.replaceChildren();
    this.#field.removeAttribute("aria-activedescendant");
  }

  #refreshSoon() {
    clearTimeout(this.#timer);
    const number = (this.#requests += 1);
    this.#timer = setTimeout(async () => {
      const text = this.#field.value;
      const found = await this.#find(text, this.#field.selectionStart);
      if (number !== this.#requests) return;
      if (!found?.options.length) this.close();
      else this.#show({ ...found, text, options: found.options.slice(0, MAX_SHOWN) });
    }, DELAY);
  }

  #show(found) {
    const wasOpen = this.isOpen;
    this.#found = found;
    this.#list.replaceChildren(...found.options.map((option, at) => this.#renderOption(option, at)));
    this.#list.hidden = false;
    this.#activate(0);
    const count = found.options.length;
    if (!wasOpen) announce(translate("completion.count", { count }));
  }

  #renderOption({ label, detail, badge }, at) {
    // A pointer that is pressed on an option must not take the focus from the field.
    const onpointerdown = (event) => event.preventDefault();
    const onclick = () => this.#choose(at);
    const attributes = { id: `${this.#list.id}-${at}`, role: "option", "aria-selected": "false", onpointerdown, onclick };
    return el("div.completion", attributes,
      el("span.completion-label", {}, escapeInvisible(label)),
      badge ? el("span.badge", {}, escapeInvisible(badge)) : null,
      detail ? el("span.completion-detail.quiet", {}, escapeInvisible(detail)) : null);
  }

  #activate(at) {
    this.#list.children[this.#active]?.setAttribute("aria-selected", "false");
    this.#active = at;
    const option = this.#list.children[at];
    option.setAttribute("aria-selected", "true");
    option.scrollIntoView({ block: "nearest" });
    this.#field.setAttribute("aria-activedescendant", option.id);
  }

  #onKeyDown(event) {
    if (!this.isOpen || event.isComposing) return;
    if (this.#isOutdated) return this.close();
    const count = this.#found.options.length;
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) this.#activate((this.#active + step + count) % count);
    else if (event.key === "Escape") this.close();
    else if (["Enter", "Tab"].includes(event.key) && !event.shiftKey) this.#choose(this.#active);
    else return;
    event.preventDefault();
    event.stopImmediatePropagation();
  }

  #choose(at) {
    if (this.#isOutdated) return this.close();
    const { from, to, options } = this.#found;
    const { insert = "", run } = options[at];
    this.close();
    this.#field.setRangeText(insert, from, to, "end");
    this.#field.dispatchEvent(new Event("input"));
    this.#field.focus();
    run?.();
  }
}
