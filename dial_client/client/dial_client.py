"""DialClient: the servers and the model, put together."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from threading import Lock
from types import MappingProxyType, TracebackType
from typing import Any, Literal, Self, Unpack

import anyio

from dial_client.audit.entries import AuditRecorder, Origin
from dial_client.callbacks.server_callbacks import Callbacks
from dial_client.client import client_setup
from dial_client.client.argument_types import check_options
from dial_client.client.client_model import ClientModel, ModelSelection
from dial_client.client.client_options import ApprovalPolicy, ClientOptions, Directory
from dial_client.client.convenience_methods import ConvenienceMethods
from dial_client.client.function_methods import FunctionMethods, open_tools
from dial_client.client.notebook_methods import NotebookMethods
from dial_client.client.server_methods import ServerMethods
from dial_client.client.turn_methods import TurnInput, to_messages
from dial_client.client.turn_settings import TurnSettings, select_tools
from dial_client.errors import ConfigError
from dial_client.messages.message import Content, Message, ToolCallRequest, ToolCallResult, ToolSpec
from dial_client.middleware import Middleware, MiddlewareChain
from dial_client.model import Provider, ToolFormat, ToolFormatHandler
from dial_client.recordings.detection import is_recording
from dial_client.runtime.background_tasks import BackgroundTasks
from dial_client.runtime.deadline import Deadline
from dial_client.schema.output_type import build_output_type
from dial_client.servers.client_capabilities import ClientCapabilities
from dial_client.servers.resources import Resources
from dial_client.servers.server_manager import ServerManager
from dial_client.servers.start_patience import STARTUP_PATIENCE
from dial_client.settings import configuration
from dial_client.settings.config_types import ModelSettings
from dial_client.settings.policy_config import policy_from
from dial_client.telemetry.instrument_lookup import find_instruments
from dial_client.tools.approval import Approver
from dial_client.tools.executor import CallScope, ToolExecutor
from dial_client.tools.function_definition import FunctionTool
from dial_client.tools.function_signature import Function
from dial_client.tools.prompts import Prompts
from dial_client.tools.result_store import ResultStore
from dial_client.tools.taint import find_taint
from dial_client.turn_data.events import Event
from dial_client.turn_data.limits import Limits, StopReason
from dial_client.turns import server_instructions, turn_runner
from dial_client.turns.event_log import EventLog
from dial_client.turns.mentions import Attached, attach
from dial_client.turns.model_call import ChatModel
from dial_client.turns.turn_handle import TurnHandle, TurnObserver
from dial_client.turns.turn_tasks import TurnTasks


class DialClient(FunctionMethods, ServerMethods, ConvenienceMethods, NotebookMethods):
    """An MCP host: connects servers to a chat model, and answers messages by carrying out the calls it asks for.

    Use it as ``async with DialClient(…) as dial``; it may be entered in one task and left in another. Turns may run
    side by side. Apart from cancellation, and from a `TypeError` for an argument of the wrong type, its methods raise
    only what `dial_client.errors` lists.

    Args:
        servers: for each name an entry as in servers.json, `ServerSettings`, or an in-process
            ``mcp.server.MCPServer``.
        model: a model's name (``anthropic:claude-sonnet-5-5``, a key of `models`), or a `Provider`; None for a client
            that only calls tools.
        tool_format: the format of tool calls, or a `ToolFormatHandler` of your own; by default that of the model's
            profile, else the API's own.
        limits: the limits of one turn.
        approve: is asked before a call that neither `approval` nor the configuration decides about; None allows it.
        approval: patterns and rules that decide without asking, and where answers are kept.
        callbacks: answers to the requests of servers: elicitation, sampling, roots, logs, logins.
        audit: records each decision and each call: `audit.log_writer.AuditLog`.
        cache_dir: a folder where the tools of servers are cached from run to run, for entries with ``"lazy"``, and how
            to open a server; True for the user's own.
        on_limit: ``"answer"`` ends a turn in words whatever limit is met; ``"raise"`` raises `LimitReached`. The
            default is ``"answer"``, but a turn with an ``output_type`` raises `OutputError` where it has no output.
        system: instructions put before every conversation that does not begin with its own.
        guidance: instructions about the use of tools, beside any others; empty for none. None for the default guidance
            where the conversation has no instructions of its own.
        status: the source of the texts of `StatusChanged`: with ``"template"`` the tools' titles, with ``"model"`` also
            the model, which describes each call while it runs, if it is quick enough (20 tokens, 2 seconds).
        status_model: a smaller model for these texts.
        base_url: the endpoint, in place of the model's own.
        models: profiles that `model` may name.
        record: a file to write the conversation to, for a bug report or a test, in the form of `recordings.recording`.
            As a model, ``scripted:FILE``, it brings mock servers; a server in `servers` of the same name is used
            instead.
        resource_tools: the model may list and read the resources of all servers; else of those whose entry says so.
        tools: functions that the model may call beside the servers' tools. Patterns and events name them
            ``functions/NAME``; see `tool`.
        middleware: is around turns, model calls and tool calls, the first outermost; see `Middleware`.
        fallback_models: are asked, in this order, where `model` cannot answer; by default those of its profile.
        startup_patience: seconds a turn waits for servers that are starting, from the start of each. Their tools join
            in a later round. Tools of the last run (`cache_dir`) are offered after a second. A server marked
            ``required`` is waited for in any case.

    Raises:
        ConfigError: an entry, the model's name or an option is wrong.
        TypeError: a server is nothing that can be connected, or a function cannot be a tool.
    """

    _tasks: BackgroundTasks | None = None
    """Those of the client while it is open."""
    system: str | None
    """Instructions of the next turns, for conversations that do not begin with their own."""
    model: ClientModel
    """The model, with its context window; `ClientModel.switch` changes it between two turns."""
    resources: Resources
    """The resources of all servers."""
    prompts: Prompts
    """The prompts of all servers."""

    def __init__(  # noqa: PLR0913 - the options of a host, all but two by name
        self,
        servers: Mapping[str, Any] = MappingProxyType({}),
        model: str | Provider | None = None,
        *,
        tool_format: ToolFormat | ToolFormatHandler | str | None = None,
        limits: Limits | None = None,
        approve: Approver | None = None,
        approval: ApprovalPolicy | None = None,
        callbacks: Callbacks | None = None,
        audit: AuditRecorder | None = None,
        cache_dir: Directory = False,
        on_limit: Literal["answer", "raise"] | None = None,
        system: str | None = None,
        guidance: str | None = None,
        status: Literal["template", "model"] = "template",
        status_model: str | Provider | None = None,
        base_url: str | None = None,
        models: Mapping[str, ModelSettings] | None = None,
        record: str | os.PathLike[str] | None = None,
        resource_tools: bool = False,
        tools: Sequence[Function | FunctionTool] = (),
        middleware: Sequence[Middleware] = (),
        fallback_models: Sequence[str | Provider] = (),
        startup_patience: float = STARTUP_PATIENCE,
    ) -> None:
        check_options(
            on_limit, limits=(limits, Limits), approval=(approval, ApprovalPolicy), callbacks=(callbacks, Callbacks)
        )
        approval, self.limits = approval or ApprovalPolicy(), limits or Limits()
        self._sync_lock = Lock()
        self._on_limit = on_limit
        self.system = system
        chosen = ModelSelection(model, models, base_url, tool_format, guidance, status, status_model, fallback_models)
        self.model = ClientModel(chosen, MiddlewareChain(middleware, find_instruments))
        features = client_setup.client_features(callbacks, self.model, approve, approval, self.limits, audit)
        setup = client_setup.recording_setup(self.model.provider, servers, approve, record, self.model.format_name)
        self._recording = setup.recording
        self.model.record_with(setup.provider)
        self._turns, self._results = TurnTasks(), ResultStore()
        cache = client_setup.open_tool_cache(cache_dir, is_recorded=record is not None)
        capabilities = ClientCapabilities(self._turns.announce, cache, features)
        self._servers = ServerManager(setup.targets, capabilities, setup.connect, startup_patience)
        self.approvals = client_setup.approval_checker(self._servers, setup.approve, approval)
        self.resources, self.prompts = Resources(self._servers), Prompts(self._servers)
        self._tools = open_tools(self._servers, self.resources, tools, features, resource_tools=resource_tools)
        self._executor = ToolExecutor(
            self._tools.catalog, self.approvals, self.limits, None, features.audit, self.model.middleware
        )

    @classmethod
    def from_config(
        cls,
        path: str | os.PathLike[str],
        model: str | Provider | None = None,
        profile: str | None = None,
        **options: Unpack[ClientOptions],
    ) -> Self:
        """Make a client of a servers.json.

        Args:
            path: the file.
            model: as for the class; by default the ``defaultModel`` of the file.
            profile: the name of a profile of the file.
            options: the keywords of the class.

        No server of the file is started where the model is a recording, which has servers of its own.

        Raises:
            ConfigError: the file is missing or wrong, there is no such profile, or no model is named and the file has
                no ``defaultModel``.
        """
        settings = configuration.load(path, profile=profile)
        model = model if model is not None else settings.default_model
        if model is None:
            raise ConfigError("no model is named", hint='give model=…, or "defaultModel" in the file', path=str(path))
        approval = options.get("approval") or ApprovalPolicy()
        options["approval"] = replace(approval, rules=(*policy_from(approval.rules), *settings.policy))
        options.setdefault("models", settings.models)
        if settings.startup_patience is not None:
            options.setdefault("startup_patience", settings.startup_patience)
        options.setdefault("system", settings.system)
        if isinstance(model, str):
            options.setdefault("fallback_models", settings.find_fallback_models(model))
        servers = {} if is_recording(model) else settings.servers
        return cls(servers, model, **options)

    async def __aenter__(self) -> Self:
        """Start all servers side by side, and wait until each is ready or known not to be.

        Raises:
            ServerStartError: a server marked ``required`` did not start.
        """
        await self.open()
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

    async def open(self) -> None:
        """Begin to start the servers and to prepare the model, without waiting for either; an open client stays open.

        Raises:
            ConfigError: the file to record to cannot be written.
        """
        if self._tasks is not None and not self._tasks.is_closed:
            return
        if self._recording is not None:
            self._recording.open()
        self._tasks = await BackgroundTasks.open()
        self._servers.start(self._tasks)
        self.model.reset()
        self._tasks.start_soon(self.model.prepare)

    async def ready(self) -> None:
        """Wait until every server is ready or known not to be, at most its start-up timeout.

        Raises:
            ServerStartError: a server marked ``required`` did not start.
        """
        await self._servers.wait_settled()
        self._servers.require()

    async def aclose(self) -> None:
        """Cancel the turns, stop the servers, close the model's connections. May be called twice, and from any task."""
        tasks, self._tasks = self._tasks, None
        if tasks is None:
            return
        # From the last to the first: each is closed whatever another raises, also if the caller is cancelled meanwhile,
        # from which asyncio's own `Task.cancel` a shield does not protect.
        with anyio.CancelScope(shield=True):
            async with AsyncExitStack() as parts:
                if self._recording is not None:
                    parts.callback(self._recording.close)
                for part in (tasks, self.model, self._servers, self._turns):
                    parts.push_async_callback(part.aclose)

    @property
    def model_name(self) -> str:
        """The name of the model's provider; empty for a client without a model."""
        return self.model.name

    def start(  # noqa: PLR0913 - the options of a turn, all but one by name
        self,
        messages: TurnInput,
        *,
        limits: Limits | None = None,
        system: str | None = None,
        stream: bool = True,
        stream_events: bool = True,
        origin: Origin | None = None,
        observers: Sequence[TurnObserver] = (),
        client_tools: Sequence[ToolSpec] = (),
        max_tokens: int | None = None,
        depth: int = 0,
        output_type: Any = None,
        settings: TurnSettings = TurnSettings(),  # noqa: B008 - frozen
    ) -> TurnHandle:
        """Start a turn without waiting for it.

        Args:
            messages: the conversation; never changed.
            limits: of this turn, in place of the client's.
            system: instructions of this turn, in place of the client's.
            stream: ask the model for its reply in pieces.
            stream_events: the caller reads `TurnHandle.events`; the turn waits for a slow reader.
            origin: the ids of the turn and its conversation; by default a new turn of no conversation.
            observers: follow the turn from within, each also in a task of its own.
            client_tools: tools of the caller's own, which hide others of their names: a call of one ends the turn.
            max_tokens: of each of the model's replies.
            depth: rounds of tool calls at the end of `messages` that count as this turn's.
            output_type: the type of the answer, as for `run`.
            settings: further settings of this turn.

        Raises:
            ConfigError: the client has no such model, or `output_type` is an invalid JSON Schema.
            RuntimeError: the client is not open.
            TypeError: `messages` is no conversation, or `output_type` no type that JSON can be read as.
        """
        if self._tasks is None:
            raise RuntimeError("the client is not open: use `async with DialClient(…) as dial`")
        check_options(limits=(limits, Limits))
        self.model.select(settings).required()
        chosen, conversation = settings.override(limits, system), to_messages(messages)
        output = None if output_type is None else build_output_type(output_type)
        options = turn_runner.TurnOptions(stream, tuple(client_tools), max_tokens, depth, output)

        async def work(turn: TurnHandle) -> StopReason:
            return await self._run_turn(conversation, turn, options, chosen)

        turn = TurnHandle(
            work,
            EventLog(is_paced=stream_events),
            observers,
            origin=origin,
            raise_at_limits=self._on_limit == "raise",
            require_output=output is not None and self._on_limit != "answer",
        )
        if not self._turns.are_running:
            self._tasks.start_soon(self.model.close_retired)
        self._turns.start(turn, observers, self._tasks)
        return turn

    async def call(self, name: str, arguments: Mapping[str, Any], *, origin: Origin | None = None) -> ToolCallResult:
        """Call one tool by its offered name, without a model, and return the result; a failure is a result too.

        Permission, checks and limits are those of a turn.

        Args:
            name: of the tool, as in `tools`.
            arguments: of the call.
            origin: the conversation and the turn, for the approver and the audit log; None for neither.
        """

        async def discard(event: Event) -> None:
            pass

        request = ToolCallRequest("call_1", name, arguments)
        executor = self._executor.derive(self._tools.catalog, CallScope(), origin) if origin else self._executor
        return await executor.execute(request, discard, Deadline(self.limits.timeout))

    def find_taint(self, messages: Sequence[Message]) -> tuple[str, ...]:
        """Return the sources of untrusted content in a conversation; empty for none."""
        return find_taint(messages, self._tools.catalog(), self._servers.values()).sources

    async def attach(self, content: Content) -> Attached:
        """Return a user's message together with the resources it names (``@server:uri``)."""
        limit = self.limits.max_result_chars
        return await attach(content, self.resources, self._servers, self._results.keep, limit)

    async def _run_turn(
        self,
        messages: tuple[Message, ...],
        turn: TurnHandle,
        options: turn_runner.TurnOptions,
        settings: TurnSettings,
    ) -> StopReason:
        # Getting ready has limits of its own: a model that is fetched first must not use up the first turn's time.
        await self._servers.patience.wait()
        await self.model.ready()
        model = self.model.select(settings)
        turn.recorder.note(*self.notes)
        restarts = self._servers.restarts
        services = turn_runner.TurnServices(
            model=ChatModel(model.required(), model.format, model.window),
            tool_snapshot=select_tools(self._tools.current, settings),
            result_store=self._results,
            approvals=self.approvals,
            limits=settings.limits or self.limits,
            await_tool_changes=self._servers.wait_for_tools,
            status_provider=self.model.status_provider,
            answers_at_limits=self._on_limit != "raise",
            guidance=model.guidance,
            server_instructions=lambda: server_instructions.build_server_instructions(self._servers.values()),
            starting_servers=lambda: server_instructions.describe_starting(self._servers.patience.left_out),
            system=(self.system if settings.system is None else settings.system) or None,
            servers=self._servers.values,
            audit=self._executor.audit,
            middleware=self.model.middleware,
        )
        reason = await turn_runner.run_turn(services, messages, turn, options)
        turn.recorder.note(*self.notes, *self._servers.notes_since(restarts))
        return reason
