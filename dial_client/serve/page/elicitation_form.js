// The form of an elicitation: a flat JSON Schema (MCP 2025-11-25, "Elicitation"). Nothing in it is trusted.

import { createButton, el } from "./dom.js";
import { readNumber } from "./exact_json.js";
import { escapeInvisible } from "./invisible_characters.js";
import { translate } from "./language.js";

const toText = (number) => JSON.stringify(number) ?? null;
const TYPES = { email: "email", uri: "url", date: "date", "date-time": "datetime-local" };

/** Return the form of an elicitation; `answer({action, content})` sends the user's answer. */
export function renderForm(elicitation, answer) {
  const properties = Object.entries(elicitation.schema?.properties ?? {});
  const required = new Set(Array.isArray(elicitation.schema?.required) ? elicitation.schema.required : []);
  const fields = properties.map(([name, schema], at) => {
    return renderField(name, schema ?? {}, { isRequired: required.has(name), initial: elicitation.defaults?.[name], at });
  });
  const onsubmit = (event) => {
    event.preventDefault();
    const values = fields.map(({ name, read }) => [name, read()]).filter(([, value]) => value !== undefined);
    answer({ action: "accept", content: Object.fromEntries(values) });
  };
  return el("form.request-form", { onsubmit }, ...fields.map(({ element }) => element),
    el("div.request-buttons", {},
      el("button.button.primary", {}, translate("send")),
      createButton(translate("decline"), () => answer({ action: "decline" })),
      createButton(translate("elicitation.later"), () => answer({ action: "cancel" }))));
}

function renderField(name, schema, { isRequired, initial, at }) {
  const id = `request-field-${at}`;
  const own = escapeInvisible(String(schema.title || name));
  const title = isRequired ? own : translate("optional", { name: own });
  const hint = schema.description ? el("p.quiet", { id: `${id}-hint` }, escapeInvisible(String(schema.description))) : null;
  const attributes = { id, required: isRequired, "aria-describedby": hint ? `${id}-hint` : null };
  if (schema.type === "boolean") {
    const box = el("input", { type: "checkbox", id, checked: initial === true });
    const label = el("label.check", {}, box, title);
    return { name, read: () => box.checked, element: el("div.field", {}, label, hint) };
  }
  const isList = schema.type === "array";
  const render = () => (isList ? renderMultipleChoice(schema, initial, title) : renderInput(schema, initial, attributes));
  const { control, read } = render();
  const label = isList ? null : el("label", { for: id }, title);
  return { name, read, element: el("div.field", {}, label, control, hint) };
}

function renderInput(schema, initial, attributes) {
  const choices = readChoices(schema);
  if (choices.length) {
    const empty = el("option", { value: "" }, translate("elicitation.choose"));
    const options = choices.map(({ value, title }) => {
      return el("option", { value, selected: value === initial }, escapeInvisible(title));
    });
    const select = el("select", attributes, empty, ...options);
    return { control: select, read: () => select.value || undefined };
  }
  const isNumber = schema.type === "integer" || schema.type === "number";
  const type = isNumber ? "number" : TYPES[schema.format] ?? "text";
  const input = el("input", {
    ...attributes, type, value: isNumber ? toText(initial) : initial ?? null, autocomplete: "off",
    step: isNumber ? (schema.type === "integer" ? 1 : "any") : null,
    min: toText(schema.minimum), max: toText(schema.maximum),
    minlength: schema.minLength ?? null, maxlength: schema.maxLength ?? null,
  });
  const read = () => {
    if (input.value === "") return undefined;
    if (type === "datetime-local") return new Date(input.value).toISOString();
    return isNumber ? readNumber(input.value) : input.value;
  };
  return { control: input, read };
}

function renderMultipleChoice(schema, initial, title) {
  const chosen = new Set(Array.isArray(initial) ? initial : []);
  const boxes = readChoices(schema.items ?? {}).map(({ value, title: name }) => {
    const box = el("input", { type: "checkbox", value, checked: chosen.has(value) });
    return { box, element: el("label.check", {}, box, escapeInvisible(name)) };
  });
  const control = el("fieldset", {}, el("legend", {}, title), ...boxes.map(({ element }) => element));
  return { control, read: () => boxes.filter(({ box }) => box.checked).map(({ box }) => box.value) };
}

/** Return the values of an enumeration in any form that the revisions of MCP define. */
function readChoices(schema) {
  const titled = [schema.oneOf, schema.anyOf].find(Array.isArray);
  if (titled) {
    const named = titled.filter((option) => typeof option?.const === "string");
    return named.map((option) => ({ value: option.const, title: String(option.title || option.const) }));
  }
  const values = Array.isArray(schema.enum) ? schema.enum.filter((value) => typeof value === "string") : [];
  return values.map((value, at) => ({ value, title: String(schema.enumNames?.[at] ?? value) }));
}
