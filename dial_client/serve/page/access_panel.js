// Calls that wait for approval in all conversations, grants, what was used, and the end of the audit log. Names are
// plain text.

import { toHash } from "./deep_links.js";
import { createFold, el } from "./dom.js";
import { showToast } from "./dialogs.js";
import { createSteadyContent } from "./steady_content.js";
import { escapeInvisible } from "./invisible_characters.js";
import { formatNumber, translate } from "./language.js";
import { describeError, formatCost } from "./descriptions.js";

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
    const read = (path) => this.#api.fetchJson("GET", path);
    // Usage is counted with a database only.
    const readIfThere = (path) => read(path).catch(() => null);
    try {
      const ofAll = (await this.#api.readPerson()).scopes.includes("admin") ? ["audit", "usage?owners"] : [];
      const [{ approvals }, { grants }, usage, audit, all] = await Promise.all(
        [read("approvals"), read("grants"), ...["usage", ...ofAll].map(readIfThere)]);
      const amounts = [...listPeriods(usage), ...(all?.owners ?? []).map(toOwnerRow)];
      this.#render(approvals, grants, audit?.entries.filter(isOfCall), amounts);
    } catch (error) {
      this.#rendered = "";
      this.#show(() => [el("p.failed", {}, describeError(error))]);
    }
  }

  #render(approvals, grants, entries, usage) {
    const content = JSON.stringify([approvals, grants, entries, usage]);
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
        ...(usage.length ? [renderSection("usage", open, translate("access.usage"), usage.map(renderAmount))] : []),
        ...(entries ? [renderSection("audit", open, translate("access.audit"), entries.map(renderEntry))] : []),
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

/** Return what the person has used today and in this month, each with a name, and with the limits of tokens and money. */
function listPeriods(usage) {
  if (!usage) return [];
  const { today, month, limits } = usage;
  return [
    [translate("usage.today"), today, limits.tokensPerDay, limits.usdPerDay],
    [translate("usage.month"), month, limits.tokensPerMonth, limits.usdPerMonth],
  ];
}

/** Return what a person has used in this month, with the person's name; there is no name in a service for one. */
function toOwnerRow({ owner, ...amount }) {
  return [escapeInvisible((owner || "–").slice(0, MAX_NAME)), amount];
}

function renderAmount([name, amount, maxTokens, maxCost]) {
  const tokens = amount.input_tokens + amount.output_tokens;
  const count = maxTokens === undefined ? tokens : `${formatNumber(tokens)} / ${formatNumber(maxTokens)}`;
  const cost = maxCost === undefined ? formatCost(amount.cost_usd)
    : `$${formatNumber(amount.cost_usd, { maximumFractionDigits: 2 })} / $${formatNumber(maxCost)}`;
  const facts = [translate("usage.turns", { turns: amount.turns }), translate("usage.tokens", { count }), cost];
  return el("li", {}, el("strong", {}, name), el("p.quiet", {}, facts.filter(Boolean).join(" · ")));
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

/** Return whether an entry is a decision or a call; the first of each file only begins the log. */
function isOfCall({ event }) {
  return event !== "begin";
}

function renderEntry(entry) {
  const verdict = entry.decision || entry.outcome || "";
  const by = entry.decided_by && translate("access.by", { name: entry.decided_by });
  const facts = [entry.owner?.slice(0, MAX_NAME), entry.time, entry.event, verdict, by].filter(Boolean);
  return el("li", {}, el("strong", {}, formatTool(entry)), el("p.quiet", {}, escapeInvisible(facts.join(" · "))));
}

function formatTool({ server, tool }) {
  const name = `${server || "host"}/${tool ?? ""}`.replace(/\s+/g, " ");
  return escapeInvisible(name.slice(0, MAX_NAME));
}
