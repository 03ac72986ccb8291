// The form a server asks to be filled in: a flat JSON Schema (MCP 2025-11-25, "Elicitation"), nothing in it trusted.

import { button, el } from "./dom.js";
import { visible } from "./unseen.js";

const TYPES = { email: "email", uri: "url", date: "date", "date-time": "datetime-local" };

/** Make the form of a question; `answer` is given {action, content}. */
export function formOf(ask, answer) {
  const properties = Object.entries(ask.schema?.properties ?? {});
  const required = new Set(Array.isArray(ask.schema?.required) ? ask.schema.required : []);
  const fields = properties.map(([name, about], at) => {
    return fieldOf(name, about ?? {}, { isRequired: required.has(name), initial: ask.defaults?.[name], at });
  });
  const send = (event) => {
    event.preventDefault();
    const filled = fields.map(({ name, read }) => [name, read()]).filter(([, value]) => value !== undefined);
    answer({ action: "accept", content: Object.fromEntries(filled) });
  };
  return el("form.ask-form", { onsubmit: send }, ...fields.map(({ element }) => element),
    el("div.ask-buttons", {},
      el("button.button.primary", {}, "Send"),
      button("Decline", () => answer({ action: "decline" })),
      button("Not now", () => answer({ action: "cancel" }))));
}

function fieldOf(name, about, { isRequired, initial, at }) {
  const id = `ask-field-${at}`;
  const title = visible(String(about.title || name)) + (isRequired ? "" : " (optional)");
  const hint = about.description ? el("p.quiet", { id: `${id}-hint` }, visible(String(about.description))) : null;
  const known = { id, required: isRequired, "aria-describedby": hint ? `${id}-hint` : null };
  if (about.type === "boolean") {
    const box = el("input", { type: "checkbox", id, checked: initial === true });
    return { name, read: () => box.checked, element: el("div.field.check", {}, box, el("label", { for: id }, title), hint) };
  }
  const { control, read } = about.type === "array" ? many(about, initial, title) : one(about, initial, known);
  const label = about.type === "array" ? null : el("label", { for: id }, title);
  return { name, read, element: el("div.field", {}, label, control, hint) };
}

function one(about, initial, known) {
  const choices = choicesOf(about);
  if (choices.length) {
    const none = el("option", { value: "" }, "Choose…");
    const options = choices.map(({ value, title }) => el("option", { value, selected: value === initial }, visible(title)));
    const select = el("select", known, none, ...options);
    return { control: select, read: () => select.value || undefined };
  }
  const isNumber = about.type === "integer" || about.type === "number";
  const type = isNumber ? "number" : TYPES[about.format] ?? "text";
  const input = el("input", {
    ...known, type, value: initial ?? null, autocomplete: "off",
    step: isNumber ? (about.type === "integer" ? 1 : "any") : null, min: about.minimum ?? null, max: about.maximum ?? null,
    minlength: about.minLength ?? null, maxlength: about.maxLength ?? null,
  });
  const read = () => {
    if (input.value === "") return undefined;
    if (type === "datetime-local") return new Date(input.value).toISOString();
    return isNumber ? Number(input.value) : input.value;
  };
  return { control: input, read };
}

function many(about, initial, title) {
  const chosen = new Set(Array.isArray(initial) ? initial : []);
  const boxes = choicesOf(about.items ?? {}).map(({ value, title: name }) => {
    const box = el("input", { type: "checkbox", value, checked: chosen.has(value) });
    return { box, element: el("label.check", {}, box, visible(name)) };
  });
  const control = el("fieldset", {}, el("legend", {}, title), ...boxes.map(({ element }) => element));
  return { control, read: () => boxes.filter(({ box }) => box.checked).map(({ box }) => box.value) };
}

/** Give the values of an enumeration, in any of the ways the revisions of MCP have for them. */
function choicesOf(about) {
  const titled = [about.oneOf, about.anyOf].find(Array.isArray);
  if (titled) {
    const named = titled.filter((one) => typeof one?.const === "string");
    return named.map((one) => ({ value: one.const, title: String(one.title || one.const) }));
  }
  const values = Array.isArray(about.enum) ? about.enum.filter((value) => typeof value === "string") : [];
  return values.map((value, at) => ({ value, title: String(about.enumNames?.[at] ?? value) }));
}
