// The panel of MCP servers: their states, tools and errors.

import { AccessPanel } from "./access_panel.js";
import { byId, el, createIcon } from "./dom.js";
import { showToast } from "./dialogs.js";
import { escapeInvisible } from "./invisible_characters.js";
import { describeError } from "./strings.js";
import { createAddForm, createChangeButtons } from "./server_changes.js";
import { createLoginButton } from "./server_login.js";
import { openToolForm } from "./tool_form.js";

/** Milliseconds between refreshes while the panel is open. */
const REFRESH_INTERVAL = 3_000;

const STATES = {
  starting: "starting", sleeping: "sleeping, starts when needed", ready: "ready", restarting: "restarting",
  failed: "failed", stopped: "stopped", disabled: "disabled",
};
const CAN_RESTART = new Set(["failed", "ready", "restarting", "sleeping"]);

export class ServersPanel {
  #api;
  #dialog = byId("servers");
  #list = byId("servers-list");
  #button = byId("servers-button");
  #access;
  #canChange = false;
  #rendered = "";
  #interval = null;
  #timeout = null;
  /** A tool's offered name to its server's name. */
  tools = new Map();
  #toolsByServer = new Map();

  constructor(api) {
    this.#api = api;
    this.#button.addEventListener("click", () => this.open());
    byId("servers-close").addEventListener("click", () => this.#dialog.close());
    this.#access = new AccessPanel(api);
    this.#list.after(this.#access.element);
    this.#access.element.addEventListener("click", (event) => event.target.closest("a") && this.#dialog.close());
    this.#dialog.addEventListener("click", (event) => event.target === this.#dialog && this.#dialog.close());
    this.#dialog.addEventListener("close", () => clearInterval(this.#interval));
  }

  open() {
    this.#dialog.showModal();
    const refresh = () => {
      this.refresh();
      this.#access.refresh();
    };
    refresh();
    this.#interval = setInterval(refresh, REFRESH_INTERVAL);
  }

  /** Refresh after a delay; calls in the meantime are merged. */
  refreshSoon(milliseconds = 300) {
    clearTimeout(this.#timeout);
    this.#timeout = setTimeout(() => this.refresh(), milliseconds);
  }

  /** Load the servers and tools. An error is shown in the panel only. */
  async refresh() {
    try {
      const paths = ["servers", "tools"];
      const responses = await Promise.all(paths.map((path) => this.#api.fetchJson("GET", path)));
      const [{ servers, can_change: canChange }, { tools }] = responses;
      this.tools = new Map(tools.map((tool) => [tool.name, tool.server]));
      this.#toolsByServer = groupByServer(tools);
      this.#allowChanges(canChange);
      this.#render(servers);
      if (servers.some(({ state }) => state === "starting" || state === "restarting")) this.refreshSoon(REFRESH_INTERVAL);
    } catch (error) {
      this.#rendered = "";
      this.#list.replaceChildren(el("p.failed", {}, describeError(error)));
    }
  }

  #allowChanges(canChange) {
    if (canChange && !this.#canChange) this.#access.element.before(createAddForm(this.#api, () => this.refreshSoon()));
    this.#canChange = canChange;
  }

  #render(servers) {
    const content = JSON.stringify([servers, [...this.tools]]);
    if (content === this.#rendered) return;
    this.#rendered = content;
    const enabled = servers.filter(({ state }) => state !== "disabled");
    const failed = enabled.filter(({ state }) => state === "failed" || state === "stopped").length;
    const isStarting = enabled.some(({ state }) => state === "starting" || state === "restarting");
    this.#button.dataset.state = failed ? "failed" : isStarting ? "starting" : "ready";
    const number = String(enabled.length);
    const label = `${enabled.length === 1 ? " server" : " servers"}${failed ? `, ${failed} failed` : ""}`;
    byId("servers-count").replaceChildren(number, el("span.bar-label", {}, label));
    this.#button.setAttribute("aria-label", `${number}${label}. Show the servers`);
    const open = new Set([...this.#list.querySelectorAll("details[open]")].map((details) => details.dataset.key));
    const cards = servers.map((server) => this.#renderCard(server, open));
    const empty = el("p.quiet", {}, "No servers are configured. Add them to servers.json.");
    this.#list.replaceChildren(...(cards.length ? cards : [empty]));
  }

  #renderCard(server, open) {
    const { name, state } = server;
    const version = [server.server_name, server.server_version].filter(Boolean).join(" ");
    const restarts = server.restarts ? `${server.restarts} ${server.restarts === 1 ? "restart" : "restarts"}` : "";
    const protocol = server.protocol_version ? `MCP ${server.protocol_version}` : "";
    const facts = [STATES[state] ?? state, protocol, version, restarts];
    const dot = el("span.dot", { "aria-hidden": "true" });
    const restart = CAN_RESTART.has(state) ? this.#createRestartButton(name) : null;
    const login = server.needs_login ? createLoginButton(this.#api, name, () => this.refreshSoon()) : null;
    const changes = this.#canChange ? createChangeButtons(this.#api, server, () => this.refreshSoon()) : [];
    return el("article.server", { "data-state": state },
      el("header", {}, dot, el("h3", {}, escapeInvisible(name)), login, restart, ...changes),
      el("p.quiet", {}, escapeInvisible(facts.filter(Boolean).join(" · "))),
      server.error ? el("p.failure", {}, escapeInvisible(server.error)) : null,
      ...(server.notes ?? []).map((note) => el("p.note", {}, escapeInvisible(note))),
      this.#renderTools(server, open),
      this.#renderLogs(server, open),
      this.#renderStderr(server, open));
  }

  #renderStderr({ name, stderr }, open) {
    return renderLines(`${name}:errors`, open, "Latest error output", stderr ?? []);
  }

  #renderLogs({ name, logs }, open) {
    const lines = (logs ?? []).map(({ level, logger, text }) => `${level}${logger ? ` ${logger}` : ""}: ${text}`);
    return renderLines(`${name}:logs`, open, "Latest log messages", lines);
  }

  #renderTools({ name, tools }, open) {
    const offered = this.#toolsByServer.get(name) ?? tools.map((tool) => ({ name: tool, description: "" }));
    if (!offered.length) return null;
    const label = `${offered.length} ${offered.length === 1 ? "tool" : "tools"}`;
    const items = offered.map((tool) => el("div", {},
      el("dt", {}, escapeInvisible(tool.name), tool.read_only ? el("span.badge", {}, "read-only") : null,
        tool.server ? this.#createCallButton(tool.name) : null),
      el("dd", {}, escapeInvisible((tool.description ?? "").trim().split("\n")[0]).slice(0, 300))));
    return createDetails(`${name}:tools`, open, label, el("dl", {}, ...items));
  }

  #createCallButton(name) {
    const onclick = () => openToolForm(this.#api, name).catch((error) => showToast(describeError(error)));
    const label = `Call ${escapeInvisible(name)}`;
    return el("button.text-button", { type: "button", "aria-label": label, onclick }, "Call…");
  }

  #createRestartButton(name) {
    const shown = escapeInvisible(name);
    const onclick = async () => {
      button.disabled = true;
      try {
        await this.#api.fetchJson("POST", `servers/${encodeURIComponent(name)}/restart`);
        showToast(`${shown} is restarting.`);
      } catch (error) {
        showToast(describeError(error));
      }
      button.disabled = false;
      this.refresh();
    };
    const button = el("button.text-button", { type: "button", "aria-label": `Restart ${shown}`, onclick }, "Restart");
    return button;
  }
}

function renderLines(key, open, label, lines) {
  if (!lines.length) return null;
  const text = el("pre", { tabindex: "0", "aria-label": label }, escapeInvisible(lines.join("\n")));
  return createDetails(key, open, label, text);
}

function createDetails(key, open, label, ...children) {
  const summary = el("summary", {}, label, createIcon("chevron"));
  return el("details.more", { "data-key": key, open: open.has(key) }, summary, ...children);
}

function groupByServer(tools) {
  const groups = new Map();
  for (const tool of tools) groups.set(tool.server, [...(groups.get(tool.server) ?? []), tool]);
  return groups;
}
