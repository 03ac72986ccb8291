// Forms for the arguments of a server's prompt, and for the variables of a resource template, with completion by the server.
//
// A server's description of a prompt is plain text. The filled-in prompt goes into the message field: the user sends it.

import { byId, createButton, el } from "./dom.js";
import { escapeInvisible } from "./invisible_characters.js";
import { isText, toText } from "./content_parts.js";
import { translate } from "./language.js";
import { describeError } from "./descriptions.js";

const DELAY = 150;

/** Open the form of a prompt; `insert({text, files, taint})` gets the result. Without arguments it is submitted at once. */
export function openPromptForm(api, prompt, insert) {
  const { server, name } = prompt;
  openForm({
    title: prompt.title || name,
    origin: translate("prompt.origin", { name: escapeInvisible(name), server: escapeInvisible(server) }),
    description: prompt.description,
    fields: prompt.arguments,
    complete: (body) => api.fetchJson("POST", "completions", { server, prompt: name, ...body }),
    submit: async (values) => {
      insert(toMessage(await api.fetchJson("POST", "prompts/get", { server, name, arguments: values })));
    },
  });
}

/** Show what has changed in a skill of a server, and trust it as it is shown; then it can be read. */
async function reviewSkill(api, skill, insert) {
  const { name, server, change, text, digest } = await api.fetchJson("POST", "skills/review", { name: skill.name });
  openForm({
    title: name,
    origin: translate("skill.origin", { server: escapeInvisible(server) }),
    description: translate("skill.changed"),
    shown: change || text,
    fields: [],
    action: translate("skill.trust"),
    complete: () => null,
    submit: async () => {
      await api.fetchJson("POST", `servers/${encodeURIComponent(server)}/skills/trust`, { name, digest });
      openSkill(api, { ...skill, withheld: false }, insert);
    },
  });
}

/** Read a skill; `insert({text, files, taint})` gets its text. A dialog says why a skill cannot be read. */
export async function openSkill(api, skill, insert) {
  const { name, server, description, withheld } = skill;
  if (withheld && server) {
    try {
      return await reviewSkill(api, skill, insert);
    } catch {
      // The form below says what is wrong.
    }
  }
  openForm({
    title: name,
    origin: server ? translate("skill.origin", { server: escapeInvisible(server) }) : translate("completion.skill"),
    description: withheld ? translate("skill.withheld") : description,
    fields: [],
    complete: () => null,
    submit: async () => insert(toMessage(await api.fetchJson("POST", "skills/get", { name }))),
  });
}

/** Open the form for the variables of a resource template; `insert(uri)` gets the expanded URI. */
export function openTemplateForm(api, template, insert) {
  const { server, uri_template: uriTemplate } = template;
  openForm({
    title: template.title || template.name,
    origin: translate("prompt.template", { template: escapeInvisible(uriTemplate), server: escapeInvisible(server) }),
    description: template.description,
    fields: template.variables.map((name) => ({ name, required: true })),
    complete: (body) => api.fetchJson("POST", "completions", { server, template: uriTemplate, ...body }),
    submit: async (values) => {
      const body = { server, uri_template: uriTemplate, values };
      insert((await api.fetchJson("POST", "resources/expand", body)).uri);
    },
  });
}

function openForm({ title, origin, description, shown, fields, action, complete, submit }) {
  const problem = el("p.failure", { role: "alert" });
  const inputs = fields.map((field, at) => createField(field, at));
  const read = () => Object.fromEntries(inputs.map(({ name, input }) => [name, input.value]).filter(([, value]) => value));
  for (const { name, input, options } of inputs) completeWhileTyping({ name, input, options, read, complete });
  const fillIn = el("button.button.primary", {}, action ?? translate("prompt.insert"));
  const onsubmit = async (event) => {
    event?.preventDefault();
    fillIn.disabled = true;
    problem.textContent = "";
    try {
      await submit(read());
      dialog.close();
    } catch (error) {
      problem.textContent = escapeInvisible(describeError(error));
    }
    fillIn.disabled = false;
  };
  const onclose = () => {
    dialog.remove();
    byId("message").focus();
  };
  const dialog = el("dialog.small.prompt-form", { "aria-labelledby": "dialog-title", onclose },
    el("h2", { id: "dialog-title" }, escapeInvisible(title)),
    el("p.quiet", {}, origin),
    description ? el("p.request-message", {}, escapeInvisible(description)) : null,
    shown ? el("pre.skill-change", { tabindex: "0", dir: "ltr" }, escapeInvisible(shown)) : null,
    el("form.request-form", { onsubmit }, ...inputs.map(({ element }) => element), problem,
      el("div.dialog-buttons", {}, createButton(translate("cancel"), () => dialog.close()), fillIn)));
  document.body.append(dialog);
  dialog.showModal();
  if (!fields.length && !action) onsubmit();
  else if (!fields.length) fillIn.focus();
  else inputs[0].input.focus();
}

function createField({ name, title, description, required }, at) {
  const id = `prompt-argument-${at}`;
  const options = el("datalist", { id: `${id}-options` });
  const hint = description ? el("p.quiet", { id: `${id}-hint` }, escapeInvisible(description)) : null;
  const input = el("input", {
    id, type: "text", required, autocomplete: "off", list: options.id, "aria-describedby": hint ? hint.id : null,
  });
  const own = escapeInvisible(title || name);
  const label = required ? own : translate("optional", { name: own });
  return { name, input, options, element: el("div.field", {}, el("label", { for: id }, label), input, options, hint) };
}

function completeWhileTyping({ name, input, options, read, complete }) {
  let timer;
  let number = 0;
  const refresh = () => {
    clearTimeout(timer);
    const request = (number += 1);
    timer = setTimeout(async () => {
      const { [name]: value = "", ...others } = read();
      const found = await complete({ argument: name, value, arguments: others }).catch(() => null);
      if (request !== number || !found) return;
      options.replaceChildren(...found.values.map((text) => el("option", { value: text })));
    }, DELAY);
  };
  input.addEventListener("input", refresh);
  input.addEventListener("focus", refresh);
}

/** Return the message of a filled-in prompt, as the terminal builds it: one text, with the assistant's parts marked. */
function toMessage({ messages, taint }) {
  const texts = [];
  const files = [];
  for (const { role, content } of messages) {
    const parts = typeof content === "string" ? [{ type: "text", text: content }] : content;
    const text = toText(parts.filter(isText));
    if (text) texts.push(role === "assistant" ? `Assistant: ${text}` : text);
    files.push(...parts.filter((part) => !isText(part)));
  }
  return { text: texts.join("\n\n"), files, taint };
}
