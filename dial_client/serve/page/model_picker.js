// The choice of the model beside the message field. It applies from the next answer on.

import { byId, el } from "./dom.js";
import { escapeInvisible } from "./invisible_characters.js";
import { translate } from "./language.js";

export class ModelPicker {
  #select = byId("model-picker");
  #models = [];
  #standard = { name: "", profile: null, is_allowed: true };
  #shown = null;

  /** `choose(name)` is called with the name of a profile, or with null for the standard model. */
  constructor(choose) {
    this.#select.addEventListener("change", () => choose(this.#select.value || null));
  }

  /** Load the models. An operator who has fixed the model lists none: the name of the model is shown, and no choice. */
  async load(api) {
    const choices = await api.fetchJson("GET", "models").catch(() => null);
    if (!choices) return;
    this.#models = choices.models.map(({ name }) => name);
    this.#standard = choices.default;
    this.show(this.#shown);
  }

  /** Show the model of a conversation; null for the standard model. */
  show(model) {
    this.#shown = model;
    const { name: standard, profile, is_allowed: isAllowed } = this.#standard;
    const names = this.#models.filter((name) => name !== profile);
    if (model && model !== profile && !names.includes(model)) names.push(model);
    const options = [["", standard], ...names.map((name) => [name, name])].map(([value, name]) => {
      return el("option", { value, disabled: !value && !isAllowed }, escapeInvisible(name));
    });
    this.#select.replaceChildren(...options);
    this.#select.value = model && model !== profile ? model : "";
    this.#select.hidden = !standard;
    this.#select.disabled = options.length < 2;
    this.#select.title = `${translate("settings.model")}: ${this.#select.selectedOptions[0].text}`;
  }
}
