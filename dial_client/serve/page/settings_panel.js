// The settings of a conversation: its model, instructions, tools and limits. Presets are kept in this browser.

import { showToast } from "./dialogs.js";
import { createButton, createIconButton, el, formatNumber } from "./dom.js";
import { escapeInvisible } from "./invisible_characters.js";
import { describeError } from "./strings.js";

const PRESETS = "dial-presets";
const FORMATS = ["auto", "native", "react", "xml"];

/** Describe what is known of a model: "262,144 tokens, $0.30 in and $1.20 out for a million tokens, no images". */
export function describeModel(model) {
  const { context_window: window, input_usd_per_million: input, output_usd_per_million: output } = model;
  return [
    model.model !== model.name ? model.model : "",
    window ? `${formatNumber(window)} tokens` : "",
    typeof input === "number" && typeof output === "number"
      ? `$${input.toFixed(2)} in and $${output.toFixed(2)} out for a million tokens` : "",
    model.tools === "text" ? "tools as text" : "",
    model.images === false ? "no images" : "",
    model.documents ? "PDF documents" : "",
  ].filter(Boolean).join(", ");
}

function readPresets() {
  try {
    return Object.entries(JSON.parse(localStorage.getItem(PRESETS) ?? "{}"));
  } catch {
    return [];
  }
}

function labelled(label, field, hint = null) {
  return el("label.setting", {}, el("span", {}, label), field, hint);
}

function createNumber(value, min, max, step = 1) {
  return el("input", { type: "number", min, max, step, value: value ?? "", placeholder: "as the server" });
}

const toNumber = (field) => (field.value === "" ? null : Number(field.value));

/**
 * Open the dialog. `settings`: those of the conversation. `save(settings)` stores them. The lists of models and tools
 * are loaded here.
 */
export async function openSettings(api, { settings, save }) {
  const [choices, { tools }] = await Promise.all([api.fetchJson("GET", "models"), api.fetchJson("GET", "tools")]);
  const form = createForm(settings, choices, tools);
  const dialog = el("dialog.panel.settings", { "aria-labelledby": "settings-title", onclose: () => dialog.remove() });
  const close = () => dialog.close();
  const submit = async (event) => {
    event.preventDefault();
    try {
      await save(form.read());
      close();
    } catch (error) {
      showToast(describeError(error));
    }
  };
  const show = (preset) => {
    dialog.remove();
    openSettings(api, { settings: preset, save }).catch((error) => showToast(describeError(error)));
  };
  dialog.append(
    el("header", { role: "none" },
      el("h2", { id: "settings-title" }, "Settings of this conversation"),
      createIconButton("cross", "Close", close)),
    el("form", { onsubmit: submit }, renderPresets(form, show), ...form.elements,
      el("div.dialog-buttons", {}, createButton("Reset", () => show({})), createButton("Cancel", close),
        el("button.button.primary", {}, "Save"))));
  document.body.append(dialog);
  dialog.showModal();
}

function renderPresets(form, show) {
  const name = el("input", { type: "text", maxlength: "60", "aria-label": "Name of the preset", placeholder: "Name" });
  const saved = readPresets();
  const onchange = () => list.value && show(saved[Number(list.value)][1]);
  const list = el("select", { "aria-label": "Preset", onchange },
    el("option", { value: "" }, saved.length ? "Choose a preset" : "No presets yet"),
    ...saved.map(([title], at) => el("option", { value: String(at) }, title)));
  const store = () => {
    if (!name.value.trim()) return name.focus();
    const presets = { ...Object.fromEntries(readPresets()), [name.value.trim()]: form.read() };
    localStorage.setItem(PRESETS, JSON.stringify(presets));
    showToast("Saved in this browser");
    return null;
  };
  return el("fieldset.presets", {}, el("legend", {}, "Presets"), list, name, createButton("Save as preset", store));
}

