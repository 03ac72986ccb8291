"""`DialClient`: an MCP host that connects servers to a chat model."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, aclosing
from dataclasses import replace
from functools import partial
from secrets import token_hex
from threading import Lock
from types import MappingProxyType, TracebackType
from typing import Any, Literal, Never, Self, TypeVar, Unpack, overload

import anyio
from anyio.lowlevel import current_token

from dial_client.client import client_setup
from dial_client.client.blocking_client import BlockingClient, run_from_thread
from dial_client.client.client_options import (
    FOREIGN_ARGUMENTS,
    FOREIGN_ATTRIBUTES,
    WITH_STATEMENT,
    ApprovalPolicy,
    ClientOptions,
    Directory,
    Logins,
    Skill,
    StartKeywords,
)
from dial_client.client.client_setup import ClientParts
from dial_client.client.code_mode import CodeMode
from dial_client.client.config_changes import ConfigChanges, ConfigInUse, change_servers, use_config
from dial_client.conversations.chat_loop import Chat
from dial_client.hooks import call_context
from dial_client.hooks.audit.entries import AuditRecorder, Origin
from dial_client.hooks.call_context import TurnScope
from dial_client.hooks.middleware import Middleware, MiddlewareChain
from dial_client.hooks.owners import CredentialProvider, act_for, find_owner
from dial_client.hooks.server_callbacks import Callbacks
from dial_client.hooks.telemetry.instrument_lookup import find_instruments
from dial_client.messages.errors import ConfigError, DialError
from dial_client.messages.events import Event, discard_event
from dial_client.messages.limits import Limits
from dial_client.messages.message import Content, Message, ToolCallRequest, ToolCallResult, ToolSpec
from dial_client.messages.model import Instruction, ModelSettings, Provider, ToolFormat, ToolFormatHandler
from dial_client.messages.turn_result import Turn
from dial_client.providers import is_recording
from dial_client.runtime.background_tasks import BackgroundTasks
from dial_client.runtime.deadline import Deadline
from dial_client.runtime.foreign_names import refuse_attributes, refuse_names
from dial_client.runtime.value_summary import ValueSummary
from dial_client.servers.connection import Connection
from dial_client.servers.oauth.login_stores import LoginStore
from dial_client.servers.resources import Resources
from dial_client.servers.server_manager import STARTUP_PATIENCE, Connect, ServerManager
from dial_client.servers.server_notes import select_unsaid
from dial_client.servers.status import ServerStatus
from dial_client.settings.agent import AgentSource
from dial_client.settings.argument_types import check_folders, check_items, check_seconds, check_types, describe_type
from dial_client.settings.config_types import ModelProfile, Settings
from dial_client.sinks import sse_encoder
from dial_client.stores.conversation_store import ConversationStore
from dial_client.tools.agent_progress import AgentProgress
from dial_client.tools.approval import ApprovalChecker, Approver, Decisions, match_decisions
from dial_client.tools.approval_mode import ApprovalMode
from dial_client.tools.apps import Apps
from dial_client.tools.background_calls import BackgroundCalls
from dial_client.tools.executor import CallScope, ToolExecutor
from dial_client.tools.function_definition import Function, FunctionOptions, FunctionT, FunctionTool
from dial_client.tools.function_tools import FunctionTools, OnToolError
from dial_client.tools.prompts import Prompts
from dial_client.tools.result_content import ResultStore
from dial_client.tools.skills.skill_lists import Skills
from dial_client.tools.taint import find_taint
from dial_client.tools.tool_selection import add_own_tools
from dial_client.turns import turn_run
from dial_client.turns.client_model import ClientModel, ModelSelection
from dial_client.turns.context_report import ContextReport, measure_request
from dial_client.turns.event_log import EventLog
from dial_client.turns.instructions import TurnInstructions
from dial_client.turns.mentions import Attached, attach
from dial_client.turns.model_call import ChatModel
from dial_client.turns.output_type import build_output_type
from dial_client.turns.turn_handle import TurnHandle, TurnObserver, TurnTasks
from dial_client.turns.turn_keywords import TurnInput, TurnKeywords, check_keywords, select_tools, to_messages
from dial_client.turns.turn_recorder import count_last_rounds, find_question

OutputT = TypeVar("OutputT")


@refuse_names(**FOREIGN_ARGUMENTS)
@refuse_attributes(with_statement=WITH_STATEMENT, **FOREIGN_ATTRIBUTES)
class DialClient:
    """An MCP host: connects servers to a chat model, and runs the tool calls that the model requests.

    Use it as ``async with DialClient(…) as dial``; one task may enter it and another may leave it. Turns may run
    concurrently. Apart from cancellation, and from built-in errors for wrong use such as `TypeError`, its methods raise
    only the errors in `dial_client.messages.errors`.

    Args:
        model: The model's name (``anthropic:claude-sonnet-5-5``, or a key of `models`), or a `Provider`; None for a
            client that only calls tools.
        servers: The servers by name: each an entry as in servers.json, a URL, a `ServerSettings`, or an in-process
            ``mcp.server.MCPServer``.
        tool_format: The format of tool calls, or a `ToolFormatHandler` of your own; by default the format in the
            model's profile, else the API's native one.
        limits: The limits of each turn.
        approve: The approver, which is asked before each call that neither `approval` nor the configuration decides;
            None allows these calls.
        approval: Patterns and rules that decide without asking, and the folders that store the approver's answers.
        callbacks: The callbacks for servers' requests: elicitation, sampling, roots, logs, logins.
        audit: The recorder of each decision and each call, such as `audit.log_writer.AuditLog`.
        cache_dir: The folder that caches, between runs, the tools of servers (for entries with ``"lazy"``) and the
            protocol of each server; True for the user's cache folder.
        logins: Where logins to servers are kept: False for the memory of this client alone, a folder, a store such as
            `FolderLogins`, or True for the logins of `dial-chat servers login`. Clients with the same logins act as the
            same user.
        credentials: Knows what each person (keyword ``owner``) has filled in for ``${user.NAME}`` in the entries of
            servers. Without it these are variables of the environment, for turns without an owner.
        on_limit: ``"answer"`` ends a turn with a written answer when it meets a limit; ``"raise"`` raises
            `LimitReached`. By default turns end with an answer, but a turn with an ``output_type`` and no output
            raises `OutputError`.
        system: Instructions for conversations that do not begin with a system message; empty for none, not even the
            host's own guidance on tools.
        guidance: Instructions on using tools, in addition to other instructions; empty for none. None adds the default
            guidance to conversations without instructions.
        status: The source of the texts of `StatusChanged`: ``"template"`` uses the tools' titles; ``"model"`` also asks
            a model to describe each running call (at most 20 tokens and 2 seconds).
        status_model: A smaller model for these descriptions; by default the client's model. An error without
            ``status="model"``.
        base_url: The base URL of the model's endpoint, in place of its default.
        models: The model profiles that `model` may name: each a `ModelProfile`, or an entry as in servers.json.
        record: The file that records the conversation, for a bug report or a test (`recordings.recording`). The model
            ``scripted:FILE`` replays it, with mock servers for those that are not in `servers`.
        resource_tools: True to let the model list and read the resources of all servers; False for only the servers
            whose entries allow it.
        tools: Functions that the model may call in addition to the servers' tools. Patterns and events name them
            ``functions/NAME``; see `tool`.
        middleware: The middleware of turns, model calls and tool calls, the outermost first; see `Middleware`.
        fallback_models: The models to ask, in this order, if `model` cannot answer; by default those of its profile.
        startup_patience: The most seconds that a turn waits for a server, from the server's start. The tools of a
            slower server are offered in a later round; cached tools (`cache_dir`) are offered after one second. A turn
            always waits for a server marked ``required``.
        skills: The folders of Agent Skills: each has a ``SKILL.md``, or folders with one. The model reads their names
            and descriptions in its instructions, and the rest by the tool ``read_skill``.
        agents: The agents that the model may call like tools: each an `Agent`, the path of its file, or the path of a
            folder with such files. Patterns and events name them ``agents/NAME``.
        on_tool_error: Called with an exception of a function and the `Context` of its call; returns the text that the
            model reads, or None for the usual text, which has only the type of the exception.

    Raises:
        ConfigError: An entry, the model's name or an option is wrong.
        TypeError: An argument has the wrong type, such as an object that cannot be a server, a model or a tool.
    """

    # The configuration of `from_config`; None for a client without one.
    _config: ConfigInUse | None = None
    # The client's background tasks; None while it is closed.
    _tasks: BackgroundTasks | None = None
    # Records the conversation; None for a client that does not.
    _recording: Any = None
    # True within `async with`.
    _is_entered = False
    system: str | None
    """Instructions for the next turns of conversations that do not begin with a system message."""
    file_instructions: tuple[Instruction, ...] = ()
    """Instructions from files, such as ``AGENTS.md``, for the next turns of all conversations."""
    resources: Resources
    """The resources of all servers."""
    prompts: Prompts
    """The prompts of all servers."""
    approvals: ApprovalChecker
    """Decides for each tool call whether it may run."""
    logins: LoginStore
    """Where the client keeps its logins to servers."""
    credentials: CredentialProvider | None
    """Knows what each person has filled in; None if the one person fills in variables of the environment."""

    def __init__(  # noqa: PLR0913 - the options of a host, all but one by name
        self,
        model: str | Provider | None = None,
        *,
        servers: Mapping[str, Any] = MappingProxyType({}),
        tool_format: ToolFormat | ToolFormatHandler | str | None = None,
        limits: Limits | None = None,
        approve: Approver | None = None,
        approval: ApprovalPolicy | None = None,
        callbacks: Callbacks | None = None,
        audit: AuditRecorder | None = None,
        cache_dir: Directory = False,
        logins: Logins = False,
        credentials: CredentialProvider | None = None,
        on_limit: Literal["answer", "raise"] | None = None,
        system: str | None = None,
        guidance: str | None = None,
        status: Literal["template", "model"] = "template",
        status_model: str | Provider | None = None,
        base_url: str | None = None,
        models: Mapping[str, ModelProfile | Mapping[str, Any]] | None = None,
        record: str | os.PathLike[str] | None = None,
        resource_tools: bool = False,
        tools: Sequence[Function | FunctionTool] = (),
        middleware: Sequence[Middleware] = (),
        fallback_models: Sequence[str | Provider] = (),
        startup_patience: float = STARTUP_PATIENCE,
        on_tool_error: OnToolError | None = None,
        skills: Sequence[Skill] = (),
        agents: Sequence[AgentSource] = (),
    ) -> None:
        check_types(limits=(limits, Limits), approval=(approval, ApprovalPolicy), callbacks=(callbacks, Callbacks))
        check_types(system=(system, str), credentials=(credentials, CredentialProvider))
        check_folders(cache_dir=cache_dir)
        check_seconds(startup_patience=startup_patience)
        if on_limit not in (None, "answer", "raise"):
            raise ConfigError(f"unknown on_limit {on_limit!r}", hint='expected "answer" or "raise"')
        approval, self.limits = approval or ApprovalPolicy(), limits or Limits()
        self._sync_lock, self._on_limit, self.system = Lock(), on_limit, system
        self.logins, self.credentials = client_setup.open_logins(logins), credentials
        profiles = client_setup.read_profiles(models)
        chosen = ModelSelection(model, profiles, base_url, tool_format, guidance, status, status_model, fallback_models)
        self._model = ClientModel(chosen, MiddlewareChain(middleware, find_instruments))
        capabilities = client_setup.build_client_capabilities(
            callbacks, self.model, approve, approval, self.limits, audit
        )
        targets = client_setup.read_targets(servers)
        connect: Connect = Connection
        if is_recording(self.model.provider):
            from dial_client.client import recording  # loaded only by clients that need it

            targets, approve = recording.replay(self.model.require(), targets, approve)
            connect = recording.connect_recorded
        if record is not None:
            from dial_client.client.recording import Recording

            self._recording = Recording(record, targets, self.model.provider, self.model.format_name)
            approve, connect = self._recording.record_approver(approve), self._recording.connect
            self.model.record_with(self._recording.record_provider(self.model.provider))
        self._turns, self._results = TurnTasks(), ResultStore()
        # A recording needs every server to be started.
        cache = client_setup.open_cache(False if record is not None else cache_dir, client_setup.CACHE)
        capabilities = replace(capabilities, on_change=self._turns.announce, cache=cache, logins=self.logins)
        self._servers = ServerManager(targets, capabilities, connect, startup_patience, credentials)
        self.approvals = client_setup.build_approval_checker(self._servers, approve, approval)
        self.resources, self.prompts = Resources(self._servers), Prompts(self._servers)
        self._skills = client_setup.SkillAccess(self._servers, approval.tool_pins, skills)
        self.approvals.find_host_reason = self._skills.find_reason_to_ask
        self._tools = client_setup.open_tools(
            self._servers, self.resources, tools, capabilities, resource_tools=resource_tools, on_error=on_tool_error
        )
        self._executor = ToolExecutor(
            self._tools.get_catalog, self.approvals, self.limits, CallScope(), capabilities.audit, self.model.middleware
        )
        self._code = CodeMode(self._tools, self._executor, self.wait_for_servers, self._require_open)
        self.use_agents(agents)

    @classmethod
    def from_config(
        cls,
        path: str | os.PathLike[str] | Settings,
        model: str | Provider | None = None,
        profile: str | None = None,
        **options: Unpack[ClientOptions],
    ) -> Self:
        """Create a client from a servers.json file.

        If the model is a recording, its mock servers replace all servers of the file.

        Args:
            path: The path of the file; or a `Settings` that was read before, which may name no model: such a client
                only calls tools.
            model: The model, as for `DialClient`; by default the ``defaultModel`` of the file.
            profile: The name of a profile in the file; None for no profile.
            options: Further keyword arguments of `DialClient`.

        Raises:
            ConfigError: The file is missing or wrong, the profile is unknown, or neither `model` nor ``defaultModel``
                names a model.
        """
        from dial_client.settings import configuration  # loaded only by clients that read a file

        check_types(profile=(profile, str))
        if isinstance(path, Mapping):
            raise TypeError("from_config takes the path of a file, not a mapping: use DialClient(model, servers={…})")
        settings = path if isinstance(path, Settings) else configuration.load_config(path, profile=profile)
        if model is None and settings.default_model is None and settings is not path:
            raise ConfigError("no model is named", hint='give model=…, or "defaultModel" in the file', path=str(path))
        config = use_config(settings, profile, model, options)
        model = model if model is not None else settings.default_model
        servers = {} if is_recording(model) else settings.servers
        dial = cls(model, servers=servers, **options)
        dial._config = config
        return dial

    async def reload(self, source: str | os.PathLike[str] | Settings | None = None) -> ConfigChanges:
        """Apply a changed configuration, and return what has changed. Servers that are the same keep running.

        Running turns keep their model; the calls of servers that are stopped or replaced end with error results. The
        model, the instructions, the limits and the rules that were arguments of `from_config` stay.

        Args:
            source: The file, which is read with the profile of `from_config`, or read `Settings`; None to read the file
                of `from_config` again.

        Raises:
            ConfigError: The file is missing or wrong, its model cannot be opened, or the client was not created by
                `from_config`; nothing was changed.
            RuntimeError: The client is not open.
        """
        self._require_open()
        before = self._config
        if before is None:
            raise ConfigError("the client has no configuration to reload", hint="create it by DialClient.from_config")
        settings = await before.read_again(source)
        after = replace(before, settings=settings)
        before.use_folders(settings, self._skills.set_folders, self.use_agents)
        is_model_changed = not before.has_model and before.models != after.models
        if is_model_changed:
            if settings.default_model is None:
                raise ConfigError("no model is named", hint='"defaultModel" in the file', path=str(settings.path or ""))
            fallback_models = settings.find_fallback_models(None)
            self.model.reopen(settings.default_model, settings.models, fallback_models)
        elif before.settings.models != settings.models:
            self.model.set_profiles(settings.models)
        # Before servers start: their tools can be called at once.
        self.approvals.set_policy((*before.rules, *settings.policy))
        self.system = self.system if before.has_system else settings.system
        self.limits = self.limits if before.has_limits else replace(Limits(), **settings.limits)
        self._config = after
        failed: dict[str, DialError] = {}

        def report(name: str, result: ServerStatus | DialError) -> None:
            if isinstance(result, DialError):
                failed[name] = result

        changes = await change_servers(self, before.settings.servers, settings.servers, report)
        return replace(changes, failed=failed, is_model_changed=is_model_changed)

    async def __aenter__(self) -> Self:
        """Start all servers concurrently, and wait until each is ready or has failed.

        Raises:
            ServerStartError: A server marked ``required`` did not start.
            RuntimeError: The client is entered already.
        """
        if self._is_entered and self.is_open:
            raise RuntimeError(
                "the client is entered already, and the end of a second `async with` would close it for the first:"
                " pass the open client on"
            )
        await self.open()
        self._is_entered = True
        try:
            await self.ready()
        except BaseException:
            await self.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    @property
    def is_open(self) -> bool:
        """Whether the client is open."""
        return self._tasks is not None and not self._tasks.is_closed

    async def open(self) -> None:
        """Begin to start the servers and to prepare the model, without waiting; does nothing if the client is open.

        Raises:
            ConfigError: The file of the recording cannot be written.
            RuntimeError: The client is open in another event loop.
        """
        if self.is_open:
            self._check_loop()
            return
        if self._recording is not None:
            self._recording.open()
        self._tasks = await BackgroundTasks.open()
        self._servers.start(self._tasks)
        self.model.reset()
        self._tasks.start_soon(self.model.prepare_at_start)

    async def ready(self) -> None:
        """Wait until every server is ready or has failed; a server fails at its start-up timeout.

        Raises:
            ServerStartError: A server marked ``required`` did not start.
        """
        self._check_loop()
        await self._servers.wait_settled()
        self._servers.require()

    async def aclose(self) -> None:
        """Cancel the turns, stop the servers and close the model's connections. Any task may call it, also twice.

        Raises:
            RuntimeError: The client is open in another event loop.
        """
        self._check_loop()
        tasks, self._tasks, self._is_entered = self._tasks, None, False
        if tasks is None:
            return
        # The stack closes the last part first, and goes on if a part raises or if the caller is cancelled: a shield
        # does not hold back asyncio's own `Task.cancel`.
        with anyio.CancelScope(shield=True):
            async with AsyncExitStack() as parts:
                if self._recording is not None:
                    parts.callback(self._recording.close)
                for part in (self._code, tasks, self.model, self._servers, self._turns):
                    parts.push_async_callback(part.aclose)

    @overload
    async def run(self, messages: TurnInput, *, output_type: None = None, **keywords: Unpack[TurnKeywords]) -> Turn: ...

    @overload
    async def run(
        self, messages: TurnInput, *, output_type: type[OutputT], **keywords: Unpack[TurnKeywords]
    ) -> Turn[OutputT]: ...

    @overload
    async def run(self, messages: TurnInput, *, output_type: Any, **keywords: Unpack[TurnKeywords]) -> Turn[Any]: ...

    async def run(self, messages: TurnInput, *, output_type: Any = None, **keywords: Unpack[TurnKeywords]) -> Turn[Any]:
        """Run a turn, and return it when it has ended. Replies are not streamed, unless the endpoint requires it.

        Args:
            messages: The question, or the whole conversation, which is never changed.
            output_type: The type of ``turn.output``: any type that `pydantic.TypeAdapter` accepts, or a JSON Schema as
                a mapping. If an answer is not of this type, the model is asked to correct it, at most twice.
            keywords: The model, instructions, limits, tools and settings of this turn, and the messages before the
                question; see `TurnKeywords`.

        Raises:
            ProviderError: The model could not be reached, or refused the request.
            RequestRefused: A middleware refused a request to the model, or its reply.
            MiddlewareError: A middleware failed.
            LimitReached: A limit was met, and the client has ``on_limit="raise"``.
            OutputError: No answer is of `output_type`. With ``on_limit="answer"``, ``turn.output`` is None instead.
            ConfigError: The client has no model, the `model` of this turn is unknown, or `output_type` is an invalid
                JSON Schema.
            RuntimeError: The client is not open.
            TypeError: `messages` is not a conversation, a keyword is unknown or has the wrong type, or `output_type` is
                not a type that JSON can be parsed as.
        """
        turn = self.start(messages, stream=False, stream_events=False, output_type=output_type, **keywords)
        try:
            return await turn.result()
        finally:
            await turn.stop()

    async def resume(
        self, turn: Turn[Any], decisions: Decisions, *, output_type: Any = None, **keywords: Unpack[TurnKeywords]
    ) -> Turn[Any]:
        """Continue a turn that ended because calls wait for approval, and return the whole turn when it has ended.

        A decision is checked like the answer of an approver at once: by the deny rules, the schema of the tool, and
        the tool's definition, which must be the one that was shown. The approver is asked about calls without a
        decision; without an approver they go on waiting, and the turn ends again. Nothing is stored: continue the
        turn of a conversation by `ConversationManager.resume`, which accepts each decision only once.

        Args:
            turn: The turn, such as ``Turn.from_dict(data)``, in this program or in a later one.
            decisions: The decisions by the ids in `Turn.pending_approvals`: an `Approval`, or one of its words
                (``"once"``).
            output_type: The type of the answer, as for `run`.
            keywords: The keywords of the turn, as for `run`: pass them again, with the same ``history``.

        Raises:
            ConfigError: No call waits for approval, or a decision has the id of none.
            ValueError: A decision is not one of the words.
            Exception: The errors of `run`.
        """
        if not turn.pending_approvals:
            raise ConfigError("no call of this turn waits for approval")
        check_keywords(keywords)
        handle = self.start(
            turn.messages, stream=False, stream_events=False, decisions=decisions, output_type=output_type, **keywords
        )
        try:
            return await handle.result()
        finally:
            await handle.stop()

    @overload
    def stream(
        self, messages: TurnInput, *, output_type: None = None, **keywords: Unpack[TurnKeywords]
    ) -> AsyncGenerator[Event, None]: ...

    @overload
    def stream(
        self, messages: TurnInput, *, output_type: type[OutputT], **keywords: Unpack[TurnKeywords]
    ) -> AsyncGenerator[Event[OutputT], None]: ...

    @overload
    def stream(
        self, messages: TurnInput, *, output_type: Any, **keywords: Unpack[TurnKeywords]
    ) -> AsyncGenerator[Event[Any], None]: ...

    async def stream(
        self, messages: TurnInput, *, output_type: Any = None, **keywords: Unpack[TurnKeywords]
    ) -> AsyncGenerator[Event[Any], None]:
        """Run a turn, and yield its events as they happen, `Finished` last. Leaving the loop early cancels the turn.

        With an `output_type`, `OutputDelta` has the partial answer as a value of that type. Arguments and errors are
        those of `run`; errors of the turn are raised after the last event.
        """
        turn = self.start(messages, output_type=output_type, **keywords)
        async with aclosing(turn.events()) as events:
            async for event in events:
                yield event

    @overload
    def start(
        self, messages: TurnInput, *, output_type: None = None, **keywords: Unpack[StartKeywords]
    ) -> TurnHandle: ...

    @overload
    def start(
        self, messages: TurnInput, *, output_type: type[OutputT], **keywords: Unpack[StartKeywords]
    ) -> TurnHandle[OutputT]: ...

    @overload
    def start(self, messages: TurnInput, *, output_type: Any, **keywords: Unpack[StartKeywords]) -> TurnHandle[Any]: ...

    def start(  # noqa: PLR0913 - the options of a turn, all but one by name
        self,
        messages: TurnInput,
        *,
        stream: bool = True,
        stream_events: bool = True,
        client_tools: Sequence[ToolSpec] = (),
        observers: Sequence[TurnObserver] = (),
        origin: Origin | None = None,
        tool_format: str | None = None,
        hidden_tools: Collection[str] = (),
        decisions: Decisions | None = None,
        plain: bool = False,
        background: BackgroundCalls | None = None,
        agents: AgentProgress | None = None,
        earlier_notes: Sequence[str] = (),
        output_type: Any = None,
        **keywords: Unpack[TurnKeywords],
    ) -> TurnHandle[Any]:
        """Start a turn, and return its handle without waiting for the result.

        Args:
            messages: The question, or the whole conversation, which is never changed.
            stream: True to ask the model for a streamed reply.
            stream_events: True if the caller reads `TurnHandle.events`; the turn then waits for a slow reader.
            client_tools: Tools that the caller runs itself; they hide offered tools of the same names. A call of such a
                tool ends the turn.
            observers: The observers of the turn; each may also run a task of its own beside the turn.
            origin: The ids of the turn and its conversation, and its owner without the keyword; by default a new turn.
            tool_format: ``native``, ``react``, ``xml``, ``code`` or ``auto``; by default the client's.
            hidden_tools: The offered names of tools that the model cannot call.
            decisions: As for `resume`, for a turn that goes on at the end of `messages`; None for a new turn.
            plain: True for the model alone: no tools but `client_tools`, and no instructions but those of `messages`.
            background: The calls in the background of the conversation; None to stop those of this turn at its end.
            agents: What is stored of the agents that the turn calls; None to store nothing.
            earlier_notes: The notes of earlier turns, the oldest first, which are not repeated (`select_unsaid`).
            output_type: The type of the answer, as for `run`.
            keywords: Further keywords, as for `run`.

        Raises:
            ConfigError: As for `run`, or the tool format is unknown.
            RuntimeError: The client is not open.
            TypeError: As for `run`, or another argument has the wrong type.
        """
        tasks = self._require_open()
        check_keywords(keywords)
        check_items(observers=(observers, TurnObserver), client_tools=(client_tools, ToolSpec))
        self.model.select(keywords.get("model"), tool_format).require()
        conversation = (*to_messages(keywords.get("history") or ()), *to_messages(messages))
        output = None if output_type is None else build_output_type(output_type)
        waiting, depth, agents = {}, 0, agents or AgentProgress()
        if decisions is not None:
            waiting, depth = match_decisions(conversation, decisions), count_last_rounds(conversation)
            agents = agents.resume([pending for pending, _ in waiting.values()], decisions)
            conversation = tuple(message for message in conversation if message.pending is None)
        outer_call = call_context.find_current()

        async def open_services() -> turn_run.TurnServices:
            services = await self._open_services(keywords, tool_format, hidden_tools, earlier_notes, is_plain=plain)
            return replace(
                services, stream=stream, client_tools=tuple(client_tools), depth=depth, waiting=waiting, output=output
            )

        turn: TurnHandle[Any] = TurnHandle(
            partial(turn_run.run_turn, open_services, conversation),
            EventLog(is_paced=stream_events),
            observers,
            question=find_question(conversation, is_resumed=depth > 0),
            waiting=tuple(pending for pending, _ in waiting.values()),
            spend=None if outer_call is None else outer_call.spend,
            origin=_build_origin(origin or Origin(turn=token_hex(16)), keywords.get("owner")),
            raise_at_limits=self._on_limit == "raise",
            require_output=output is not None and self._on_limit != "answer",
            background_calls=background or BackgroundCalls(),
            agents=agents,
            is_resumed=decisions is not None,
        )
        if self.model.retired and not self._turns.are_running:
            tasks.start_soon(self.model.close_retired)
        return self._turns.start(turn, tasks)

    async def _open_services(
        self,
        keywords: TurnKeywords,
        tool_format: str | None,
        hidden_tools: Collection[str],
        earlier_notes: Sequence[str],
        *,
        is_plain: bool,
    ) -> turn_run.TurnServices:
        """Wait until a turn can start, and return what it needs."""
        if is_plain:
            await self.model.wait_prepared()
            return self._build_services(keywords, tool_format, hidden_tools).without_host()
        servers = self._servers
        # Start-up has its own limits: the download of a model must not use up the time limit of the first turn.
        await servers.patience.wait()
        await servers.prepare_owner()
        await servers.wait_for_tools()
        await self.model.wait_prepared()
        if (skills := self._skills.find()) is not None:
            await skills.refresh()
        return self._build_services(keywords, tool_format, hidden_tools, earlier_notes)

    def measure_context(
        self,
        messages: TurnInput,
        *,
        tool_format: str | None = None,
        hidden_tools: Collection[str] = (),
        **keywords: Unpack[TurnKeywords],
    ) -> ContextReport:
        """Return an estimate of what fills the model's context window when a conversation goes on.

        Args:
            messages: The conversation.
            tool_format: The tool format, as for `start`.
            hidden_tools: The offered names of tools that the model cannot call.
            keywords: Further keywords, as for `run`.

        Raises:
            ConfigError: The client has no model, or as for `run`.
            TypeError: As for `run`.
        """
        check_keywords(keywords)
        conversation = (*to_messages(keywords.get("history") or ()), *to_messages(messages))
        window = self.model.select(keywords.get("model"), tool_format).window_tokens
        with act_for(keywords.get("owner") or find_owner()):
            return measure_request(self._build_services(keywords, tool_format, hidden_tools), conversation, window)

    def _build_services(
        self,
        keywords: TurnKeywords,
        tool_format: str | None,
        hidden_tools: Collection[str],
        earlier_notes: Sequence[str] = (),
    ) -> turn_run.TurnServices:
        """Return what a turn needs, as it is at this moment."""
        servers = self._servers
        model, system = self.model.select(keywords.get("model"), tool_format), keywords.get("system")
        limits = keywords.get("limits") or self.limits
        skills = self._skills.find()
        routes = () if skills is None else skills.routes
        take_snapshot = add_own_tools(self._tools.take_snapshot, routes)
        tool_snapshot = select_tools(take_snapshot, keywords.get("tools"), hidden_tools)
        # The list of skills is for the tool that reads them, which a turn may leave out.
        reads_skills = any(route in tool_snapshot().own for route in routes)
        return turn_run.TurnServices(
            model=ChatModel(model.require(), model.format, model.window, self.model.patience),
            tool_snapshot=tool_snapshot,
            result_store=self._results,
            approvals=self.approvals,
            limits=limits,
            await_tool_changes=servers.wait_for_tools,
            status_provider=self.model.status_provider,
            answers_at_limits=self._on_limit != "raise",
            waits_for_background=bool(keywords.get("wait_for_background")),
            instructions=TurnInstructions(
                (),
                servers.values,
                model.guidance,
                servers.patience.find_left_out,
                lambda: self.approvals.mode is ApprovalMode.PLAN,
                self.file_instructions,
                skills.describe(limits.max_skill_bytes) if skills is not None and reads_skills else (),
            ),
            system=self.system if system is None else system,
            audit=self._executor.audit,
            middleware=self.model.middleware,
            notes=partial(self._list_notes, servers.restarts, [*earlier_notes]),
            settings=keywords.get("settings") or ModelSettings(),
            scope=TurnScope(keywords=keywords, hidden_tools=hidden_tools),
            find_agent=self._find_agent,
            open_sandbox=self._code.open,
            outer=call_context.find_current(),  # the task of a turn has the context of its caller
        )

    def _list_notes(self, restarts: Mapping[str, int], known: list[str]) -> list[str]:
        """Return the notes for a turn without those that are `known` (`select_unsaid`), and add them there."""
        current = (*self.notes, *self._servers.describe_restarts(restarts))
        notes = select_unsaid(current, self._servers.summaries, known)
        known += notes
        return notes

    @overload
    async def map(
        self,
        prompts: Iterable[TurnInput],
        *,
        concurrency: int = 8,
        progress: bool = False,
        output_type: None = None,
        **keywords: Unpack[TurnKeywords],
    ) -> list[Turn | Exception]: ...

    @overload
    async def map(
        self,
        prompts: Iterable[TurnInput],
        *,
        concurrency: int = 8,
        progress: bool = False,
        output_type: type[OutputT],
        **keywords: Unpack[TurnKeywords],
    ) -> list[Turn[OutputT] | Exception]: ...

    @overload
    async def map(
        self,
        prompts: Iterable[TurnInput],
        *,
        concurrency: int = 8,
        progress: bool = False,
        output_type: Any,
        **keywords: Unpack[TurnKeywords],
    ) -> list[Turn[Any] | Exception]: ...

    async def map(
        self,
        prompts: Iterable[TurnInput],
        *,
        concurrency: int = 8,
        progress: bool = False,
        output_type: Any = None,
        **keywords: Unpack[TurnKeywords],
    ) -> list[Any]:
        """Run a turn for each prompt, several at the same time.

        Args:
            prompts: Texts, messages or conversations, one for each turn.
            concurrency: The most turns that run at the same time.
            progress: True to show a progress bar on standard error.
            output_type: The type of each ``turn.output``, as for `run`.
            keywords: Further keywords of each turn, as for `run`.

        Returns:
            The `Turn` of each prompt, in the order of the prompts, or the error that `run` would have raised: a failed
            turn does not stop the others. ``isinstance(result, Turn)`` tells them apart.

        Raises:
            RuntimeError: The client is not open.
            TypeError: An argument has the wrong type, such as a prompt that is not a conversation; no turn has started.
            ValueError: `concurrency` is less than 1.
        """
        given: Any = prompts  # callers without a type checker may pass any type
        if isinstance(given, str | Message) or not isinstance(given, Iterable):
            raise TypeError("map takes several prompts: give a list, or use `run` for one")
        if concurrency < 1:
            raise ValueError("concurrency must be at least 1")
        self._require_open()
        check_keywords(keywords)
        if output_type is not None:
            build_output_type(output_type)
        conversations = [to_messages(prompt) for prompt in prompts]
        from dial_client.client.prompt_batch import run_each

        run = partial(self.run, output_type=output_type, **keywords)
        return await run_each(conversations, run, concurrency, is_progress_shown=progress)

    async def response(
        self, messages: TurnInput, *, output_type: Any = None, **keywords: Unpack[TurnKeywords]
    ) -> Message:
        """Run a turn, and return its last message. Arguments and errors are those of `run`."""
        turn: Turn[Any] = await self.run(messages, output_type=output_type, **keywords)
        return turn.message

    async def stream_response(
        self, messages: TurnInput, *, output_type: Any = None, **keywords: Unpack[TurnKeywords]
    ) -> AsyncGenerator[str, None]:
        """Run a turn, and yield server-sent events: strings that end in a blank line, in the format of `sse_encoder`.

        An error of the turn becomes an ``error`` event, and `LimitReached` a ``done`` event. The last event is always
        ``data: [DONE]``. Arguments are those of `run`.

        Raises:
            TypeError: `messages` is not a conversation, or a keyword is unknown or has the wrong type.
        """
        check_keywords(keywords)
        events = self.stream(to_messages(messages), output_type=output_type, **keywords)
        async with aclosing(sse_encoder.encode(events, model=self.model_name)) as encoded:
            async for text in encoded:
                yield text

    @overload
    def run_sync(self, messages: TurnInput, *, output_type: None = None, **keywords: Unpack[TurnKeywords]) -> Turn: ...

    @overload
    def run_sync(
        self, messages: TurnInput, *, output_type: type[OutputT], **keywords: Unpack[TurnKeywords]
    ) -> Turn[OutputT]: ...

    @overload
    def run_sync(self, messages: TurnInput, *, output_type: Any, **keywords: Unpack[TurnKeywords]) -> Turn[Any]: ...

    def run_sync(self, messages: TurnInput, *, output_type: Any = None, **keywords: Unpack[TurnKeywords]) -> Turn[Any]:
        """Run a turn from synchronous code, and return the turn when it has ended.

        If the client is closed, this call opens it with all its servers and closes it again; such calls from several
        threads run one after the other. If the client is open, only a worker thread of its event loop may call this
        method, such as the thread of a synchronous function that is a tool. Arguments are those of `run`.

        Raises:
            RuntimeError: An event loop runs in this thread, as in a notebook (use ``await dial.run(…)`` there), or the
                client is open in the event loop of another thread.
            Exception: Any error of `run`, or of opening the client.
        """
        run = partial(self.run, messages, output_type=output_type, **keywords)
        return run_from_thread(
            self, run, lambda: None if (tasks := self._tasks) is None else tasks.loop, self._sync_lock
        )

    def blocking(self) -> BlockingClient:
        """Return this client for a program without an event loop: ``with dial.blocking() as d: d.run("…")``.

        Its servers are started once, and any number of threads may use it.
        """
        return BlockingClient(self)

    def _require_open(self) -> BackgroundTasks:
        """Return the client's background tasks.

        Raises:
            RuntimeError: The client is not open, or is open in another event loop.
        """
        if self._tasks is None or self._tasks.is_closed:
            raise RuntimeError("the client is not open: use `async with DialClient(…) as dial`")
        self._check_loop()
        return self._tasks

    def _check_loop(self) -> None:
        """Check that an open client is used in its own event loop: in another one, waits would never end.

        Raises:
            RuntimeError: The client is open in another event loop.
        """
        if (tasks := self._tasks) is not None and not tasks.is_closed and tasks.loop != current_token():
            raise RuntimeError(
                "the client is open in another event loop, as of another thread: run everything in one loop"
                " (`asyncio.run_coroutine_threadsafe(dial.run(…), loop)`), or use `dial.blocking()` in threads"
            )

    def conversation(
        self,
        store: ConversationStore | None = None,
        id: str | None = None,  # noqa: A002 - the name of the attribute
        *,
        owner: str | None = None,
        metadata: Mapping[str, Any] = MappingProxyType({}),
    ) -> Chat:
        """Return a conversation, whose turns follow each other.

        Args:
            store: The store of the conversation, which the caller closes; by default it is kept in memory.
            id: The id of the conversation, in printable ASCII, which is created if the store does not have it; by
                default a new conversation with a random id.
            owner: The person that the conversation belongs to. A conversation of another owner is not found
                (`ConversationNotFound`), also if it has this id.
            metadata: Data of your program, of JSON types, for a conversation that is created.

        Raises:
            ConfigError: The id has other characters, or is empty; or the owner cannot be stored.
            TypeError: `store` is no `ConversationStore`.
        """
        return Chat(self, store, id, owner=owner, metadata=metadata)

    async def call(
        self, name: str, arguments: Mapping[str, Any], *, origin: Origin | None = None, owner: str | None = None
    ) -> ToolCallResult:
        """Call one tool without a model, and return its result; a failed call returns a result too.

        Approval, argument checks and limits are the same as in a turn. If no tool of this name is offered yet, the call
        waits for servers that are starting, as a turn does.

        Args:
            name: The offered name of the tool, as in `tools`.
            arguments: The arguments of the call.
            origin: The ids of the conversation and the turn, for the approver and the audit log; None if there is none.
            owner: The person that the call is for, as the keyword of turns (`TurnKeywords`).

        Raises:
            TypeError: `name` is no string, or `arguments` is no mapping.
        """
        if not isinstance(name, str):
            raise TypeError(f"call takes the name of a tool, not {describe_type(name)}")
        if not isinstance(arguments, Mapping):
            raise TypeError(f"call takes the arguments as a mapping, {{…}}, not {describe_type(arguments)}")
        request = ToolCallRequest("call_1", name, arguments)
        self._check_loop()
        origin = _build_origin(origin or Origin(), owner)
        executor = self._executor.derive(self._tools.get_catalog, CallScope(), origin)
        with act_for(origin.owner):
            if self._tasks is not None and name not in self._tools.get_catalog().routes:
                await self.wait_for_servers()
            return await executor.execute(request, discard_event, Deadline(self.limits.timeout))

    async def run_code(
        self, source: str, *, tools: Sequence[str] | None = None, owner: str = "", kept: Mapping[str, Any] | None = None
    ) -> ToolCallResult:
        """Run a program that calls tools, without a model, and return its result; a failed program has a result too.

        ``result.value`` is the value of its last expression, ``result.content`` what a model would read. It needs the
        extra ``code``. The program has no files, no network and no modules of yours: only the tools, as asynchronous
        functions with keyword arguments. Each call is checked, approved and recorded like any other.

        Args:
            source: The program, in the part of Python that code mode has.
            tools: Patterns of the tools that it can call, as the keyword of turns (`TurnKeywords`); None for all.
            owner: The person that the calls are for, as the keyword of turns.
            kept: The names to begin with: ``result.kept`` of the last program that has left some, or ``{}`` for none.
                The program then leaves its own in ``result.kept``. None to keep nothing.

        Raises:
            ConfigError: The extra ``code`` is not installed.
            RuntimeError: The client is not open.
            TypeError: `source` is no string, or `kept` no mapping.
        """
        return await self._code.run(source, tools, owner or find_owner(), kept)

    def act_for(self, owner: str) -> AbstractContextManager[None]:
        """Return the context in which the program acts for a person: servers with ``perUser`` are this person's.

        It is for what has no keyword ``owner``: `tools`, `servers`, `resources`, `prompts`, `apps`; turns and calls in
        the block are for this person unless they name another one.
        """
        return act_for(owner)

    def limit_servers(self, may_use: Callable[[str, str], bool]) -> None:
        """Let persons use some servers only: the others, with all that they have, are not there for them.

        Args:
            may_use: Returns whether a person, named first, may use a server. It is not asked for nobody in particular.
        """
        self._servers.may_use = may_use

    async def wait_for_servers(self) -> None:
        """Wait for servers that are starting as a turn does, also for those of the person of `act_for`."""
        await self._servers.patience.wait()
        await self._servers.prepare_owner()

    @overload
    def tool(self, function: FunctionT, /) -> FunctionT: ...

    @overload
    def tool(self, **options: Unpack[FunctionOptions]) -> Callable[[FunctionT], FunctionT]: ...

    def tool(self, function: Any = None, /, **options: Any) -> Any:  # type: ignore[misc]  # mypy 2.4 and Unpack
        """Offer a function to the model, from the next round on: ``@dial.tool`` or ``@dial.tool(read_only=True)``.

        The tool's description comes from the docstring, its schema from the annotations. A parameter annotated with
        `Context` receives the context of the call. A function without ``async`` runs in a thread. The return value is
        the result of the call. If the function raises an exception, the result is a failure; the model reads the text
        of a `ToolError`, and of other exceptions the type.

        Args:
            function: A function, a method or another callable; the decorator returns it unchanged.
            options: The fields of `FunctionTool`.

        Raises:
            ConfigError: A server has the name ``functions``, which is reserved for such tools.
            TypeError: The function cannot be a tool, or another tool has its name.
        """

        def add(added: FunctionT) -> FunctionT:
            client_setup.check_name(FunctionTools.name, self._servers)
            self._tools.functions.add(FunctionTool(added, **options) if options else added)
            return added

        return add if function is None else add(function)

    def find_taint(self, messages: Sequence[Message]) -> tuple[str, ...]:
        """Return the sources of untrusted content in a conversation; empty if there is none."""
        return find_taint(messages, self._tools.get_catalog(), self._servers.values()).sources

    async def attach(self, content: Content, *, owner: str = "") -> Attached:
        """Return a user's message with the contents of the resources that it mentions (``@server:uri``).

        Args:
            content: The content of the message.
            owner: The person whose turns can read on in a text that is shortened; empty for all turns.
        """
        limit = self.limits.max_result_chars
        return await attach(content, self.resources, self._servers, partial(self._results.keep, owner=owner), limit)

    @property
    def model(self) -> ClientModel:
        """The model and its context window; `ClientModel.switch` changes the model for the next turns."""
        return self._model

    @model.setter
    def model(self, _: Never) -> None:
        way_out = "use dial.model.switch(…), or the keyword model of a turn"
        raise AttributeError(f"the model of a client cannot be assigned: {way_out}")

    @property
    def model_name(self) -> str:
        """The name of the model's provider; empty for a client without a model."""
        return self.model.name

    @property
    def parts(self) -> ClientParts:
        """The client's servers and the executor of its calls, for the gateway, which passes on what they say.

        Raises:
            RuntimeError: The client is not open.
        """
        return ClientParts(self._servers, self._executor, self._code.open, self._require_open)

    @property
    def apps(self) -> Apps:
        """The MCP Apps of all servers, for a program that shows them (`Callbacks.apps`)."""
        return Apps(self._servers, self._executor)

    def use_skills(self, skills: Sequence[Skill]) -> None:
        """Use the skills of these folders from the next turn on, in place of those of earlier folders.

        Raises:
            ConfigError: A folder has no skills, or one of them is wrong; nothing is changed.
            TypeError: `skills` is no list of paths.
        """
        self._skills.set_folders(skills)

    def use_agents(self, agents: Sequence[AgentSource]) -> None:
        """Offer these agents from the next round on, in place of earlier ones.

        Raises:
            ConfigError: A server has the name ``agents``, which is reserved, a file is wrong, or two agents have one
                name; nothing is changed.
            TypeError: `agents` is no list of agents and paths.
        """
        self._find_agent = client_setup.set_agents(
            agents, self._servers, self._tools, self.approvals, self.start, self.find_taint, self.model
        )

    @property
    def skills(self) -> Skills:
        """The Agent Skills of the client and of its servers."""
        return self._skills.open()

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """The tools that are offered to the model, sorted by name."""
        return self._tools.get_catalog().tools

    @property
    def tool_name_client_map(self) -> Mapping[str, Connection]:
        """The connection to the server of each tool, by the tool's offered name; without functions."""
        routes = self._tools.get_catalog().routes
        servers = {name: self._servers.get(route.spec.server) for name, route in routes.items()}
        return MappingProxyType({name: server for name, server in servers.items() if server is not None})

    @property
    def servers(self) -> Mapping[str, ServerStatus]:
        """The status of each server, by name: state, protocol version, tools, error, last lines of stderr."""
        return MappingProxyType({name: connection.status for name, connection in self._servers.items()})

    @property
    def notes(self) -> tuple[str, ...]:
        """The problems with servers and tools, one line each, such as why a tool is missing."""
        return (
            *self._servers.notes,
            *self.tool_notes,
            *self.approvals.check_patterns(self._servers, self._tools.own),
            *self._skills.notes,
        )

    @property
    def tool_notes(self) -> tuple[str, ...]:
        """Those of `notes` that say which tools of servers are left out or changed, and why."""
        return self._tools.get_catalog().notes

    async def add_server(self, name: str, entry: Any) -> ServerStatus:
        """Connect another server, and return its status once it is ready or has failed.

        Its tools are offered from the next round on, also in running turns. Cancelling this call removes the server.

        Args:
            name: The name of the server, which no other server has.
            entry: The server's entry, as for `DialClient`.

        Raises:
            ConfigError: The entry is wrong, or another server has this name.
            TypeError: An object of this type cannot be a server.
        """
        self._check_loop()
        target = client_setup.read_server_target(name, entry)
        for backend in self._tools.own:
            client_setup.check_name(backend.name, (name,))
        return await self._servers.add(name, target)

    async def remove_server(self, name: str) -> None:
        """Stop a server and remove it; calls in flight end with error results.

        Raises:
            ConfigError: There is no server of this name.
        """
        self._check_loop()
        self.approvals.forget(name)
        await self._servers.remove(name)

    async def replace_server(self, name: str, entry: Any) -> ServerStatus:
        """Stop a server, and connect another entry under its name; return its status once it is ready or has failed.

        The server stays in `servers` meanwhile. Calls in flight end with error results. Arguments are those of
        `add_server`.

        Raises:
            ConfigError: The entry is wrong, or there is no server of this name.
            TypeError: An object of this type cannot be a server.
        """
        self._check_loop()
        target = client_setup.read_server_target(name, entry)
        self.approvals.forget(name)
        return await self._servers.replace(name, target)

    async def restart_server(self, name: str) -> ServerStatus:
        """Restart a server, also one that was given up, and return its status. Raises as `remove_server`."""
        self._check_loop()
        return await self._servers.restart(name)

    async def ready_for_turn(self) -> None:
        """Wait until a turn can begin: for every ``required`` server, for others at most ``startup_patience`` seconds.

        Raises:
            ServerStartError: A server marked ``required`` did not start.
        """
        self._check_loop()
        await self.wait_for_servers()
        self._servers.require()

    @property
    def awaited_servers(self) -> Mapping[str, str]:
        """The servers that a turn waits for now, by name; each value describes a running download, or is empty."""
        return self._servers.patience.awaited

    def skip_starting(self) -> tuple[str, ...]:
        """Let turns begin without the servers that are still starting, and return the names of these servers.

        Their tools are offered once the servers are ready.
        """
        return self._servers.patience.skip_starting()

    async def wait_for_server_change(self) -> None:
        """Wait until the state or the tools of a server change, as `servers` and `tools` then show."""
        before = self._servers.announcements.value
        await self._servers.announcements.wait_until(lambda count: count != before)

    def __rich__(self) -> Any:
        return self._summarize().to_rich()

    def _repr_html_(self) -> str:
        return self._summarize().to_html()

    def _summarize(self) -> ValueSummary:
        rows = tuple(
            (name, status.state.value, str(len(status.tools)), status.error or "; ".join(status.notes))
            for name, status in self.servers.items()
        )
        count = len(self.tools)
        return ValueSummary(
            title=f"DialClient: {self.model_name or 'no model'}",
            columns=("server", "state", "tools", "problem"),
            rows=rows,
            footer=f"{count} {'tool is' if count == 1 else 'tools are'} offered to the model",
        )


def _build_origin(origin: Origin, owner: str | None) -> Origin:
    return replace(origin, owner=owner if owner is not None else origin.owner or find_owner())
