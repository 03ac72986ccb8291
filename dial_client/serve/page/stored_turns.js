// The turns of a stored conversation: its messages with their positions, their versions, and the details of each turn.

/** True for a message of the user that begins a turn; a message with `steers` was sent while its turn ran. */
export const isQuestion = ({ role, steers }) => role === "user" && !steers;

/**
 * Split a conversation into turns: a question and everything up to the next one. A turn is {messages, details,
 * question, answer, questionVersions, answerVersions}: positions in the store, or null, and versions as the server has
 * them, or null. `details` are [{at, ...}]: `at` is the number of messages of the turn up to their end.
 * `running`: the id of a turn whose events are shown instead of its stored details.
 */
export function toTurns({ messages, positions = [], versions = [], turns: ended = [] }, running = null) {
  const details = ended.filter(({ turn }) => turn !== running);
  const turns = [];
  messages.forEach((message, index) => {
    if (isQuestion(message) || turns.length === 0) turns.push({ start: index, messages: [], details: [] });
    turns.at(-1).messages.push(message);
  });
  for (const turn of turns) {
    const hasQuestion = isQuestion(turn.messages[0]);
    const end = turn.start + turn.messages.length;
    const isInside = ({ message }) => message >= turn.start && message < end;
    const find = (kind) => versions.find((entry) => entry.of === kind && isInside(entry)) ?? null;
    turn.details = details.filter(isInside).map((entry) => ({ ...entry, at: entry.message - turn.start + 1 }));
    turn.question = hasQuestion ? positions[turn.start] ?? null : null;
    turn.answer = positions[turn.start + (hasQuestion ? 1 : 0)] ?? null;
    if (turn.messages.length === 1 && hasQuestion) turn.answer = null;
    turn.questionVersions = find("question");
    turn.answerVersions = find("answer");
  }
  return turns;
}

/** Count the tool calls of messages. */
export const countCalls = (messages) => messages.reduce((sum, { tool_calls: calls }) => sum + (calls?.length ?? 0), 0);

/**
 * Return the beginning of a running turn: what earlier turns left (an answer that is being continued), its user message
 * and replies with at most `calls` calls, with their results.
 */
export function cutAfter(turn, calls) {
  const { messages } = turn;
  const kept = Math.max(1, ...turn.details.map(({ at }) => at));
  const isBehind = ({ role }, at) => at >= kept && role !== "tool" && countCalls(messages.slice(kept, at)) >= calls;
  const end = messages.findIndex(isBehind);
  return end < 0 ? turn : { ...turn, messages: messages.slice(0, end) };
}

/**
 * Return the steps in which a stored turn is shown, in the order in which they took place: {reasoning}, {call, result}
 * of a tool that the model's endpoint ran, {message, records} and {end}, the details of a turn that has ended.
 */
export function toSteps({ messages, details }) {
  const runs = details.map((entry) => ({ ...entry, from: entry.at - (entry.messages ?? 0) }));
  const steps = [];
  messages.forEach((message, index) => {
    const run = runs.find(({ from, at }) => index >= from && index < at);
    if (run && message.role === "assistant") steps.push(...stepsBefore(run, messages.slice(run.from, index)));
    if (!isQuestion(message)) steps.push({ message, records: run?.calls ?? [] });
    for (const ended of runs.filter(({ at }) => at === index + 1)) {
      steps.push(...stepsBefore(ended, messages.slice(ended.from, ended.at)), { end: ended });
    }
  });
  return steps;
}

/** Return the reasoning and the endpoint's calls that come directly after the messages `before` of a turn. */
function stepsBefore(run, before) {
  const replies = before.filter(({ role }) => role === "assistant");
  const rounds = replies.filter(({ tool_calls: calls }) => calls?.length).length;
  const isLast = replies.at(-1) !== undefined && !replies.at(-1).tool_calls?.length;
  const reasoning = (run.reasoning ?? []).filter(({ reply }) => reply === replies.length);
  const calls = (run.calls ?? []).filter((record) => record.by_endpoint && record.round === rounds && !isLast);
  return [...reasoning.map(({ text }) => ({ reasoning: text })), ...calls.map((record) => ({ call: record }))];
}
