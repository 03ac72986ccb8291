"""Agents as tools: each call runs a turn of the same client, within the limits of the turn that calls.

An agent has no more rights than the turn that calls it: the same approver, rules and grants decide about its calls, the
tools that the turn leaves out are left out, and what is untrusted for the one is untrusted for the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from secrets import token_hex
from typing import Any

from dial_client.hooks import call_context
from dial_client.hooks.audit.entries import Origin
from dial_client.hooks.call_context import CallContext, TurnScope
from dial_client.messages.citations import Citation
from dial_client.messages.errors import ConfigError, LimitReached
from dial_client.messages.events import AgentEvent, Event, ToolCallFinished, ToolCallProgress, ToolCallStarted
from dial_client.messages.limits import StopReason, narrow_limits
from dial_client.messages.message import (
    MAIN,
    NO_OUTPUT,
    PATH_SEPARATOR,
    Failure,
    Message,
    Role,
    ToolCallRequest,
    ToolCallResult,
    find_pending_approvals,
)
from dial_client.messages.turn_result import Turn
from dial_client.runtime.logs import get_logger
from dial_client.runtime.safe_text import to_one_line
from dial_client.servers.session import OnCallProgress
from dial_client.settings.agent import AGENTS, Agent
from dial_client.settings.config_types import ServerSettings, Transport
from dial_client.settings.policy_config import matches
from dial_client.tools.agent_progress import AgentProgress, build_held_result
from dial_client.tools.approval import Decisions
from dial_client.tools.catalog import HAND_BACK, Route, build_host_tool
from dial_client.tools.function_definition import FunctionDefinition, FunctionTool, define
from dial_client.tools.tool_selection import add_own_tools
from dial_client.turns.client_model import ClientModel
from dial_client.turns.model_call import ChatModel
from dial_client.turns.turn_handle import TurnHandle, TurnObserver
from dial_client.turns.turn_keywords import TurnKeywords, select_tools
from dial_client.turns.turn_run import TurnServices

log = get_logger(__name__)

# The most agents above each other, so that agents that may call each other end.
MAX_LEVELS = 3
_ABOUT_HANDOFF = "It is an agent, which takes the conversation over: it answers the user from here on."
_ABOUT = "It is an agent, which works on a task of its own and answers with the result."
# What an agent may do is decided call by call, so that the call of the agent itself needs no approval unless a rule
# asks for one. Its time is that of its own turn, which ends with the turn that calls.
SETTINGS = ServerSettings(
    AGENTS,
    Transport.STDIO,
    auto_approve=("*",),
    trusted=True,
    pinned=True,
    tool_timeout=math.inf,
    # The tokens and the rights of an agent are those of a turn that runs.
    background_after={"*": math.inf},
)


HAND_BACK_TOOL = build_host_tool(
    HAND_BACK,
    "Hands the conversation back to the model that you have it from, once your part is done.",
    {"type": "object", "properties": {}},
)


class AgentTools:
    """The agents of a client, which are called like the tools of a server.

    Args:
        agents: The agents.
        start: Starts a turn: `DialClient.start`.
        find_taint: Returns the sources of untrusted content in messages: `DialClient.find_taint`.
        model: The model of the client, from which those of agents are chosen.

    Raises:
        ConfigError: Two agents have one name.
    """

    name = AGENTS
    settings = SETTINGS

    def __init__(
        self,
        agents: Iterable[Agent],
        start: Callable[..., TurnHandle],
        find_taint: Callable[[Sequence[Message]], tuple[str, ...]],
        model: ClientModel,
    ) -> None:
        self._agents: dict[str, Agent] = {}
        for agent in agents:
            if agent.name in self._agents:
                raise ConfigError(f"there are two agents {agent.name!r}")
            self._agents[agent.name] = agent
        self._start, self._find_taint, self._model = start, find_taint, model
        self._hand_back = Route(_HandBack(), HAND_BACK_TOOL)
        self.tools = tuple(_define(agent) for agent in self._agents.values())
        """The definitions of the agents."""

    def find_untrusted(self, tool: str, arguments: Mapping[str, Any]) -> str:  # noqa: ARG002
        """Return an empty text: the result itself is marked if the agent has read untrusted content."""
        return ""

    async def call(self, tool: str, arguments: Mapping[str, Any], on_progress: OnCallProgress) -> ToolCallResult:
        """Run a turn of an agent, and return its answer as a result without an id."""
        agent, context = self._agents[tool], call_context.find_current()
        if agent.handoff:
            text = f"The conversation is with the agent {agent.name} now."
            return ToolCallResult("", success=True, content=text, handoff=agent.name)
        origin = context.origin if context is not None else Origin()
        scope = context.scope if context is not None else TurnScope()
        call = ToolCallRequest(context.call_id if context is not None else "", tool, arguments)
        path = f"{origin.agent or MAIN}{PATH_SEPARATOR}{agent.name}"
        progress, state = AgentProgress(), None
        if context is not None and context.agents is not None:
            progress, state = context.agents.begin(context.call_id)
        messages = (_build_task(str(arguments["task"]), context),) if state is None else state.build_history()
        for index, message in enumerate(messages):
            if message.pending is None and (state is None or not state.is_stored or index not in state.messages):
                await progress.store_message(index, message)
        if state is not None and messages[-1].role is Role.ASSISTANT:
            # The agent had ended: only the result of its call was not stored.
            return self._build_answer(agent, messages[-1].text, messages, messages[-1].citations)
        try:
            turn = self._start(
                messages,
                stream=False,
                stream_events=False,
                agents=progress,
                observers=(_ProgressObserver(progress),),
                # What an earlier process has done is not done again: a resumed turn goes on in the agent.
                decisions=None if state is None else _select_decisions(progress, messages),
                # The ids of the turn that calls: questions to the user belong to the turn that the user sees.
                origin=replace(
                    origin,
                    turn=origin.turn or token_hex(16),
                    agent=path,
                    agent_calls=origin.agent_calls if context is None else (*origin.agent_calls, context.call_id),
                ),
                hidden_tools=scope.hidden_tools,
                **self._build_keywords(agent, path, scope),
            )
        except ConfigError as error:
            # The text is of this program, and says what the user can do; those of models and servers are not shown.
            failed = ToolCallResult.failed("", Failure.TOOL, f"The agent did not start: {error}.")
            return replace(failed, exception=error)
        # A question about a call of the agent so comes after the call, wherever it is shown.
        turn.on_event = _AgentReport(path, on_progress, context, progress).receive
        try:
            return self._build_result(agent, call, await turn.result())
        except LimitReached as limit:
            return self._build_result(agent, call, limit.turn)
        except Exception as error:  # noqa: BLE001 - an error of an agent's turn is its result
            log.failure("agent_failed", error, agent=agent.name)
            failed = ToolCallResult.failed("", Failure.TOOL, f"The agent failed: {type(error).__name__}.")
            return replace(failed, exception=error)
        finally:
            await turn.stop()

    def build_services(self, services: TurnServices, name: str) -> TurnServices | None:
        """Return the services of a turn while an agent has the conversation; None if there is no such agent any more.

        They are those of the turn, narrowed: of the tools that the turn offers those of the agent, and of each limit
        the lower one.

        Raises:
            ConfigError: The model of the agent is unknown.
        """
        agent = self._agents.get(name)
        if agent is None or not agent.handoff:
            return None
        outer, path = services.scope.keywords, f"{MAIN}{PATH_SEPARATOR}{name}"
        patterns = (
            *(f"!{AGENTS}/{called}" for called in self._agents if not self._may_follow(agent, path, called)),
            *("*" if agent.tools is None else agent.tools),
        )
        model = services.model
        if agent.model is not None:
            chosen = self._model.select(agent.model)
            model = ChatModel(chosen.require(), chosen.format, chosen.window, self._model.patience)
        limits = services.limits if agent.limits is None else narrow_limits(services.limits, agent.limits)
        keywords = {
            **outer,
            "tools": (*(pattern for pattern in outer.get("tools") or () if pattern.startswith("!")), *patterns),
            "model": agent.model if agent.model is not None else outer.get("model"),
            "limits": limits,
        }
        return replace(
            services,
            agent=name,
            model=model,
            system=agent.system or services.system,
            limits=limits,
            tool_snapshot=add_own_tools(select_tools(services.tool_snapshot, patterns), (self._hand_back,)),
            scope=replace(services.scope, keywords=keywords),
        )

    def _may_follow(self, agent: Agent, path: str, name: str) -> bool:
        """Return whether an agent that has the conversation may call another one, or hand the conversation on to it."""
        if not self._agents[name].handoff:
            return self._may_call(agent, path, name)
        return name != agent.name and any(matches(pattern, AGENTS, name) for pattern in agent.tools or ())

    def _build_result(self, agent: Agent, call: ToolCallRequest, turn: Turn) -> ToolCallResult:
        if turn.stop_reason is StopReason.AWAITING_APPROVAL:
            return build_held_result(call, turn.messages)
        text = turn.text or NO_OUTPUT
        if turn.stop_reason is not StopReason.ANSWERED:
            text += f"\n\n[The agent stopped early: {turn.stop_reason.sentence}.]"
        return self._build_answer(agent, text, turn.messages, turn.citations)

    def _build_answer(
        self, agent: Agent, text: str, messages: Sequence[Message], citations: tuple[Citation, ...]
    ) -> ToolCallResult:
        # The agent may repeat what strangers wrote: what it has read taints whoever reads its answer.
        source = f"{AGENTS}/{agent.name}" if self._find_taint(messages) else ""
        return ToolCallResult("", success=True, content=text, taint=source, citations=citations)

    def _build_keywords(self, agent: Agent, path: str, scope: TurnScope) -> TurnKeywords:
        outer = scope.keywords
        keywords: TurnKeywords = {
            # What the turn leaves out is left out of all that it calls.
            "tools": (
                *(pattern for pattern in outer.get("tools") or () if pattern.startswith("!")),
                *(f"!{AGENTS}/{name}" for name in self._agents if not self._may_call(agent, path, name)),
                *("*" if agent.tools is None else agent.tools),
            ),
            "model": agent.model if agent.model is not None else outer.get("model"),
            "limits": agent.limits if agent.limits is not None else outer.get("limits"),
            "settings": outer.get("settings"),
        }
        if agent.system:
            keywords["system"] = agent.system
        return keywords

    def _may_call(self, agent: Agent, path: str, name: str) -> bool:
        """Return whether an agent may call another one: it names that one, which is not above it, nor too far below."""
        names = path.split(PATH_SEPARATOR)
        allowed = (pattern for pattern in agent.tools or () if pattern.startswith(f"{AGENTS}/"))
        is_allowed = any(matches(pattern, AGENTS, name) for pattern in allowed)
        return is_allowed and name not in names and len(names) <= MAX_LEVELS and not self._agents[name].handoff


class _ProgressObserver(TurnObserver):
    """Stores what an agent does, before it happens, so that a resumed turn goes on in the agent.

    Args:
        progress: Stores it.
    """

    def __init__(self, progress: AgentProgress) -> None:
        self._progress = progress
        self._stored = 0

    async def on_message(self, turn: TurnHandle) -> None:
        """Store the messages that are not stored yet."""
        messages, before = turn.recorder.complete_messages, len(turn.recorder.question)
        for index in range(self._stored, len(messages)):
            await self._progress.store_message(before + index, messages[index])
        self._stored = len(messages)

    async def on_held_call(self, turn: TurnHandle) -> None:
        """Store which calls wait for approval, and that another one may run now."""
        await self._progress.store_held(turn.recorder.held)


class _HandBack:
    """The backend of the tool by which an agent hands the conversation back."""

    name = ""
    settings = None

    def find_untrusted(self, tool: str, arguments: Mapping[str, Any]) -> str:  # noqa: ARG002
        """Return an empty text."""
        return ""

    async def call(self, tool: str, arguments: Mapping[str, Any], on_progress: OnCallProgress) -> ToolCallResult:  # noqa: ARG002
        """Hand the conversation back."""
        return ToolCallResult("", success=True, content="The conversation is yours again.", handoff=MAIN)


def _define(agent: Agent) -> FunctionDefinition:
    # The agent itself changes nothing and sends nothing: each of its calls is decided for itself.
    description = f"{agent.description}\n\n{_ABOUT_HANDOFF if agent.handoff else _ABOUT}"
    function = _hand_over if agent.handoff else _ask
    tool = FunctionTool(
        function, name=agent.name, description=description, read_only=True, destructive=False, open_world=False
    )
    return define(tool)


def _ask(task: str) -> None:
    """Describe the parameters of the tool of each agent, whose calls `AgentTools.call` runs.

    Args:
        task: The whole task, with all that the agent has to know: it sees nothing of this conversation.
    """


def _hand_over() -> None:
    """Describe the tool of each agent that takes the conversation over: it sees the conversation."""


def _select_decisions(progress: AgentProgress, messages: Sequence[Message]) -> Decisions:
    """Return the decisions about calls of an agent, and of the agents that it has called."""
    asked = {pending.id for pending in find_pending_approvals(messages)}
    return {id_: decision for id_, decision in progress.decisions.items() if id_ in asked}


def _build_task(task: str, context: CallContext | None) -> Message:
    """Return the question of an agent's turn; it is untrusted if the model that wrote it had read strangers' text."""
    taint = context.taint if context is not None else ()
    return Message(Role.USER, task, taint=taint[0] if taint else "")


@dataclass(eq=False)
class _AgentReport:
    """Reports the calls of an agent's turn, and of the agents that it calls, to the turn that calls it."""

    _path: str
    _on_progress: OnCallProgress
    _context: CallContext | None
    _progress: AgentProgress
    # The calls of the turn by their ids, and those among them that are of agents.
    _calls: dict[str, ToolCallRequest] = field(default_factory=dict)
    _agents: set[str] = field(default_factory=set)
    _number: int = 0

    async def receive(self, event: Event) -> None:
        """Report an event of the turn, and store the result of a call before its round has ended."""
        context = self._context
        if isinstance(event, ToolCallStarted | ToolCallFinished | AgentEvent) and context and context.emit:
            await context.emit(AgentEvent(context.call_id, self._path, event))
        text = None
        match event:
            case ToolCallFinished(result, by_endpoint=False) if result.pending is None:
                await self._progress.store_result(Message.tool(self._calls[result.tool_call_id], result))
            case ToolCallStarted(call, server, tool):
                self._calls[call.id] = call
                text = f"{self._path}{PATH_SEPARATOR}{to_one_line(f'{server}.{tool}' if server else call.name, 150)}"
                if server == AGENTS:
                    self._agents.add(call.id)
            case ToolCallProgress(call_id, _, _, message) if call_id in self._agents:
                text = message
        if text is not None:
            self._number += 1
            await self._on_progress(self._number, None, text)
