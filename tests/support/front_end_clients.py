"""The clients of other front ends, as their npm packages have them: each runs a list of steps in Node."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest

from tests.support.node_program import run_node

NPM = Path(__file__).parents[2] / "build" / "npm"
needs_front_ends = pytest.mark.skipif(
    not (NPM / "node_modules" / "@ag-ui").exists(), reason="npm packages are not here: `make test` installs them"
)

# The parts that `useChat` has: the hook of React is `AbstractChat` with another place for its state.
_AI_SDK = """
import { readFileSync } from "node:fs";
const given = JSON.parse(readFileSync(0, "utf-8"));
const {
  AbstractChat, DefaultChatTransport,
  lastAssistantMessageIsCompleteWithApprovalResponses, lastAssistantMessageIsCompleteWithToolCalls,
} = await import(given.package);
class State {
  status = "ready"; error = undefined; messages = given.messages ?? [];
  pushMessage = (message) => { this.messages = [...this.messages, message]; };
  popMessage = () => { this.messages = this.messages.slice(0, -1); };
  replaceMessage = (at, message) => { this.messages = this.messages.map((old, i) => i === at ? message : old); };
  snapshot = (value) => structuredClone(value);
}
class Chat extends AbstractChat { constructor(init) { super({ ...init, state: new State() }); } }
let settle;
const data = [], responses = [], called = [];
const chat = new Chat({
  id: given.chat,
  transport: new DefaultChatTransport({
    api: given.url + "/ai-sdk/chat",
    headers: { authorization: "Bearer " + given.token },
    body: given.body,
    fetch: async (...request) => {
      const response = given.printed ? new Response(given.printed) : await fetch(...request);
      responses.push([response.status, response.headers.get("x-vercel-ai-ui-message-stream")]);
      return response;
    },
  }),
  sendAutomaticallyWhen: (chat) =>
    lastAssistantMessageIsCompleteWithApprovalResponses(chat) || lastAssistantMessageIsCompleteWithToolCalls(chat),
  onToolCall: ({ toolCall }) => {
    called.push(toolCall);
    if (given.runs?.[toolCall.toolName])
      chat.addToolOutput({
        tool: toolCall.toolName, toolCallId: toolCall.toolCallId, ...given.runs[toolCall.toolName],
      });
  },
  onData: (part) => { data.push(part); if (given.stopAt === part.type) chat.stop(); },
  onFinish: () => settle?.(),
  onError: () => settle?.(),
});
const run = async (begin) => {
  const ended = new Promise((resolve) => { settle = resolve; });
  await begin();
  await ended;
};
const open = () =>
  chat.messages.at(-1).parts.filter((part) => part.state === "input-available" && !part.providerExecuted);
const requested = () => chat.messages.at(-1).parts.filter((part) => part.state === "approval-requested");
for (const step of given.steps) {
  if (step.send) await run(() => chat.sendMessage({ text: step.send, files: step.files }));
  if (step.edit) await run(() => chat.sendMessage({ text: step.edit, messageId: chat.messages[step.at].id }));
  if (step.regenerate) await run(() => chat.regenerate());
  if (step.resume) await chat.resumeStream();
  if (step.outputs) await run(async () => {
    for (const [at, part] of open().entries())
      await chat.addToolOutput({
        tool: part.type.slice("tool-".length), toolCallId: part.toolCallId, ...step.outputs[at],
      });
  });
  if (step.decide && requested().length) await run(async () => {
    for (const [at, part] of requested().entries())
      await chat.addToolApprovalResponse({ id: part.approval.id, approved: step.decide[at], reason: step.reason });
  });
}
const { messages, status, error } = chat;
console.log(JSON.stringify({ messages, status, error: error?.message, data, responses, called }));
"""

_AG_UI = """
import { readFileSync } from "node:fs";
import { HttpAgent, buildResumeArray } from "@ag-ui/client";
const given = JSON.parse(readFileSync(0, "utf-8"));
const agent = new HttpAgent({
  url: given.url + "/ag-ui", threadId: given.chat, headers: { authorization: "Bearer " + given.token },
  fetch: async (...request) => given.printed ?
    new Response(given.printed, { headers: { "content-type": "text/event-stream" } }) : await fetch(...request),
});
agent.pendingInterrupts = given.pending ?? [];
agent.state = given.state ?? {};
const events = [], failures = [], interrupts = [];
let pending = given.calls ?? [];
const subscriber = {
  onRunFinishedEvent: ({ pendingToolCallIds }) => { pending = pendingToolCallIds ?? []; },
  onEvent: ({ event }) => { events.push(event); if (given.stopAt && given.stopAt === event.name) agent.abortRun(); },
  onRunFailed: ({ error }) => { failures.push(error.message); },
};
for (const step of given.steps) {
  let parameters = { tools: given.tools, ...given.parameters };
  for (const [at, content] of (step.results ?? []).entries())
    agent.addMessage({ id: `r${events.length}-${at}`, role: "tool", toolCallId: pending[at], content });
  for (const message of step.add ?? []) agent.addMessage(message);
  if (step.send) agent.addMessage({ id: "m" + events.length, role: "user", content: step.send });
  if (step.answers) {
    interrupts.push(...agent.pendingInterrupts);
    const answers = agent.pendingInterrupts.map((interrupt, at) => [interrupt.id, step.answers[at]]);
    parameters = { resume: buildResumeArray(agent.pendingInterrupts, Object.fromEntries(answers)) };
  }
  await agent.runAgent(parameters, subscriber).catch((error) => failures.push(error.message));
}
const open = agent.pendingInterrupts;
console.log(JSON.stringify({ messages: agent.messages, events, failures, interrupts, open, pending }));
"""


def read_printed(printed: str, *, is_ag_ui: bool) -> Any:
    """Return what `run_ag_ui` or `run_ai_sdk` return for a stream that the program has printed."""
    given = {"url": "http://service.test", "token": "", "chat": "a-chat", "package": "ai", "printed": printed}
    return run_node(_AG_UI if is_ag_ui else _AI_SDK, {**given, "steps": [{"send": "Go!"}]}, folder=NPM)


async def run_ai_sdk(url: str, token: str, steps: list[dict[str, Any]], *, package: str = "ai", **more: Any) -> Any:
    """Return ``messages``, ``status``, ``error``, ``data``, ``responses`` and ``called`` of a chat after the steps."""
    given = {"url": url, "token": token, "chat": "a-chat", "steps": steps, "package": package, **more}
    return await anyio.to_thread.run_sync(partial(run_node, _AI_SDK, given, folder=NPM))


async def run_ag_ui(url: str, token: str, steps: list[dict[str, Any]], **more: Any) -> Any:
    """Return ``messages``, ``events``, ``failures``, ``interrupts``, ``open`` and ``pending`` of an agent."""
    given = {"url": url, "token": token, "chat": "a-thread", "steps": steps, **more}
    return await anyio.to_thread.run_sync(partial(run_node, _AG_UI, given, folder=NPM))
