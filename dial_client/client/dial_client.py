"""`DialClient`: an MCP host that connects servers to a chat model."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from threading import Lock
from types import MappingProxyType, TracebackType
from typing import Any, Literal, Self, Unpack

import anyio

from dial_client.client import client_setup
from dial_client.client.argument_types import check_items, check_on_limit, check_seconds, check_types
from dial_client.client.client_model import ClientModel, ModelSelection
from dial_client.client.client_options import ApprovalPolicy, ClientOptions, Directory
from dial_client.client.convenience_methods import ConvenienceMethods
from dial_client.client.function_methods import FunctionMethods, open_tools
from dial_client.client.notebook_methods import NotebookMethods
from dial_client.client.server_methods import ServerMethods
from dial_client.client.turn_methods import TurnInput, to_messages
from dial_client.client.turn_settings import TurnSettings, select_tools
from dial_client.hooks.audit.entries import AuditRecorder, Origin
from dial_client.hooks.middleware import Middleware, MiddlewareChain
from dial_client.hooks.server_callbacks import Callbacks
from dial_client.hooks.telemetry.instrument_lookup import find_instruments
from dial_client.messages.errors import ConfigError
from dial_client.messages.events import Event
from dial_client.messages.limits import Limits
from dial_client.messages.message import Content, Message, ToolCallRequest, ToolCallResult, ToolSpec
from dial_client.messages.model import ModelSettings, Provider, ToolFormat, ToolFormatHandler
from dial_client.providers import is_recording
from dial_client.runtime.background_tasks import BackgroundTasks
from dial_client.runtime.deadline import Deadline
from dial_client.servers.resources import Resources
from dial_client.servers.server_manager import STARTUP_PATIENCE, ServerManager
from dial_client.settings import configuration
from dial_client.settings.config_types import ModelProfile
from dial_client.settings.policy_config import load_policy
from dial_client.tools.approval import Approver
from dial_client.tools.executor import CallScope, ToolExecutor
from dial_client.tools.function_definition import Function, FunctionTool
from dial_client.tools.prompts import Prompts
from dial_client.tools.result_content import ResultStore
from dial_client.tools.taint import find_taint
from dial_client.turns import instructions, turn_run
from dial_client.turns.event_log import EventLog
from dial_client.turns.mentions import Attached, attach
from dial_client.turns.model_call import ChatModel
from dial_client.turns.output_type import build_output_type
from dial_client.turns.turn_handle import TurnHandle, TurnObserver, TurnTasks, TurnWork
from dial_client.turns.turn_recorder import find_question


class DialClient(FunctionMethods, ServerMethods, ConvenienceMethods, NotebookMethods):
    """An MCP host: connects servers to a chat model, and runs the tool calls that the model requests.

    Use it as ``async with DialClient(…) as dial``; one task may enter it and another may leave it. Turns may run
    concurrently. Apart from cancellation, and from built-in errors for wrong use such as `TypeError`, its methods raise
    only the errors in `dial_client.messages.errors`.

    Args:
        model: The model's name (``anthropic:claude-sonnet-5-5``, or a key of `models`), or a `Provider`; None for a
            client that only calls tools.
        servers: The servers by name: each an entry as in servers.json, a `ServerSettings`, or an in-process
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
        on_limit: ``"answer"`` ends a turn with a written answer when it meets a limit; ``"raise"`` raises
            `LimitReached`. By default turns end with an answer, but a turn with an ``output_type`` and no output
            raises `OutputError`.
        system: Instructions for conversations that do not begin with a system message.
        guidance: Instructions on using tools, in addition to other instructions; empty for none. None adds the default
            guidance to conversations without instructions.
        status: The source of the texts of `StatusChanged`: ``"template"`` uses the tools' titles; ``"model"`` also asks
            a model to describe each running call (at most 20 tokens and 2 seconds).
        status_model: A smaller model for these descriptions; by default the client's model.
        base_url: The base URL of the model's endpoint, in place of its default.
        models: The model profiles that `model` may name.
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

    Raises:
        ConfigError: An entry, the model's name or an option is wrong.
        TypeError: An argument has the wrong type, such as an object that cannot be a server, a model or a tool.
    """

    _tasks: BackgroundTasks | None = None
    """The client's background tasks; None while it is closed."""
    system: str | None
    """Instructions for the next turns of conversations that do not begin with a system message."""
    model: ClientModel
    """The model and its context window; `ClientModel.switch` changes the model for the next turns."""
    resources: Resources
    """The resources of all servers."""
    prompts: Prompts
    """The prompts of all servers."""

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
        on_limit: Literal["answer", "raise"] | None = None,
        system: str | None = None,
        guidance: str | None = None,
        status: Literal["template", "model"] = "template",
        status_model: str | Provider | None = None,
        base_url: str | None = None,
        models: Mapping[str, ModelProfile] | None = None,
        record: str | os.PathLike[str] | None = None,
        resource_tools: bool = False,
        tools: Sequence[Function | FunctionTool] = (),
        middleware: Sequence[Middleware] = (),
        fallback_models: Sequence[str | Provider] = (),
        startup_patience: float = STARTUP_PATIENCE,
    ) -> None:
        check_types(limits=(limits, Limits), approval=(approval, ApprovalPolicy), callbacks=(callbacks, Callbacks))
        check_types(system=(system, str))
        check_seconds(startup_patience=startup_patience)
        check_on_limit(on_limit)
        approval, self.limits = approval or ApprovalPolicy(), limits or Limits()
        self._sync_lock = Lock()
        self._on_limit = on_limit
        self.system = system
        chosen = ModelSelection(model, models, base_url, tool_format, guidance, status, status_model, fallback_models)
        self.model = ClientModel(chosen, MiddlewareChain(middleware, find_instruments))
        capabilities = client_setup.build_client_capabilities(
            callbacks, self.model, approve, approval, self.limits, audit
        )
        setup = client_setup.set_up_recording(self.model.provider, servers, approve, record, self.model.format_name)
        self._recording = setup.recording
        self.model.record_with(setup.provider)
        self._turns, self._results = TurnTasks(), ResultStore()
        cache = client_setup.open_tool_cache(cache_dir, is_recorded=record is not None)
        capabilities = replace(capabilities, on_change=self._turns.announce, cache=cache)
        self._servers = ServerManager(setup.targets, capabilities, setup.connect, startup_patience)
        self.approvals = client_setup.build_approval_checker(self._servers, setup.approve, approval)
        self.resources, self.prompts = Resources(self._servers), Prompts(self._servers)
        self._tools = open_tools(self._servers, self.resources, tools, capabilities, resource_tools=resource_tools)
        self._executor = ToolExecutor(
            self._tools.get_catalog, self.approvals, self.limits, None, capabilities.audit, self.model.middleware
        )

    @classmethod
    def from_config(
        cls,
        path: str | os.PathLike[str] | configuration.Settings,
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
        check_types(profile=(profile, str))
        settings = path if isinstance(path, configuration.Settings) else configuration.load(path, profile=profile)
        model = model if model is not None else settings.default_model
        if model is None and settings is not path:
            raise ConfigError("no model is named", hint='give model=…, or "defaultModel" in the file', path=str(path))
        approval = options.get("approval") or ApprovalPolicy()
        options["approval"] = replace(approval, rules=(*load_policy(approval.rules), *settings.policy))
        options.setdefault("models", settings.models)
        if settings.startup_patience is not None:
            options.setdefault("startup_patience", settings.startup_patience)
        options.setdefault("system", settings.system)
        if isinstance(model, str):
            options.setdefault("fallback_models", settings.find_fallback_models(model))
        servers = {} if is_recording(model) else settings.servers
        return cls(model, servers=servers, **options)

    async def __aenter__(self) -> Self:
        """Start all servers concurrently, and wait until each is ready or has failed.

        Raises:
            ServerStartError: A server marked ``required`` did not start.
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
        """Begin to start the servers and to prepare the model, without waiting; does nothing if the client is open.

        Raises:
            ConfigError: The file of the recording cannot be written.
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
        """Wait until every server is ready or has failed; a server fails at its start-up timeout.

        Raises:
            ServerStartError: A server marked ``required`` did not start.
        """
        await self._servers.wait_settled()
        self._servers.require()

    async def aclose(self) -> None:
        """Cancel the turns, stop the servers and close the model's connections. Any task may call it, also twice."""
        tasks, self._tasks = self._tasks, None
        if tasks is None:
            return
        # The stack closes the last part first, and goes on if a part raises or if the caller is cancelled: a shield
        # does not hold back asyncio's own `Task.cancel`.
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
        """Start a turn, and return its handle without waiting for the result.

        Args:
            messages: The conversation, which is never changed.
            limits: The limits of this turn, in place of the client's.
            system: The instructions of this turn, in place of the client's.
            stream: True to ask the model for a streamed reply.
            stream_events: True if the caller reads `TurnHandle.events`; the turn then waits for a slow reader.
            origin: The ids of the turn and its conversation; by default a new turn without a conversation.
            observers: The observers of the turn; each may also run a task of its own beside the turn.
            client_tools: Tools that the caller runs itself; they hide offered tools of the same names. A call of such a
                tool ends the turn.
            max_tokens: The most tokens of each model reply.
            depth: The number of tool rounds at the end of `messages` that count towards this turn's limit.
            output_type: The type of the answer, as for `run`.
            settings: Further settings of this turn.

        Raises:
            ConfigError: The client has no model, or not that of `settings`, or `output_type` is an invalid JSON Schema.
            RuntimeError: The client is not open.
            TypeError: An argument has the wrong type, such as `messages` that are not a conversation, or an
                `output_type` that is not a type that JSON can be parsed as.
        """
        self._require_open()
        check_types(limits=(limits, Limits), system=(system, str), settings=(settings, TurnSettings))
        check_items(observers=(observers, TurnObserver), client_tools=(client_tools, ToolSpec))
        self.model.select(settings).require()
        conversation = to_messages(messages)
        output = None if output_type is None else build_output_type(output_type)
        options = turn_run.TurnOptions(stream, tuple(client_tools), ModelSettings(max_tokens=max_tokens), depth, output)
        open_services = partial(self._open_services, settings.override(limits, system))
        work = partial(turn_run.run_turn, open_services, conversation, options)
        log = EventLog(is_paced=stream_events)
        question = find_question(conversation, depth)
        return self._launch(work, log, observers, origin, question, has_type=output is not None)

    def _launch(
        self,
        work: TurnWork,
        log: EventLog,
        observers: Sequence[TurnObserver],
        origin: Origin | None,
        question: tuple[Message, ...],
        *,
        has_type: bool,
    ) -> TurnHandle:
        """Run a turn in background tasks, and return its handle; `has_type` tells whether the answer has a type."""
        turn = TurnHandle(
            work,
            log,
            observers,
            question=question,
            origin=origin,
            raise_at_limits=self._on_limit == "raise",
            require_output=has_type and self._on_limit != "answer",
        )
        tasks = self._require_open()
        if self.model.retired and not self._turns.are_running:
            tasks.start_soon(self.model.close_retired)
        self._turns.start(turn, tasks)
        return turn

    async def call(self, name: str, arguments: Mapping[str, Any], *, origin: Origin | None = None) -> ToolCallResult:
        """Call one tool without a model, and return its result; a failed call returns a result too.

        Approval, argument checks and limits are the same as in a turn.

        Args:
            name: The offered name of the tool, as in `tools`.
            arguments: The arguments of the call.
            origin: The ids of the conversation and the turn, for the approver and the audit log; None for none.
        """

        async def discard(event: Event) -> None:
            pass

        request = ToolCallRequest("call_1", name, arguments)
        executor = self._executor.derive(self._tools.get_catalog, CallScope(), origin) if origin else self._executor
        return await executor.execute(request, discard, Deadline(self.limits.timeout))

    def find_taint(self, messages: Sequence[Message]) -> tuple[str, ...]:
        """Return the sources of untrusted content in a conversation; empty for none."""
        return find_taint(messages, self._tools.get_catalog(), self._servers.values()).sources

    async def attach(self, content: Content) -> Attached:
        """Return a user's message with the contents of the resources that it mentions (``@server:uri``)."""
        limit = self.limits.max_result_chars
        return await attach(content, self.resources, self._servers, self._results.keep, limit)

    async def _open_services(self, settings: TurnSettings) -> turn_run.TurnServices:
        """Wait until a turn can start, and return what it needs."""
        # Start-up has its own limits: the download of a model must not use up the time limit of the first turn.
        await self._servers.patience.wait()
        await self.model.wait_prepared()
        model = self.model.select(settings)
        restarts = self._servers.restarts
        return turn_run.TurnServices(
            model=ChatModel(model.require(), model.format, model.window),
            tool_snapshot=select_tools(self._tools.take_snapshot, settings),
            result_store=self._results,
            approvals=self.approvals,
            limits=settings.limits or self.limits,
            await_tool_changes=self._servers.wait_for_tools,
            status_provider=self.model.status_provider,
            answers_at_limits=self._on_limit != "raise",
            guidance=model.guidance,
            server_instructions=lambda: instructions.build_server_instructions(self._servers.values()),
            starting_servers=lambda: instructions.describe_starting(self._servers.patience.left_out),
            system=(self.system if settings.system is None else settings.system) or None,
            servers=self._servers.values,
            audit=self._executor.audit,
            middleware=self.model.middleware,
            notes=lambda: (*self.notes, *self._servers.describe_restarts(restarts)),
        )
