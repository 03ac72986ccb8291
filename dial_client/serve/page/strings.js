// Messages for the user. English is complete; a text that a language lacks is shown in English.

const TEXTS = {
  en: {
    "answer.code": "Code, {count} lines.",
    "answer.code.one": "Code, 1 line.",
    "answer.elsewhere": "The answer in “{title}” is complete.",
    "answer.end": "End of the answer.",
    "answer.formula": "Formula.",
    "answer.length": "{count} characters in total.",
    "answer.table": "Table, {count} rows.",
    "answer.table.one": "Table, 1 row.",
    "command.find": "Search in this conversation",
    "command.print": "Print this conversation",
    "command.undo": "Take back the last question and its answer",
    "command.redo": "Bring back what /undo has taken back",
    "command.compact": "Let the model summarize the older messages",
    "command.compact_undo": "Bring back the messages that were summarized",
    "history.new": "This conversation has no messages yet.",
    "history.running": "Wait for the answer, or stop it first.",
    "history.undone": "Taken back. /redo brings it back. What tools have done stays done.",
    "history.not_undone": "There is nothing to take back.",
    "history.redone": "The last question and its answer are back.",
    "history.not_redone": "There is nothing to bring back: nothing was taken back, or there is a newer message.",
    "history.compacted": "The model has summarized the older messages. /compact undo brings them back.",
    "history.not_compacted": "There is nothing to summarize: the conversation is short.",
    "history.whole": "The whole conversation is back.",
    "history.not_whole": "Nothing of this conversation is summarized.",
    "find.label": "Search in this conversation",
    "find.previous": "Previous hit",
    "find.next": "Next hit",
    "find.close": "Close the search",
    "find.none": "No hits",
    "find.hit": "Hit {number} of {count}",
    "sources.back": "Back to the text",
    "sources.title": "Sources",
    "status.compacting": "Summarizing…",
    "status.disconnected": "Connection lost. Reconnecting…",
  },
  de: {}, fr: {}, es: {}, ja: {}, zh: {}, ar: {},
};

/** The first language of the browser that has texts. */
const LANGUAGE = (globalThis.navigator?.languages ?? [])
  .map((tag) => tag.split("-")[0])
  .find((language) => Object.keys(TEXTS[language] ?? {}).length) ?? "en";

const PLURALS = new Intl.PluralRules(LANGUAGE);

/** Return a text in the user's language, with `values` in place of {name}. For a number `count` there may be "KEY.one". */
export function translate(key, values = {}) {
  const form = typeof values.count === "number" ? `${key}.${PLURALS.select(values.count)}` : key;
  const text = TEXTS[LANGUAGE][form] ?? TEXTS[LANGUAGE][key] ?? TEXTS.en[form] ?? TEXTS.en[key];
  return text.replace(/\{(\w+)\}/g, (_, name) => String(values[name]));
}

const STOP_REASONS = {
  max_depth: "Stopped: the limit of tool call rounds is reached.",
  consecutive_errors: "Stopped: too many tool calls failed in a row.",
  repeated_calls: "Stopped: the model repeated the same tool call.",
  timeout: "Stopped: the turn took too long.",
  token_budget: "Stopped: the token budget is used up.",
  truncated: "The answer was cut off at the model's maximum length.",
  refused: "The model declined to answer.",
  cancelled: "Stopped.",
};

/** Describe why a turn ended without an answer; an empty string if it was answered. */
export function describeStopReason(reason) {
  return reason === "answered" ? "" : STOP_REASONS[reason] ?? `Stopped: ${reason}.`;
}

/** Describe what a turn used: "qwen, 2 tool rounds, 1,234 tokens, $0.0042, 3.1 s". */
export function describeUsage({ model, depth, usage, duration_s: duration }) {
  const tokens = (usage?.input_tokens ?? 0) + (usage?.output_tokens ?? 0);
  const cost = usage?.cost_usd;
  return [
    model ?? "",
    depth ? `${depth} tool ${depth === 1 ? "round" : "rounds"}` : "",
    tokens ? `${tokens.toLocaleString("en")} tokens` : "",
    typeof cost === "number" && cost > 0 ? `$${cost.toPrecision(2)}` : "",
    duration ? formatDuration(duration) : "",
  ].filter(Boolean).join(", ");
}

/** Format a duration: "12 ms", "0.4 s", "75 s". */
export function formatDuration(seconds) {
  if (seconds < 0.1) return `${Math.max(1, Math.round(seconds * 1000))} ms`;
  return `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s`;
}

/** Name the period a time belongs to, as a heading of the conversation list. */
export function formatPeriod(time, now = new Date()) {
  const then = new Date(time);
  const midnight = new Date(now.getFullYear(), now.getMonth(), now.getDate());
  const days = Math.ceil((midnight - then) / 86_400_000);
  if (days <= 0) return "Today";
  if (days === 1) return "Yesterday";
  if (days <= 7) return "Last 7 days";
  if (days <= 30) return "Last 30 days";
  return then.toLocaleDateString("en", { month: "long", year: "numeric" });
}

/** Describe an error for the user. Errors of the page itself are also written to the console. */
export function describeError(error) {
  if (error?.status !== undefined) return error.message;
  console.error(error);
  return "This page had an unexpected error. Reload it to continue.";
}

/** Describe a request that needs the user's answer, for screen readers. */
export function describeRequest({ kind, call, server }) {
  const text = kind === "approval" ? `Approval needed for ${call.name}.` : `${server} asks for input.`;
  return `${text} Press Shift+Tab to reach it.`;
}

const ANNOTATIONS = {
  readOnlyHint: { true: "that it only reads" },
  destructiveHint: { true: "that it may destroy data", false: "that it destroys no data" },
  openWorldHint: {
    true: "that it reaches other systems, such as the web", false: "that it reaches no other systems",
  },
  idempotentHint: { true: "that repeating a call changes nothing more" },
};

/** Describe the annotations a server claims for a tool: "that it only reads, that it reaches no other systems". */
export function describeAnnotations(annotations) {
  return Object.entries(annotations ?? {}).map(([name, value]) => ANNOTATIONS[name]?.[value]).filter(Boolean).join(", ");
}

/** Describe the invisible characters of a call: those removed from the description, those escaped in the arguments. */
export function describeInvisible({ removed_invisible: removed, invisible_in_arguments: hidden }) {
  return [
    removed ? `${removed} invisible character${removed === 1 ? " was" : "s were"} removed from the description.` : "",
    hidden ? `${hidden} invisible character${hidden === 1 ? " is" : "s are"} escaped in the arguments.` : "",
  ].filter(Boolean);
}

/** The OAuth login to a server. */
export const LOGIN = {
  button: "Log in…",
  begin: (server) => `Log in to ${server}`,
  title: (server) => `Log in to ${server}`,
  host: (host) => `The login takes place at ${host}, in a new tab. It leads back to this service.`,
  scopes: (scopes) => `It asks for: ${scopes}`,
  cancel: "Cancel",
  open: "Open the login",
};
