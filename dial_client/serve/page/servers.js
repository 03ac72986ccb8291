// The panel of servers: what is connected, what each can do, and what is wrong with it.

import { byId, el, icon } from "./dom.js";
import { toast } from "./dialogs.js";
import { visible } from "./unseen.js";
import { sentence } from "./words.js";

/** Milliseconds between looks while the panel is open. */
const LOOK = 3_000;

const STATES = {
  starting: "starting", sleeping: "asleep: starts when it is needed", ready: "ready", restarting: "starting again",
  failed: "failed", stopped: "stopped", disabled: "switched off",
};
const CAN_RESTART = new Set(["failed", "ready", "restarting", "sleeping"]);

export class ServersPanel {
  #api;
  #dialog = byId("servers");
  #list = byId("servers-list");
  #button = byId("servers-button");
  #shown = "";
  #timer = null;
  #again = null;
  /** From a tool's offered name to its server's. */
  tools = new Map();
  #about = new Map();

  constructor(api) {
    this.#api = api;
    this.#button.addEventListener("click", () => this.open());
    byId("servers-close").addEventListener("click", () => this.#dialog.close());
    this.#dialog.addEventListener("click", (event) => event.target === this.#dialog && this.#dialog.close());
    this.#dialog.addEventListener("close", () => clearInterval(this.#timer));
  }

  open() {
    this.#dialog.showModal();
    this.refresh();
    this.#timer = setInterval(() => this.refresh(), LOOK);
  }

  /** Read all anew in a moment, however often it is asked for until then. */
  soon(milliseconds = 300) {
    clearTimeout(this.#again);
    this.#again = setTimeout(() => this.refresh(), milliseconds);
  }

  /** Read all anew. A panel that cannot be read says so, and nothing else is disturbed. */
  async refresh() {
    try {
      const [{ servers }, { tools }] = await Promise.all([this.#api.json("GET", "servers"), this.#api.json("GET", "tools")]);
      this.tools = new Map(tools.map((tool) => [tool.name, tool.server]));
      this.#about = grouped(tools);
      this.#show(servers);
      if (servers.some(({ state }) => state === "starting" || state === "restarting")) this.soon(LOOK);
    } catch (error) {
      this.#shown = "";
      this.#list.replaceChildren(el("p.failed", {}, sentence(error)));
    }
  }

  #show(servers) {
    const known = JSON.stringify([servers, [...this.tools]]);
    if (known === this.#shown) return;
    this.#shown = known;
    const used = servers.filter(({ state }) => state !== "disabled");
    const bad = used.filter(({ state }) => state === "failed" || state === "stopped").length;
    const busy = used.some(({ state }) => state === "starting" || state === "restarting");
    this.#button.dataset.state = bad ? "failed" : busy ? "starting" : "ready";
    const number = String(used.length);
    const words = `${used.length === 1 ? " server" : " servers"}${bad ? `, ${bad} failed` : ""}`;
    byId("servers-count").replaceChildren(number, el("span.bar-words", {}, words));
    this.#button.setAttribute("aria-label", `${number}${words}. Show the servers`);
    const open = new Set([...this.#list.querySelectorAll("details[open]")].map((details) => details.dataset.key));
    const cards = servers.map((server) => this.#card(server, open));
    const none = el("p.quiet", {}, "No server is configured. Name some in servers.json.");
    this.#list.replaceChildren(...(cards.length ? cards : [none]));
  }

  #card(server, open) {
    const { name, state } = server;
    const version = [server.server_name, server.server_version].filter(Boolean).join(" ");
    const restarts = server.restarts ? `started again ${server.restarts}×` : "";
    const facts = [STATES[state] ?? state, server.era ? `MCP ${server.era}` : "", version, restarts];
    const dot = el("span.dot", { "aria-hidden": "true" });
    return el("article.server", { "data-state": state },
      el("header", {}, dot, el("h3", {}, visible(name)), CAN_RESTART.has(state) ? this.#restarter(name) : null),
      el("p.quiet", {}, visible(facts.filter(Boolean).join(" · "))),
      server.error ? el("p.failure", {}, visible(server.error)) : null,
      ...(server.notes ?? []).map((note) => el("p.note", {}, visible(note))),
      this.#tools(server, open),
      this.#stderr(server, open));
  }

  #stderr({ name, stderr }, open) {
    if (!stderr?.length) return null;
    const text = el("pre", { tabindex: "0" }, visible(stderr.join("\n")));
    return folded(`${name}:errors`, open, "The end of its error output", text);
  }

  #tools({ name, tools }, open) {
    const offered = this.#about.get(name) ?? tools.map((tool) => ({ name: tool, description: "" }));
    if (!offered.length) return null;
    const words = `${offered.length} ${offered.length === 1 ? "tool" : "tools"}`;
    const items = offered.map((tool) => el("div", {},
      el("dt", {}, visible(tool.name), tool.read_only ? el("span.badge", {}, "reads only") : null),
      el("dd", {}, visible((tool.description ?? "").trim().split("\n")[0]).slice(0, 300))));
    return folded(`${name}:tools`, open, words, el("dl", {}, ...items));
  }

  #restarter(name) {
    const onclick = async () => {
      button.disabled = true;
      try {
        await this.#api.json("POST", `servers/${encodeURIComponent(name)}/restart`);
        toast(`${name} is being started again.`);
      } catch (error) {
        toast(sentence(error));
      }
      button.disabled = false;
      this.refresh();
    };
    const button = el("button.text-button", { type: "button", "aria-label": `Restart ${name}`, onclick }, "Restart");
    return button;
  }
}

function folded(key, open, words, ...inside) {
  return el("details.more", { "data-key": key, open: open.has(key) }, el("summary", {}, words, icon("chevron")), ...inside);
}

function grouped(tools) {
  const groups = new Map();
  for (const tool of tools) groups.set(tool.server, [...(groups.get(tool.server) ?? []), tool]);
  return groups;
}
