// The panel of MCP servers: their states, tools and errors.

import { byId, createFold, el } from "./dom.js";
import { showToast } from "./dialogs.js";
import { escapeInvisible } from "./invisible_characters.js";
import { createCredentialsButton } from "./server_credentials.js";
import { createLoginButton } from "./server_login.js";
import { ServerResources } from "./server_resources.js";
import { createSteadyContent } from "./steady_content.js";
import { translate, formatNumber } from "./language.js";
import { describeError } from "./descriptions.js";

/** Milliseconds between refreshes while the panel is open. */
const REFRESH_INTERVAL = 3_000;

const STATES = new Set(
  ["starting", "sleeping", "ready", "restarting", "failed", "stopped", "disabled", "needs_credentials"]);
const CAN_RESTART = new Set(["failed", "ready", "restarting", "sleeping"]);

export class ServersPanel {
  #api;
  #dialog = byId("servers");
  #list = byId("servers-list");
  #show = createSteadyContent(this.#list);
  #button = byId("servers-button");
  /** A promise of the panel of grants and decisions, which is loaded when this panel is opened. */
  #access = null;
  #below = el("div");
  /** A promise of the module that changes servers, if the operator allows changes. */
  #loading = null;
  #changes = null;
  #isAdmin = false;
  #rendered = "";
  #interval = null;
  #timeout = null;
  /** A tool's offered name to its server's name. */
  tools = new Map();
  #toolsByServer = new Map();
  #resources;
  #servers = [];
  #search = byId("servers-search");

