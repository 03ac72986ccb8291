// Sentences about turns, times, errors and tools, in the user's language.

import { LANGUAGE, formatNumber, translate } from "./language.js";

const STOP_REASONS = {
  max_depth: translate("stopped.max_depth"),
  consecutive_errors: translate("stopped.consecutive_errors"),
  repeated_calls: translate("stopped.repeated_calls"),
  timeout: translate("stopped.timeout"),
  token_budget: translate("stopped.token_budget"),
  cost_budget: translate("stopped.cost_budget"),
  truncated: translate("stopped.truncated"),
  refused: translate("stopped.refused"),
  cancelled: translate("stopped.cancelled"),
};

/** Describe why a turn ended without an answer; an empty string if it was answered. */
export function describeStopReason(reason) {
  return reason === "answered" ? "" : STOP_REASONS[reason] ?? translate("stopped.other", { reason });
}

const STATUSES = new Set([
  "analyzing", "selecting", "processing", "correcting", "formulating", "queued", "storing", "background",
  "using",
]);

/** Describe a status. A status whose code is not known here keeps the server's text. */
export function describeStatus({ text, code, tool }) {
  return STATUSES.has(code) ? translate(`status.${code}`, { tool }) : text;
}

/** Describe the usage of a turn: "qwen, 2 tool rounds, 1,234 tokens, $0.0042, 3.1 s". */
export function describeUsage({ model, depth, usage, duration_s: duration }) {
  const tokens = (usage?.input_tokens ?? 0) + (usage?.output_tokens ?? 0);
  return [
    formatModel(model ?? ""),
    depth ? translate("usage.rounds", { count: depth }) : "",
    tokens ? translate("usage.tokens", { count: tokens }) : "",
    formatCost(usage?.cost_usd),
    duration ? formatDuration(duration) : "",
  ].filter(Boolean).join(", ");
}

/** Format a cost in US dollars: "$0.0042"; an empty string if it is unknown or nothing. */
export function formatCost(cost) {
  return typeof cost === "number" && cost > 0 ? `$${formatNumber(cost, { maximumSignificantDigits: 2 })}` : "";
}

/** Return the name of a model without its API and the host of its endpoint: "qwen3" for "chat:qwen3@10.0.0.4:8000". */
export function formatModel(name) {
  return /^[\w-]+:(.+)@[^@/]+$/.exec(name)?.[1] ?? name;
}

/** Format a duration: "12 ms", "0.4 s", "75 s". */
export function formatDuration(seconds) {
  if (seconds < 0.1) return `${Math.max(1, Math.round(seconds * 1000))} ms`;
  const digits = seconds < 10 ? 1 : 0;
  return `${formatNumber(seconds, { minimumFractionDigits: digits, maximumFractionDigits: digits })} s`;
}

/** Name the period a time belongs to, as a heading of the conversation list. */
export function formatPeriod(time, now = new Date()) {
  const then = new Date(time);
  const midnight = new Date(now.getFullYear(), now.getMonth(), now.getDate());
  const days = Math.ceil((midnight - then) / 86_400_000);
  if (days <= 0) return translate("period.today");
  if (days === 1) return translate("period.yesterday");
  if (days <= 7) return translate("period.week");
  if (days <= 30) return translate("period.month");
  return then.toLocaleDateString(LANGUAGE, { month: "long", year: "numeric" });
}

/** Format the time of a conversation in the list: the time of today, else the day. */
export function formatMoment(time, now = new Date()) {
  const then = new Date(time);
  if (then.toDateString() === now.toDateString()) {
    return then.toLocaleTimeString(LANGUAGE, { hour: "2-digit", minute: "2-digit" });
  }
  const year = then.getFullYear() === now.getFullYear() ? {} : { year: "numeric" };
  return then.toLocaleDateString(LANGUAGE, { day: "numeric", month: "short", ...year });
}

/** Describe an error for the user. Errors of the page itself are also written to the console. */
export function describeError(error) {
  if (error?.status !== undefined) return error.message;
  if (error?.isScriptMissing) return translate("error.script_missing");
  console.error(error);
  return translate("error.unexpected");
}

/** Describe a request that needs the user's answer, for screen readers. */
export function describeRequest({ kind, call, server }) {
  if (kind === "approval") return translate("request.approval", { tool: call.name });
  return translate("request.question", { server });
}

const ANNOTATIONS = {
  readOnlyHint: { true: translate("claim.read_only") },
  destructiveHint: { true: translate("claim.destructive"), false: translate("claim.not_destructive") },
  openWorldHint: { true: translate("claim.open_world"), false: translate("claim.closed_world") },
  idempotentHint: { true: translate("claim.idempotent") },
};

/** Describe the annotations a server claims for a tool: "that it is read-only, that it reaches no other systems". */
export function describeAnnotations(annotations) {
  return Object.entries(annotations ?? {}).map(([name, value]) => ANNOTATIONS[name]?.[value]).filter(Boolean).join(", ");
}

/** Describe the invisible characters of a call: removed from the description, and escaped in the arguments. */
export function describeInvisible({ removed_invisible: removed, invisible_in_arguments: hidden }) {
  return [
    removed ? translate("approval.removed_invisible", { count: removed }) : "",
    hidden ? translate("approval.escaped_invisible", { count: hidden }) : "",
  ].filter(Boolean);
}
