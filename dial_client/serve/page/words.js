// What is said to people.

const STOPPED = {
  max_depth: "Stopped after the most rounds of tool calls that are allowed.",
  consecutive_errors: "Stopped because the tool calls failed again and again.",
  repeated_calls: "Stopped because the model repeated the same call.",
  timeout: "Stopped because the turn took too long.",
  token_budget: "Stopped because the token budget is used up.",
  truncated: "The model's answer was cut off at its greatest length.",
  refused: "The model declined to answer.",
  cancelled: "Stopped.",
};

/** Say why a turn ended without an answer; nothing where it was answered. */
export function stopped(reason) {
  return reason === "answered" ? "" : STOPPED[reason] ?? `Stopped: ${reason}.`;
}

/** Say what a turn took: "2 rounds of tools, 1,234 tokens, $0.0042". */
export function took({ depth, usage }) {
  const tokens = (usage?.input_tokens ?? 0) + (usage?.output_tokens ?? 0);
  const cost = usage?.cost_usd;
  return [
    depth ? `${depth} ${depth === 1 ? "round" : "rounds"} of tools` : "",
    tokens ? `${tokens.toLocaleString("en")} tokens` : "",
    typeof cost === "number" && cost > 0 ? `$${cost.toPrecision(2)}` : "",
  ].filter(Boolean).join(", ");
}

/** Say how long something took: "12 ms", "0.4 s", "75 s". */
export function seconds(number) {
  if (number < 0.1) return `${Math.max(1, Math.round(number * 1000))} ms`;
  return `${number < 10 ? number.toFixed(1) : Math.round(number)} s`;
}

/** Name the part of the list a time belongs to. */
export function period(time, now = new Date()) {
  const then = new Date(time);
  const midnight = new Date(now.getFullYear(), now.getMonth(), now.getDate());
  const days = Math.ceil((midnight - then) / 86_400_000);
  if (days <= 0) return "Today";
  if (days === 1) return "Yesterday";
  if (days <= 7) return "Last 7 days";
  if (days <= 30) return "Last 30 days";
  return then.toLocaleDateString("en", { month: "long", year: "numeric" });
}

/** Turn what was thrown into a sentence. What the page itself got wrong is for its developers' console. */
export function sentence(error) {
  if (error?.status !== undefined) return error.message;
  console.error(error);
  return "Something unexpected went wrong in this page. Reloading it may help.";
}

const HINTS = {
  readOnlyHint: { true: "that it only reads" },
  destructiveHint: { true: "that it may destroy something", false: "that it destroys nothing" },
  openWorldHint: {
    true: "that it reaches beyond its own data, the web for example", false: "that it stays within its own data",
  },
  idempotentHint: { true: "that a second call does no more than the first" },
};

/** Say in words what a server's annotations claim: "that it only reads, that it stays within its own data". */
export function hintsIn(annotations) {
  return Object.entries(annotations ?? {}).map(([name, value]) => HINTS[name]?.[value]).filter(Boolean).join(", ");
}

/** Say what of a call nobody sees: what was removed from the server's words, and what is written out. */
export function notesOn({ removed_invisible: removed, invisible_in_arguments: hidden }) {
  const one = "1 character that nobody sees is written out in the arguments.";
  return [
    removed ? `${removed} invisible character${removed === 1 ? " was" : "s were"} removed from what the server says.` : "",
    hidden > 1 ? `${hidden} characters that nobody sees are written out in the arguments.` : hidden ? one : "",
  ].filter(Boolean);
}
