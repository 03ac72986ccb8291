// The suggestions for `/` and `@` in the message field: commands, saved prompts, skills, prompts, agents, resources,
// files.

import { toMention } from "./mentions.js";
import { loadSavedPrompts, openSavedPrompts } from "./saved_prompts.js";
import { translate } from "./language.js";

/** Milliseconds for which the page keeps lists of prompts and resources. */
const FRESH = 5_000;

const loadForms = () => import("./prompt_form.js");

/** The beginning of a mention: not within a word, as in mentions.py. */
const MENTION = /(?:^|[\s([{"'<,;])@(\S*)$/;

const AGENTS_ONLY = /^\s*(?:@[a-z0-9-]+\s+)*$/;

export class Suggestions {
  #api;
  #hooks;
  #lists = new Map();

  /** `hooks`: {commands: [{name, detail, run}], insert({text, files, taint}), insertText(text), attach()}. */
  constructor(api, hooks) {
    this.#api = api;
    this.#hooks = hooks;
  }

  /** Return the proposals for a text and a position in it, as CompletionList expects them. */
  async find(text, position) {
    const before = text.slice(0, position);
    const command = /^\/(\S*(?: [\w/-]*)?)$/.exec(before);
    if (command) return { from: 0, to: position, options: await this.#findCommands(command[1]) };
    const mention = MENTION.exec(before);
    if (!mention) return null;
    const from = position - mention[1].length - 1;
    const found = [this.#findAgents(mention[1], before.slice(0, from)), this.#findMentions(mention[1])];
    const options = (await Promise.all(found)).flat();
    // A mention that is complete needs no proposals: Enter sends the message.
    const isComplete = options.some(({ insert }) => insert?.trim() === `@${mention[1]}` && insert.endsWith(" "));
    return isComplete ? null : { from, to: position, options };
  }

  /** Return the function that runs the command or prompt that a text names; null if it names none. */
  async findCommand(text) {
    if (!/^\/\S+(?: [\w/-]+)?$/.test(text)) return null;
    const option = (await this.#findCommands(text.slice(1))).find(({ label }) => label === text);
    return option?.run ?? null;
  }

  async #findCommands(typed) {
    const { commands, insertText, insert } = this.#hooks;
    const [{ prompts }, { skills }] = await Promise.all([
      this.#list("prompts", { prompts: [] }), this.#list("skills", { skills: [] }),
    ]);
    const options = [
      ...commands.map(({ name, detail, run }) => ({ label: `/${name}`, detail, run })),
      { label: "/prompts", detail: translate("command.prompts"), run: openSavedPrompts },
      ...loadSavedPrompts().map(({ name, text }) => {
        const badge = translate("completion.saved");
        return { label: `/${name}`, badge, detail: text.slice(0, 200), run: () => insertText(text) };
      }),
      ...skills.map((skill) => ({
        label: `/skill ${skill.name}`,
        badge: skill.server || translate("completion.skill"),
        detail: skill.withheld ? translate("skill.withheld") : skill.description,
        run: async () => (await loadForms()).openSkill(this.#api, skill, insert),
      })),
      ...prompts.map((prompt) => ({
        label: `/${prompt.server}:${prompt.name}`,
        badge: prompt.server,
        detail: prompt.title || prompt.description,
        run: async () => (await loadForms()).openPromptForm(this.#api, prompt, insert),
      })),
    ];
    return rank(options, typed);
  }

  /** Return the agents whose names begin with a text. Only the start of a message names agents (mentions.py). */
  async #findAgents(typed, before) {
    if (!AGENTS_ONLY.test(before)) return [];
    const { tools } = await this.#list("tools", { tools: [] });
    const badge = translate("completion.agent");
    return tools.filter(({ server }) => server === "agents").flatMap(({ name, description }) => {
      // A tool of this name makes the name of the agent longer.
      const agent = name.replace(/^agents__/, "");
      if (!agent.startsWith(typed)) return [];
      return [{ label: `@${agent}`, badge, detail: description.split("\n")[0], insert: `@${agent} ` }];
    });
  }

  async #findMentions(typed) {
    const { resources, templates } = await this.#list("resources", { resources: [], templates: [] });
    const { attach, insertText } = this.#hooks;
    const listed = resources.filter(({ server, uri }) => toMention(server, uri)).map(({ server, uri, name, title }) => {
      return { label: `@${server}:${uri}`, badge: server, detail: title || name, insert: `${toMention(server, uri)} ` };
    });
    const formed = templates.map((template) => ({
      label: `@${template.server}:${template.uri_template}`,
      badge: template.server,
      detail: template.title || template.name,
      run: async () => {
        const { openTemplateForm } = await loadForms();
        openTemplateForm(this.#api, template, (uri) => insertText(`@${template.server}:${uri} `));
      },
    }));
    const names = new Set([...resources, ...templates].map(({ server }) => server));
    const prefixes = [...names].map((name) => {
      return { label: `@${name}:`, detail: translate("completion.server"), insert: `@${name}:` };
    });
    const file = { label: "@file", detail: translate("command.attach"), run: attach };
    return rank([file, ...(typed.includes(":") ? [] : prefixes), ...listed, ...formed], typed);
  }

  /** Return the skills, the tools, or the servers' prompts or resources. While the user types, a list is kept. */
  #list(name, empty) {
    const kept = this.#lists.get(name);
    if (kept && performance.now() - kept.time < FRESH) return kept.promise;
    const promise = this.#api.fetchJson("GET", name).catch(() => empty);
    this.#lists.set(name, { time: performance.now(), promise });
    return promise;
  }
}

/** Return the options that match the typed text: first options that begin with it, then options that contain it. */
function rank(options, typed) {
  const query = typed.toLowerCase();
  const position = ({ label, detail }) => {
    const name = label.slice(1).toLowerCase();
    if (name.startsWith(query)) return 0;
    // The text after a command is a sentence more often than the second word of another command.
    if (query.includes(" ")) return 3;
    if (name.includes(query)) return 1;
    return (detail ?? "").toLowerCase().includes(query) ? 2 : 3;
  };
  const ranked = options.map((option) => [position(option), option]).filter(([rank_]) => rank_ < 3);
  return ranked.sort(([first], [second]) => first - second).map(([, option]) => option);
}
