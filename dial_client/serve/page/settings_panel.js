// The settings of a conversation: its model, instructions, tools and limits. Presets are kept in this browser.

import { showToast } from "./dialogs.js";
import { createButton, createIconButton, el } from "./dom.js";
import { escapeInvisible } from "./invisible_characters.js";
import { formatNumber, translate } from "./language.js";
import { describeError } from "./descriptions.js";

const PRESETS = "dial-presets";
const FORMATS = ["auto", "native", "react", "xml", "code"];

const formatPrice = (price) => formatNumber(price, { minimumFractionDigits: 2, maximumFractionDigits: 2 });

/** Describe a model: "262,144 tokens, $0.30 input and $1.20 output per million tokens, no images". */
function describeModel(model) {
  const { context_window: window, input_usd_per_million: input, output_usd_per_million: output } = model;
  return [
    model.model !== model.name ? model.model : "",
    window ? translate("usage.tokens", { count: window }) : "",
    typeof input === "number" && typeof output === "number"
      ? translate("model.price", { input: formatPrice(input), output: formatPrice(output) }) : "",
    model.tools === "text" ? translate("model.text_tools") : "",
    model.images === false ? translate("model.no_images") : "",
    model.documents ? translate("model.documents") : "",
  ].filter(Boolean).join(", ");
}

function readPresets() {
  try {
    return Object.entries(JSON.parse(localStorage.getItem(PRESETS) ?? "{}"));
  } catch {
    return [];
  }
}

function createLabelled(label, field, hint = null) {
  return el("label.setting", {}, el("span", {}, label), field, hint);
}

/** Return the settings of one subject; null if all of them are fixed. */
function createGroup(legend, settings) {
  const free = settings.filter(Boolean);
  return free.length ? el("fieldset", {}, el("legend", {}, legend), ...free) : null;
}

function createNumber(value, min, max, step = 1) {
  return el("input", { type: "number", min, max, step, value: value ?? "", placeholder: translate("settings.standard") });
}

const toNumber = (field) => (field.value === "" ? null : Number(field.value));

/**
 * Open the dialog. `settings`: the conversation's settings. `save(settings)` stores them. The lists of models and tools
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
      el("h2", { id: "settings-title" }, translate("settings.title")),
      createIconButton("cross", translate("close"), close)),
    el("form", { onsubmit: submit }, ...form.elements, renderPresets(form, show),
      el("div.dialog-buttons", {},
        createButton(translate("settings.reset"), () => show({})), createButton(translate("cancel"), close),
        el("button.button.primary", {}, translate("save")))));
  document.body.append(dialog);
  dialog.showModal();
}

function renderPresets(form, show) {
  const name = el("input", {
    type: "text", maxlength: "60", "aria-label": translate("preset.name"), placeholder: translate("name"),
  });
  const saved = readPresets();
  const onchange = () => list.value && show(saved[Number(list.value)][1]);
  const list = el("select", { "aria-label": translate("preset"), onchange },
    el("option", { value: "" }, translate(saved.length ? "preset.choose" : "preset.none")),
    ...saved.map(([title], at) => el("option", { value: String(at) }, title)));
  const store = () => {
    if (!name.value.trim()) return name.focus();
    const presets = { ...Object.fromEntries(readPresets()), [name.value.trim()]: form.read() };
    localStorage.setItem(PRESETS, JSON.stringify(presets));
    showToast(translate("preset.saved"));
    return null;
  };
  const legend = el("legend", {}, translate("preset.title"));
  return el("fieldset.presets", {}, legend, list, name, createButton(translate("preset.save"), store));
}

function createForm(settings, { models, default: standard, locked }, tools) {
  const isFree = (name) => !locked.includes(name);
  const hint = el("span.quiet", { id: "model-hint" });
  const model = el("select", { "aria-describedby": "model-hint", onchange: () => describe() },
    el("option", { value: "", disabled: !standard.is_allowed },
      translate("settings.standard_model", { model: escapeInvisible(standard.name) })),
    ...models.map(({ name }) => {
      return el("option", { value: name, selected: name === settings.model }, escapeInvisible(name));
    }));
  const describe = () => {
    const found = models.find(({ name }) => name === (model.value || standard.profile));
    hint.textContent = found ? escapeInvisible(describeModel(found)) : "";
  };
  describe();
  const system = el("textarea", {
    rows: "4", "aria-label": translate("settings.system"), placeholder: translate("settings.standard"),
  });
  system.value = settings.system ?? "";
  const format = el("select", {}, el("option", { value: "" }, translate("settings.standard")),
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
  const names = locked.join(", ").replaceAll("_", " ");
  const elements = [
    createGroup(translate("settings.model"), [
      isFree("model") && createLabelled(translate("settings.model"), model, hint),
      isFree("temperature") && createLabelled(translate("settings.temperature"), temperature),
      isFree("max_tokens") && createLabelled(translate("settings.max_tokens"), tokens),
      isFree("tool_format") && createLabelled(translate("settings.tool_format"), format),
    ]),
    createGroup(translate("settings.system"), [isFree("system") && system]),
    createGroup(translate("settings.limits"), [
      isFree("limits") && createLabelled(translate("settings.max_depth"), depth),
      isFree("limits") && createLabelled(translate("settings.timeout"), timeout),
    ]),
    isFree("disabled_tools") && isFree("disabled_servers") && picker.element,
    locked.length ? el("p.quiet", {}, translate("settings.locked", { names })) : null,
  ].filter(Boolean);
  const read = () => {
    const free = Object.entries(all).filter(([name]) => isFree(name));
    return Object.fromEntries(free.map(([name, value]) => [name, value()]));
  };
  return { elements, read };
}

/**
 * Checkboxes of servers and their tools. Disabling a server disables its tools, too. Disabled servers and tools that are
 * not offered now, such as the tools of a server that is starting, stay disabled.
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
    if (!servers.has(server)) servers.set(server, create(server || translate("settings.host"), isServerOn));
    boxes.set(name, { server, ...create(name, !settings.disabled_tools?.includes(name)) });
  }
  const sorted = [...servers].sort(([one], [other]) => one.localeCompare(other));
  const sections = sorted.map(([server, { box, element }]) => {
    const own = [...boxes.values()].filter((entry) => entry.server === server);
    const list = el("div.choices", {}, ...own.map((entry) => entry.element));
    const update = () => own.forEach((entry) => (entry.box.disabled = !box.checked));
    box.addEventListener("change", update);
    update();
    const summary = el("summary", {}, translate("servers.tools", { count: own.length }));
    return el("div", {}, element, el("details", {}, summary, list));
  });
  const off = (entries, before = []) => [
    ...before.filter((name) => !entries.has(name)),
    ...[...entries].filter(([, { box }]) => !box.checked).map(([name]) => name),
  ];
  const content = sections.length ? sections : [el("p.quiet", {}, translate("settings.no_tools"))];
  return {
    element: el("fieldset", {}, el("legend", {}, translate("settings.tools")), ...content),
    servers: () => off(servers, settings.disabled_servers),
    tools: () => off(boxes, settings.disabled_tools),
  };
}
