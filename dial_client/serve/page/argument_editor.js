// A form for the arguments of a tool, from its JSON Schema. A server wrote the schema: its names and texts are plain text.
// A field that the user does not change keeps its exact value.

import { el } from "./dom.js";
import { isObject, parseJson } from "./exact_json.js";
import { escapeInvisible } from "./invisible_characters.js";
import { translate } from "./language.js";

const MAX_ROWS = 12;
const MAX_HINT = 300;
let lastNumber = 0;

export class ArgumentEditor {
  element = el("div.argument-editor", {});
  #fields;
  #whole = null;

  /** `schema`: the schema of all arguments. `args`: the initial arguments. */
  constructor(schema, args = {}) {
    const properties = isObject(schema?.properties) ? schema.properties : {};
    const required = new Set(Array.isArray(schema?.required) ? schema.required : []);
    const names = [...new Set([...Object.keys(args), ...Object.keys(properties)])];
    this.#fields = names.map((name) => {
      const own = Object.hasOwn(properties, name) && isObject(properties[name]) ? properties[name] : {};
      const isGiven = Object.hasOwn(args, name);
      return new Field(name, own, { isRequired: required.has(name), isGiven, value: args[name] });
    });
    const whole = { isRequired: true, isGiven: true, value: {} };
    if (!names.length) this.#whole = new Field(translate("arguments.json"), { type: "object" }, whole);
    this.element.append(...(this.#whole ? [this.#whole] : this.#fields).map(({ element }) => element));
  }

  /** Return `{args, problem}`: the arguments, or the problem of a field. */
  read() {
    try {
      if (this.#whole) {
        const args = this.#whole.read();
        return isObject(args) ? { args, problem: "" } : { args: {}, problem: translate("arguments.not_object") };
      }
      const included = this.#fields.filter((field) => field.isIncluded);
      return { args: Object.fromEntries(included.map((field) => [field.name, field.read()])), problem: "" };
    } catch (error) {
      return { args: {}, problem: error.message };
    }
  }

  focus() {
    this.element.querySelector("textarea, select")?.focus();
  }
}

/** One argument. An optional argument has a box that includes it; typing includes it too. */
class Field {
  element;
  name;
  #value;
  #isGiven;
  #isText;
  #choices;
  #control;
  #initial;
  #box = null;

  constructor(name, ownSchema, { isRequired, isGiven, value }) {
    const schema = withoutNull(ownSchema);
    this.name = name;
    this.#isGiven = isGiven;
    this.#value = isGiven ? value : schema.default;
    const isEmpty = this.#value === undefined || (this.#value === null && schema.isNullable);
    this.#isText = typeof this.#value === "string" || (isEmpty && findType(schema) === "string");
    this.#choices = this.#listChoices(schema);
    const id = `argument-${++lastNumber}`;
    const hint = this.#createHint(schema, id);
    this.#control = this.#createControl({ id, "aria-describedby": hint && `${id}-hint` });
    this.#initial = this.#control.value;
    const optional = el("span.quiet", {}, ` ${isRequired ? "" : translate("arguments.optional")}`);
    const label = el("label", { for: id }, escapeInvisible(name), optional);
    if (!isRequired) {
      const include = translate("arguments.include", { name: escapeInvisible(name) });
      this.#box = el("input", { type: "checkbox", checked: isGiven, "aria-label": include });
      this.#control.addEventListener("input", () => { this.#box.checked = true; });
    }
    this.element = el("div.field", {}, el("div.argument-label", {}, this.#box, label), this.#control, hint);
  }

  get isIncluded() {
    return this.#box?.checked ?? true;
  }

  /** Return the value. Throws an Error with a message for the user if the text is not JSON. */
  read() {
    const text = this.#control.value;
    if (this.#choices) return this.#choices[Number(text)];
    if (text === this.#initial && this.#value !== undefined) return this.#value;
    if (this.#isText) return typeof this.#value === "string" && isCrLf(this.#value) ? text.replaceAll("\n", "\r\n") : text;
    try {
      return parseJson(text);
    } catch {
      throw new Error(translate("arguments.not_json", { name: escapeInvisible(this.name) }));
    }
  }

  #listChoices(schema) {
    const own = Array.isArray(schema.enum) ? schema.enum : schema.type === "boolean" ? [true, false] : null;
    if (!own?.length) return null;
    const listed = schema.isNullable && !own.includes(null) ? [...own, null] : own;
    const isListed = listed.some((choice) => JSON.stringify(choice) === JSON.stringify(this.#value));
    return isListed || !this.#isGiven ? listed : [this.#value, ...listed];
  }

  #createControl(attributes) {
    if (this.#choices) {
      const current = this.#choices.findIndex((choice) => JSON.stringify(choice) === JSON.stringify(this.#value));
      const options = this.#choices.map((choice, at) => {
        const text = typeof choice === "string" ? choice : JSON.stringify(choice);
        return el("option", { value: at, selected: at === Math.max(0, current) }, escapeInvisible(text));
      });
      return el("select", attributes, ...options);
    }
    // A text field that stays empty keeps its null.
    const isNullText = this.#isText && this.#value === null;
    const written = this.#isText ? this.#value : JSON.stringify(this.#value, null, 2);
    const text = this.#value === undefined || isNullText ? "" : written;
    const rows = Math.min(MAX_ROWS, Math.max(1, text.split("\n").length, Math.ceil(text.length / 60)));
    const field = el("textarea", {
      ...attributes, rows, placeholder: isNullText ? "null" : null, spellcheck: "false", autocomplete: "off",
    });
    field.value = text;
    return field;
  }

  #createHint(schema, id) {
    const isPlain = this.#isText || this.#choices;
    const description = typeof schema.description === "string" ? schema.description : "";
    const text = [isPlain ? "" : describeType(findType(schema)), description].filter(Boolean).join(" ");
    return text ? el("p.quiet", { id: `${id}-hint` }, escapeInvisible(text).slice(0, MAX_HINT)) : null;
  }
}

const isCrLf = (text) => text.includes("\r\n") && !/(^|[^\r])\n/.test(text);

const describeType = (type) => (type ? translate("arguments.type", { type }) : translate("arguments.any_type"));

/** Return the schema of a value that may also be null (`anyOf: [{type: "string"}, {type: "null"}]`) as that of the value. */
function withoutNull(schema) {
  const variants = schema.anyOf ?? schema.oneOf;
  if (!Array.isArray(variants) || !variants.every(isObject)) {
    const isNullable = Array.isArray(schema.type) && schema.type.includes("null");
    return { ...schema, isNullable, type: isNullable ? schema.type.find((type) => type !== "null") : schema.type };
  }
  const others = variants.filter(({ type }) => type !== "null");
  if (others.length !== 1 || others.length === variants.length) return schema;
  const { anyOf: _any, oneOf: _one, ...outer } = schema;
  return { ...others[0], ...outer, isNullable: true };
}

function findType(schema) {
  const types = [schema.type].flat().filter((type) => typeof type === "string" && type !== "null");
  return types[0] ?? "";
}
