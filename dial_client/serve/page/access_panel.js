// Calls that wait for approval in all conversations, grants, and the end of the audit log. Names are plain text.

import { toHash } from "./deep_links.js";
import { createFold, el } from "./dom.js";
import { showToast } from "./dialogs.js";
import { createSteadyContent } from "./steady_content.js";
import { escapeInvisible } from "./invisible_characters.js";
import { translate } from "./language.js";
import { describeError } from "./descriptions.js";

const SCOPES = {
  always: translate("scope.always"), session: translate("scope.session"), conversation: translate("scope.conversation"),
};
const MAX_NAME = 200;

export class AccessPanel {
  element = el("div.access", {});
  #show = createSteadyContent(this.element);
  #api;
  #rendered = "";

  constructor(api) {
    this.#api = api;
  }

  async refresh() {
    const paths = ["approvals", "grants", "audit"];
    try {
      const [{ approvals }, { grants }, { entries }] = await Promise.all(
        paths.map((path) => this.#api.fetchJson("GET", path)));
      this.#render(approvals, grants, entries);
    } catch (error) {
      this.#rendered = "";
      this.#show(() => [el("p.failed", {}, describeError(error))]);
    }
  }

  #render(approvals, grants, entries) {
    const content = JSON.stringify([approvals, grants, entries]);
    if (content === this.#rendered) return;
    this.#rendered = content;
    this.#show(() => {
      const open = new Set([...this.element.querySelectorAll("details[open]")].map(({ dataset }) => dataset.key));
      if (approvals.length) open.add("waiting");
      return [
        renderSection("waiting", open, translate("access.waiting", { count: approvals.length }),
          approvals.map(renderWaiting)),
        renderSection("grants", open, translate("access.grants", { count: grants.length }),
          grants.map((grant) => this.#renderGrant(grant))),
        renderSection("audit", open, translate("access.audit"), entries.map(renderEntry)),
      ];
    });
  }

  #renderGrant(grant) {
    const name = formatTool(grant);
    const onclick = async () => {
      await this.#api.fetchJson("DELETE", `grants/${encodeURIComponent(grant.id)}`)
        .catch((error) => showToast(describeError(error)));
      this.refresh();
    };
    const label = translate("access.revoke_tool", { tool: name, scope: SCOPES[grant.scope] });
    const revoke = el("button.text-button", { type: "button", "aria-label": label, onclick }, translate("access.revoke"));
    const facts = [SCOPES[grant.scope], grant.since, grant.reached].filter(Boolean).join(" · ");
    const head = el("div.access-head", {}, el("strong", {}, name), revoke);
    return el("li", {}, head, el("p.quiet", {}, escapeInvisible(facts)));
  }
}

function renderSection(key, open, label, items) {
  const list = items.length ? el("ul", {}, ...items) : el("p.quiet", {}, translate("none"));
  return createFold(key, open, label, list);
}

function renderWaiting({ server, tool, conversation }) {
  const name = el("strong", {}, formatTool({ server, tool }));
  if (!conversation) return el("li", {}, name);
  const href = toHash(conversation);
  return el("li", {}, name, " ", el("a", { href }, translate("access.open")));
}

function renderEntry(entry) {
  const verdict = entry.decision || entry.outcome || "";
  const by = entry.decided_by && translate("access.by", { name: entry.decided_by });
  const facts = [entry.time, entry.event, verdict, by].filter(Boolean);
  return el("li", {}, el("strong", {}, formatTool(entry)), el("p.quiet", {}, escapeInvisible(facts.join(" · "))));
}

function formatTool({ server, tool }) {
  const name = `${server || "host"}/${tool ?? ""}`.replace(/\s+/g, " ");
  return escapeInvisible(name.slice(0, MAX_NAME));
}
