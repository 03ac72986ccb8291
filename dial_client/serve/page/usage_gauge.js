// The gauge of the context window and of the cost, with its dialog.

import { createButton, byId, el, setLabel } from "./dom.js";
import { formatCost } from "./descriptions.js";
import { escapeInvisible } from "./invisible_characters.js";
import { formatNumber, translate } from "./language.js";

/** The part of the window from which on the gauge warns. */
const HIGH = 0.8;

export class UsageGauge {
  #button = byId("usage");
  #api;
  #compact;
  #used = null;
  #requests = 0;

  /** `compact()` summarizes the older messages of the open conversation. */
  constructor(api, compact) {
    this.#api = api;
    this.#compact = compact;
    this.#button.addEventListener("click", () => this.#open());
  }

  /** Load and show the usage of a conversation; `id` is null for a new one. */
  async refresh(id) {
    const request = (this.#requests += 1);
    const path = `conversations/${encodeURIComponent(id)}/usage`;
    const used = id === null ? null : await this.#api.fetchJson("GET", path).catch(() => null);
    if (request !== this.#requests) return;
    this.#used = used;
    this.#render();
  }

  #render() {
    const { context, usage } = this.#used ?? {};
    this.#button.hidden = !context?.tokens;
    if (this.#button.hidden) return;
    const share = context.window ? Math.min(1, context.tokens / context.window) : null;
    const ring = el("span.ring", { "aria-hidden": "true" });
    ring.style.setProperty("--share", share ?? 0);
    const texts = [share === null ? null : formatPercent(share), formatCost(usage.cost_usd)].filter(Boolean);
    this.#button.replaceChildren(...(share === null ? [] : [ring]), texts.join(" · ") || formatNumber(context.tokens));
    this.#button.classList.toggle("is-high", share >= HIGH);
    setLabel(this.#button, `${translate("gauge.title")}: ${this.#button.textContent}`);
  }

  #open() {
    const { context, usage } = this.#used;
    const onclose = () => dialog.remove();
    const values = { tokens: context.tokens, window: context.window ?? 0 };
    const row = (name, value) => el("div.usage-row", {}, el("dt", {}, name), el("dd", {}, value));
    const compact = () => {
      dialog.close();
      this.#compact();
    };
    const dialog = el("dialog.small", { "aria-labelledby": "usage-title", onclose },
      el("h2", { id: "usage-title" }, translate("gauge.title")),
      el("p", {}, translate(context.window ? "gauge.context" : "gauge.context_unknown", values)),
      context.window ? el("progress.usage-bar", {
        max: context.window, value: context.tokens, "aria-label": translate("gauge.title"),
      }) : null,
      el("dl.usage-list", {}, ...context.parts.map(({ name, tokens }) => row(describePart(name), formatNumber(tokens)))),
      context.left_out ? el("p.quiet", {}, translate("gauge.left_out", { count: context.left_out })) : null,
      context.searched_tools
        ? el("p.quiet", {}, translate("gauge.searched", { count: context.searched_tools })) : null,
      el("p", {}, translate("gauge.total", { input: usage.input_tokens ?? 0, output: usage.output_tokens ?? 0 }),
        usage.cost_usd ? ` ${translate("gauge.cost", { cost: formatCost(usage.cost_usd) })}` : ""),
      el("p.quiet", {}, translate(context.is_counted ? "gauge.counted" : "gauge.estimated")),
      el("div.dialog-buttons", {},
        createButton(translate("command.compact"), compact),
        createButton(translate("close"), () => dialog.close(), ".primary")));
    document.body.append(dialog);
    dialog.showModal();
  }
}

const formatPercent = (share) => formatNumber(share, { style: "percent", maximumFractionDigits: 0 });

/** Translate the name of a part of the context (turns/context_report.py). */
function describePart(name) {
  const server = /^tools of (.*)$/.exec(name)?.[1];
  if (server) return translate("gauge.tools_of", { server: escapeInvisible(server) });
  if (name === "messages") return translate("gauge.messages");
  if (name === "results of calls") return translate("gauge.results");
  return translate("gauge.instructions");
}