function createForm(settings, { models, default: standard, locked }, tools) {
  const isFree = (name) => !locked.includes(name);
  const hint = el("span.quiet", { id: "model-hint" });
  const model = el("select", { "aria-describedby": "model-hint", onchange: () => describe() },
    el("option", { value: "" }, `${escapeInvisible(standard.name)} (of the server)`),
    ...models.map(({ name }) => {
      return el("option", { value: name, selected: name === settings.model }, escapeInvisible(name));
    }));
  const describe = () => {
    const found = models.find(({ name }) => name === (model.value || standard.profile));
    hint.textContent = found ? escapeInvisible(describeModel(found)) : "";
  };
  describe();
  const system = el("textarea", { rows: "4", placeholder: "as the server" });
  system.value = settings.system ?? "";
  const format = el("select", {}, el("option", { value: "" }, "as the server"),
    ...FORMATS.map((name) => el("option", { value: name, selected: name === settings.tool_format }, name)));
  const temperature = createNumber(settings.temperature, 0, 2, "any");
  const tokens = createNumber(settings.max_tokens, 1, 10_000_000);
  const depth = createNumber(settings.limits?.max_depth, 0, 100);
  const timeout = createNumber(settings.limits?.timeout, 1, 3600);
  const picker = createToolPicker(settings, tools);
  const { max_depth: _depth, timeout: _timeout, ...otherLimits } = settings.limits ?? {};
  const limits = () => ({
    ...otherLimits,
    ...(depth.value === "" ? {} : { max_depth: toNumber(depth) }),
    ...(timeout.value === "" ? {} : { timeout: toNumber(timeout) }),
  });
  const all = {
    model: () => model.value,
    system: () => system.value.trim(),
    temperature: () => toNumber(temperature),
    tool_format: () => format.value,
    max_tokens: () => toNumber(tokens),
    limits,
    disabled_servers: picker.servers,
    disabled_tools: picker.tools,
  };
  const elements = [
    isFree("model") && labelled("Model", model, hint),
    isFree("system") && labelled("Instructions", system),
    isFree("temperature") && labelled("Temperature", temperature),
    isFree("tool_format") && labelled("Tool format", format),
    isFree("max_tokens") && labelled("Tokens of a reply", tokens),
    isFree("limits") && labelled("Rounds of tool calls", depth),
    isFree("limits") && labelled("Seconds of a turn", timeout),
    isFree("disabled_tools") && isFree("disabled_servers") && picker.element,
    locked.length ? el("p.quiet", {}, `Fixed by the operator: ${locked.join(", ").replaceAll("_", " ")}.`) : null,
  ].filter(Boolean);
  const read = () => {
    const free = Object.entries(all).filter(([name]) => isFree(name));
    return Object.fromEntries(free.map(([name, value]) => [name, value()]));
  };
  return { elements, read };
}

/**
 * Checkboxes of servers and their tools. Tools of a server that is off are off too. What is off and not offered now, such
 * as the tools of a server that is starting, stays off.
 */
function createToolPicker(settings, tools) {
  const boxes = new Map();
  const servers = new Map();
  const create = (label, isOn) => {
    const box = el("input", { type: "checkbox" });
    box.checked = isOn;
    return { box, element: el("label.choice", {}, box, escapeInvisible(label)) };
  };
  for (const { name, server } of tools) {
    const isServerOn = !settings.disabled_servers?.includes(server);
    if (!servers.has(server)) servers.set(server, create(server || "this program", isServerOn));
    boxes.set(name, { server, ...create(name, !settings.disabled_tools?.includes(name)) });
  }
  const sections = [...servers].map(([server, { box, element }]) => {
    const own = [...boxes.values()].filter((entry) => entry.server === server);
    const list = el("div.choices", {}, ...own.map((entry) => entry.element));
    const update = () => own.forEach((entry) => (entry.box.disabled = !box.checked));
    box.addEventListener("change", update);
    update();
    return el("div", {}, element, el("details", {}, el("summary", {}, `${own.length} tools`), list));
  });
  const off = (entries, before = []) => [
    ...before.filter((name) => !entries.has(name)),
    ...[...entries].filter(([, { box }]) => !box.checked).map(([name]) => name),
  ];
  const content = sections.length ? sections : [el("p.quiet", {}, "No tools")];
  return {
    element: el("fieldset", {}, el("legend", {}, "Tools"), ...content),
    servers: () => off(servers, settings.disabled_servers),
    tools: () => off(boxes, settings.disabled_tools),
  };
}
