// The resources of a server in its panel: they are listed, read, and attached to the message. Their texts are plain text.

import { describeError } from "./descriptions.js";
import { showToast } from "./dialogs.js";
import { createFold, el } from "./dom.js";
import { escapeInvisible } from "./invisible_characters.js";
import { translate } from "./language.js";
import { toMention } from "./mentions.js";

/** Resources of a server that are listed; `@` in the message field finds the others. */
const MAX_LISTED = 200;
const MAX_DESCRIPTION = 300;

export class ServerResources {
  #api;
  #hooks;
  /** Server to its {resources, templates}; to null while they are being loaded. */
  #lists = new Map();
  /** Increases after each change. */
  revision = 0;

  /** `hooks`: {attach(mention), onChange()}: put a mention into the message; called when a list has been loaded. */
  constructor(api, hooks) {
    this.#api = api;
    this.#hooks = hooks;
  }

  /** Forget the lists: they are loaded again. */
  forget() {
    this.#lists.clear();
  }

  /** Load the lists of servers that run. A server that sleeps is not started for its list. */
  load(servers) {
    for (const { name, state } of servers) {
      if (state !== "ready") this.#lists.delete(name);
      else if (!this.#lists.has(name)) this.#fetch(name);
    }
  }

  async #fetch(name) {
    this.#lists.set(name, null);
    const query = new URLSearchParams({ server: name });
    const list = await this.#api.fetchJson("GET", `resources?${query}`).catch(() => ({ resources: [], templates: [] }));
    this.#lists.set(name, list);
    this.revision += 1;
    this.#hooks.onChange();
  }

  /** Return the folded list of a server; null if it has no resources. `open` has the keys of the open folds. */
  render(name, open) {
    const { resources = [], templates = [] } = this.#lists.get(name) ?? {};
    const count = resources.length + templates.length;
    if (!count) return null;
    const items = [
      ...templates.map((template) => this.#renderTemplate(template)),
      ...resources.slice(0, MAX_LISTED).map((resource) => this.#renderResource(resource)),
    ];
    const left = resources.length - MAX_LISTED;
    const rest = left > 0 ? el("p.quiet", {}, translate("resource.rest", { count: left })) : null;
    return createFold(`${name}:resources`, open, translate("resource.count", { count }), el("dl", {}, ...items), rest);
  }

  #renderResource(resource) {
    const { server, uri } = resource;
    const name = nameOf(resource);
    const mention = toMention(server, uri);
    const attach = () => this.#hooks.attach(mention);
    const read = async () => {
      const { openResource } = await import("./resource_view.js");
      await openResource(this.#api, { server, uri, name }, mention ? attach : null);
    };
    return renderItem(resource, uri,
      createLink(translate("resource.read"), translate("resource.read_name", { name }), read),
      mention ? createLink(translate("resource.attach"), translate("resource.attach_name", { name }), attach) : null);
  }

  #renderTemplate(template) {
    const { server, uri_template: uriTemplate } = template;
    const fillIn = async () => {
      const { openTemplateForm } = await import("./prompt_form.js");
      openTemplateForm(this.#api, template, (uri) => {
        const mention = toMention(server, uri);
        if (mention) this.#hooks.attach(mention);
        else showToast(translate("resource.no_mention"));
      });
    };
    const label = translate("resource.fill_in_name", { name: nameOf(template) });
    return renderItem(template, uriTemplate, createLink(translate("resource.fill_in"), label, fillIn));
  }
}

const nameOf = ({ title, name }) => escapeInvisible((title || name || "").replace(/\s+/g, " ")).slice(0, MAX_DESCRIPTION);

function createLink(text, label, action) {
  const onclick = async () => {
    try {
      await action();
    } catch (error) {
      showToast(describeError(error));
    }
  };
  return el("button.text-button", { type: "button", "aria-label": label, onclick }, text);
}

function renderItem({ title, name, description, mime_type: type }, address, ...buttons) {
  const text = escapeInvisible((description ?? "").trim().split("\n")[0]).slice(0, MAX_DESCRIPTION);
  const badge = type ? el("span.badge", {}, escapeInvisible(type).slice(0, 60)) : null;
  return el("div", {},
    el("dt", {}, nameOf({ title, name }), badge, ...buttons),
    el("dd.resource-uri", {}, escapeInvisible(address).slice(0, MAX_DESCRIPTION)),
    text ? el("dd", {}, text) : null);
}