  /** `attach(mention)` puts the mention of a resource into the message. */
  constructor(api, attach) {
    this.#api = api;
    this.#resources = new ServerResources(api, {
      attach: (mention) => {
        this.#dialog.close();
        attach(mention);
      },
      onChange: () => this.#render(this.#servers),
    });
    this.#button.addEventListener("click", () => this.open());
    this.#search.addEventListener("input", () => this.#render(this.#servers));
    byId("servers-close").addEventListener("click", () => this.#dialog.close());
    this.#list.after(this.#below);
    this.#below.addEventListener("click", (event) => event.target.closest("a") && this.#dialog.close());
    let isBeside; // not a drag from inside
    this.#dialog.addEventListener("pointerdown", (event) => { isBeside = this.#isBeside(event); });
    this.#dialog.addEventListener("click", (event) => isBeside && this.#isBeside(event) && this.#dialog.close());
    this.#dialog.addEventListener("close", () => clearInterval(this.#interval));
  }

  /** True if a pointer event was outside of the panel. The panel itself is the target also where it is empty. */
  #isBeside({ target, clientX, clientY }) {
    const { left, top, right, bottom } = this.#dialog.getBoundingClientRect();
    return target === this.#dialog && (clientX < left || clientX > right || clientY < top || clientY > bottom);
  }

  open() {
    this.#dialog.showModal();
    this.#resources.forget();
    const refresh = () => {
      this.refresh();
      this.#refreshAccess();
    };
    refresh();
    this.#interval = setInterval(refresh, REFRESH_INTERVAL);
  }

  async #refreshAccess() {
    this.#access ??= import("./access_panel.js").then(({ AccessPanel }) => {
      const panel = new AccessPanel(this.#api);
      this.#below.append(panel.element);
      return panel;
    });
    await this.#access.then((panel) => panel.refresh(), (error) => {
      this.#access = null;
      console.warn(error.message);
    });
  }

  /** Refresh after a delay; calls in the meantime are merged. */
  refreshSoon(milliseconds = 300) {
    clearTimeout(this.#timeout);
    this.#timeout = setTimeout(() => this.refresh(), milliseconds);
  }

  /** Load the servers and tools. An error is shown in the panel only, above what was loaded before. */
  async refresh() {
    try {
      const [{ servers, can_change: canChange }, { tools }, { scopes }] = await Promise.all(
        [...["servers", "tools"].map((path) => this.#api.fetchJson("GET", path)), this.#api.readPerson()]);
      this.#isAdmin = scopes.includes("admin");
      this.tools = new Map(tools.map((tool) => [tool.name, tool.server]));
      this.#toolsByServer = groupByServer(tools);
      this.#changes = canChange ? await this.#loadChanges() : null;
      this.#servers = servers;
      if (this.#dialog.open) this.#resources.load(servers);
      this.#render(servers);
      if (servers.some(({ state }) => state === "starting" || state === "restarting")) this.refreshSoon(REFRESH_INTERVAL);
    } catch (error) {
      this.#rendered = "";
      this.#show(() => [el("p.failed", {}, describeError(error)), ...this.#list.querySelectorAll("article")]);
    }
  }

  #loadChanges() {
    this.#loading ??= import("./server_changes.js").then((changes) => {
      this.#below.before(changes.createAddForm(this.#api, () => this.refreshSoon()));
      return changes;
    }, (error) => {
      this.#loading = null;
      throw error;
    });
    return this.#loading;
  }

  #render(servers) {
    const words = this.#search.value.toLowerCase().split(/\s+/);
    const content = JSON.stringify([servers, [...this.tools], this.#resources.revision, words]);
    if (content === this.#rendered) return;
    this.#rendered = content;
    const enabled = servers.filter(({ state }) => state !== "disabled");
    const failed = enabled.filter(({ state }) => state === "failed" || state === "stopped").length;
    const isStarting = enabled.some(({ state }) => state === "starting" || state === "restarting");
    this.#button.dataset.state = failed ? "failed" : isStarting ? "starting" : "ready";
    const count = enabled.length;
    const failures = failed ? translate("servers.failed", { number: failed }) : "";
    const number = formatNumber(count);
    const label = ` ${translate("servers.label", { count })}${failures}`;
    byId("servers-count").replaceChildren(number, el("span.bar-label", {}, label));
    this.#button.setAttribute("aria-label", translate("servers.show", { text: number + label }));
    this.#show(() => {
      const open = new Set([...this.#list.querySelectorAll("details[open]")].map((details) => details.dataset.key));
      const found = servers.filter((server) => this.#matches(server, words));
      const sorted = found.sort((one, other) => one.name.localeCompare(other.name));
      const cards = sorted.map((server) => this.#renderCard(server, open));
      const none = translate(servers.length ? "servers.no_match" : "servers.none");
      return cards.length ? cards : [el("p.quiet", {}, none)];
    });
  }

  /** True if all words of a search are in the names of a server and its tools, or in their descriptions. */
  #matches({ name, tools }, words) {
    const offered = this.#toolsByServer.get(name) ?? [];
    const texts = [name, ...tools, ...offered.flatMap((tool) => [tool.name, tool.description ?? ""])];
    const text = texts.join("\n").toLowerCase();
    return words.every((word) => text.includes(word));
  }

  #renderCard(server, open) {
    const { name, state } = server;
    const version = [server.server_name, server.server_version].filter(Boolean).join(" ");
    const restarts = server.restarts ? translate("servers.restarts", { count: server.restarts }) : "";
    const protocol = server.protocol_version ? `MCP ${server.protocol_version}` : "";
    const facts = [STATES.has(state) ? translate(`state.${state}`) : state, protocol, version, restarts];
    const dot = el("span.dot", { "aria-hidden": "true" });
    const restart = this.#isAdmin && CAN_RESTART.has(state) ? this.#createRestartButton(name) : null;
    const refresh = () => this.refreshSoon();
    const login = server.needs_login ? createLoginButton(this.#api, server, refresh) : null;
    const credentials = server.per_user ? createCredentialsButton(this.#api, name, refresh) : null;
    const changes = this.#changes?.createChangeButtons(this.#api, server, () => this.refreshSoon()) ?? [];
    return el("article.server", { "data-state": state },
      el("header", {}, dot, el("h3", {}, escapeInvisible(name)), credentials, login, restart, ...changes),
      el("p.quiet", {}, escapeInvisible(facts.filter(Boolean).join(" · "))),
      server.error ? el("p.failure", {}, escapeInvisible(server.error)) : null,
      ...(server.notes ?? []).map((note) => el("p.note", {}, escapeInvisible(note))),
      this.#renderTools(server, open),
      this.#resources.render(name, open),
      this.#renderLogs(server, open),
      renderLines(`${name}:errors`, open, translate("servers.errors"), server.stderr));
  }

  #renderLogs({ name, logs }, open) {
    const lines = logs?.map(({ level, logger, text }) => `${level}${logger ? ` ${logger}` : ""}: ${text}`);
    return renderLines(`${name}:logs`, open, translate("servers.logs"), lines);
  }

  #renderTools({ name, tools }, open) {
    const offered = this.#toolsByServer.get(name) ?? tools.map((tool) => ({ name: tool, description: "" }));
    if (!offered.length) return null;
    const label = translate("servers.tools", { count: offered.length });
    const items = offered.map((tool) => el("div", {},
      el("dt", {}, escapeInvisible(tool.name),
        tool.read_only ? el("span.badge", {}, translate("servers.read_only")) : null,
        tool.server ? this.#createCallButton(tool.name) : null),
      el("dd", {}, escapeInvisible((tool.description ?? "").trim().split("\n")[0]).slice(0, 300))));
    return createFold(`${name}:tools`, open, label, el("dl", {}, ...items));
  }

  #createCallButton(name) {
    const open = async () => (await import("./tool_form.js")).openToolForm(this.#api, name);
    const onclick = () => open().catch((error) => showToast(describeError(error)));
    const label = translate("servers.call_tool", { tool: escapeInvisible(name) });
    return el("button.text-button", { type: "button", "aria-label": label, onclick }, translate("servers.call"));
  }

  #createRestartButton(name) {
    const shown = escapeInvisible(name);
    let isRestarting = false; // a disabled button would lose the focus
    const onclick = async () => {
      if (isRestarting) return;
      isRestarting = true;
      try {
        await this.#api.fetchJson("POST", `servers/${encodeURIComponent(name)}/restart`);
        showToast(translate("servers.restarting", { server: shown }));
      } catch (error) {
        showToast(describeError(error));
      }
      isRestarting = false;
      this.refresh();
    };
    const label = translate("servers.restart_name", { server: shown });
    return el("button.text-button", { type: "button", "aria-label": label, onclick }, translate("servers.restart"));
  }
}

function renderLines(key, open, label, lines) {
  if (!lines?.length) return null;
  const text = el("pre", { tabindex: "0", "aria-label": label }, escapeInvisible(lines.join("\n")));
  return createFold(key, open, label, text);
}

function groupByServer(tools) {
  const groups = new Map();
  for (const tool of tools) groups.set(tool.server, [...(groups.get(tool.server) ?? []), tool]);
  return groups;
}
