"""DialClient: the servers and the model, put together."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from types import MappingProxyType, TracebackType
from typing import Any, Literal, Self, Unpack

import anyio
from anyio import to_thread

from dial_client import client_setup, prices
from dial_client.audit.entries import Origin
from dial_client.background_tasks import BackgroundTasks
from dial_client.deadline import Deadline
from dial_client.errors import ConfigError
from dial_client.events import Event, ServerChanged
from dial_client.limits import Limits, StopReason
from dial_client.logs import get_logger
from dial_client.messages import Content, Message, ToolCallRequest, ToolCallResult, ToolSpec
from dial_client.model import Preparable, Provider, ToolFormat
from dial_client.recordings import replay
from dial_client.servers.client_capabilities import ClientCapabilities
from dial_client.servers.connection import Connection
from dial_client.servers.resources import Resources
from dial_client.servers.server_manager import ServerManager
from dial_client.servers.status import ServerStatus
from dial_client.settings import configuration
from dial_client.settings.policy_config import policy_from
from dial_client.sinks import sse_encoder
from dial_client.tools.approval import Approver
from dial_client.tools.catalog import Catalog, catalog_of
from dial_client.tools.executor import ToolExecutor
from dial_client.tools.prompts import Prompts
from dial_client.tools.resource_tools import ResourceTools
from dial_client.tools.result_store import ResultStore
from dial_client.tools.tool_selection import ToolSnapshot
from dial_client.turn_result import Turn
from dial_client.turns import server_instructions, turn_runner
from dial_client.turns.context_window import ContextWindow
from dial_client.turns.event_log import EventLog
from dial_client.turns.mentions import Attached, attach
from dial_client.turns.turn_handle import TurnHandle, TurnObserver

log = get_logger(__name__)


class DialClient:
    """An MCP host: connects servers to a chat model, and answers messages by carrying out the calls it asks for.

    Use it as ``async with DialClient(…) as dial``; it may be entered in one task and left in another. Turns may run
    side by side. Apart from cancellation its methods raise only what `dial_client.errors` lists.

    Args:
        servers: for each name an entry as in servers.json, `config.ServerSettings`, or an in-process
            ``mcp.server.MCPServer``.
        model: a model's name (``anthropic:claude-sonnet-5-5``, a key of `models`), or a `Provider`; None for a client
            that only calls tools.
        tool_format: how calls ride; by default as the model's profile says, else the wire's own tool calls.
        limits: what one turn may take.
        approve: is asked before a call that neither `allow` nor the configuration lets through; None lets all through.
        allow: patterns of tools that run without asking.
        deny: patterns of tools that never run.
        on_limit: ``"answer"`` ends a turn in words whatever limit is met; ``"raise"`` raises `LimitReached`.
        system: instructions put before every conversation that does not begin with its own.
        guidance: what the model is told of how to go about tools, beside any instructions; empty for nothing. None for
            `turns.asking.GUIDANCE`, where the conversation has no instructions of its own.
        status: who words `StatusChanged`: with ``"template"`` the tools' titles, with ``"model"`` also the model, which
            says what each call does while it runs, if it is quick enough (20 tokens, 2 seconds).
        status_model: says it in place of the model: a smaller one.
        base_url: the endpoint, in place of the model's own.
        models: profiles that `model` may name.
        record: a file to write the conversation to, for a bug report or a test, in the form of `recordings.recording`.
            As a model, ``scripted:FILE``, it brings stand-ins for its servers; one in `servers` of the same name is
            used instead.
        resource_tools: the model may list and read the resources of all servers; else of those whose entry says so.
        remember: a folder for what is remembered of servers from run to run: their tools, for entries with ``"lazy"``,
            and how to open them; True for the user's own.
        pins: a folder for the definitions of tools that were approved; True for the user's own. A tool that has changed
            since is asked about whatever else allows it, and refused without `approve`.
        more: the options that `options.ClientOptions` lists, such as what is done for servers that ask for it.

    Raises:
        ConfigError: an entry, the model's name or an option is wrong.
    """

    def __init__(  # noqa: PLR0913 - the options of a host, all but two by name
        self,
        servers: Mapping[str, Any],
        model: str | Provider | None = None,
        *,
        tool_format: ToolFormat | str | None = None,
        limits: Limits | None = None,
        approve: Approver | None = None,
        allow: Iterable[str] = (),
        deny: Iterable[str] = (),
        on_limit: Literal["answer", "raise"] = "answer",
        system: str | None = None,
        guidance: str | None = None,
        status: Literal["template", "model"] = "template",
        status_model: str | Provider | None = None,
        base_url: str | None = None,
        models: Mapping[str, configuration.ModelSettings] | None = None,
        record: str | os.PathLike[str] | None = None,
        remember: bool | str | os.PathLike[str] = False,
        pins: bool | str | os.PathLike[str] = False,
        resource_tools: bool = False,
        **more: Unpack[client_setup.ClientOptions],
    ) -> None:
        self._provider, own_format = client_setup.model_named(model, models or {}, base_url)
        self._format = client_setup.format_chosen(tool_format or own_format)
        self._window = ContextWindow(client_setup.context_window(model, models or {}, self._provider))
        self._narrator = client_setup.narrator(status, status_model, models or {}, self._provider)
        self._limits = limits or Limits()
        self._raise_at_limits = on_limit == "raise"
        self._system = system
        own_guidance = self._provider.info.guidance if self._provider is not None else None
        self._guidance = own_guidance if guidance is None else guidance
        asked = client_setup.callbacks(
            self._provider, approve, tuple(allow), self._limits, **client_setup.host_callbacks(more)
        )
        taped = client_setup.taped(self._provider, servers, approve, record, str(tool_format or own_format or "auto"))
        self._provider, self._recording = taped.provider, taped.recording
        memory = client_setup.drawer(
            remember if record is None else False, client_setup.CACHE
        )  # no server sleeps in a recording
        self._connections = ServerManager(
            taped.targets, ClientCapabilities(self._server_changed, memory, asked), taped.connect
        )
        self._approvals = client_setup.approvals(
            self._connections, taped.approve, tuple(allow), tuple(deny), pins, more
        )
        self._executor = ToolExecutor(self._current_catalog, self._approvals, self._limits, audit=asked.audit)
        self.resources = Resources(self._connections)
        """What the servers have to read."""
        self.prompts = Prompts(self._connections)
        """What the servers have to say for the user."""
        self._resource_tools = ResourceTools(self.resources, self._connections, for_all=resource_tools)
        self._nursery: BackgroundTasks | None = None
        self._warmed = anyio.Event()
        self._menu = ToolSnapshot()
        self._menu_of: tuple[int, ...] | None = None
        self._shelf = ResultStore()
        self._running: set[TurnHandle] = set()

    @classmethod
    def from_config(cls, path: str | os.PathLike[str], model: str | Provider | None = None, **options: Any) -> Self:
        """Make a client of a servers.json; `options` are those of the class.

        No server of the file is started where the model is a recording, which has servers of its own.

        Raises:
            ConfigError: the file is missing or wrong, or no model is named and it has no ``defaultModel``.
        """
        settings = configuration.load(path)
        chosen = model if model is not None else settings.default_model
        if chosen is None:
            raise ConfigError("no model is named", hint='give model=…, or "defaultModel" in the file', path=str(path))
        servers = {} if replay.is_recording(chosen) else settings.servers
        rules = (*policy_from(options.get("policy")), *settings.policy)
        return cls(servers, chosen, **({"models": settings.models} | options | {"policy": rules}))

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
        """Begin to start the servers, and get the model ready meanwhile, without waiting for either.

        Raises:
            ConfigError: the file to record to cannot be written.
        """
        if self._recording is not None:
            self._recording.open()
        self._nursery = await BackgroundTasks.open()
        self._connections.start(self._nursery)
        self._warmed = anyio.Event()
        self._nursery.start_soon(self._warm)

    async def ready(self) -> None:
        """Wait until every server is ready or known not to be, at most its start-up timeout.

        Raises:
            ServerStartError: a server marked ``required`` did not start.
        """
        await self._connections.ready()
        self._connections.require()

    async def aclose(self) -> None:
        """Cancel what runs, stop the servers, close the model's connections. May be called twice, and from any task."""
        nursery, self._nursery = self._nursery, None
        if nursery is None:
            return
        with anyio.CancelScope(shield=True):
            for turn in tuple(self._running):
                await turn.stopped()
            await self._connections.aclose()
            for provider in (self._provider, self._narrator):
                if provider is not None:
                    await provider.aclose()
            await nursery.aclose()
        if self._recording is not None:
            self._recording.close()

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """The tools as they are offered to the model, sorted by name."""
        return self._current_catalog().tools

    @property
    def tool_name_client_map(self) -> Mapping[str, Connection]:
        """For each offered name the connection to the server that answers it."""
        routes = self._current_catalog().routes
        return MappingProxyType({name: self._connections[route.spec.server] for name, route in routes.items()})

    @property
    def servers(self) -> Mapping[str, ServerStatus]:
        """For each server what is known of it: state, era, tools, why it failed, its last lines on stderr."""
        return MappingProxyType({name: connection.status for name, connection in self._connections.items()})

    async def add_server(self, name: str, entry: Any) -> ServerStatus:
        """Connect one more server, and give its status once it is ready or known not to be; `entry` as for the class.

        Its tools are on offer in the next round, of running turns too. Cancelling this takes the server back.

        Raises:
            ConfigError: the entry is wrong, or there is a server of this name, or none to remove or to restart.
        """
        return await self._connections.add(name, client_setup.target(name, entry))

    async def remove_server(self, name: str) -> None:
        """Stop a server, leaving nothing behind; calls in flight become error results. Raises as `add_server`."""
        self._approvals.forget(name)
        await self._connections.remove(name)

    async def restart_server(self, name: str) -> ServerStatus:
        """Stop a server and start it anew, one that was given up too. Raises as `add_server`."""
        return await self._connections.restart(name)

    @property
    def notes(self) -> tuple[str, ...]:
        """What is not as it should be with servers and tools, a line each: why one is missing, what is odd."""
        return (*self._connections.notes, *self._current_catalog().notes, *self._approvals.notes(self._connections))

    async def response(self, messages: Sequence[Message]) -> Message:
        """Answer, and give the last message only. Raises as `run`."""
        return (await self.run(messages)).message

    async def run(self, messages: Sequence[Message]) -> Turn:
        """Answer, asking the model without streaming where its endpoint allows it.

        Raises:
            ProviderError: the model could not be reached or refused the request.
            LimitReached: a limit was met and ``on_limit="raise"`` was asked for.
        """
        turn = self.start(messages, stream=False, watched=False)
        try:
            return await turn.result()
        finally:
            await turn.stopped()

    async def stream(self, messages: Sequence[Message]) -> AsyncGenerator[Event, None]:
        """Answer, giving what happens as it happens, `Finished` last. Leaving early cancels the turn.

        Raises: as `run`, behind the last event.
        """
        async with aclosing(self.start(messages).events()) as events:
            async for event in events:
                yield event

    async def stream_response(self, messages: Sequence[Message]) -> AsyncGenerator[str, None]:
        """Answer as server-sent events, each a string that ends in a blank line; `sinks.sse_encoder` has the form.

        Raises nothing once it has begun: an error is an ``error`` event, and ``data: [DONE]`` is always the last.
        """
        name = self._provider.info.name if self._provider is not None else ""
        async with aclosing(sse_encoder.encode(self.stream(messages), model=name)) as lines:
            async for line in lines:
                yield line

    def start(  # noqa: PLR0913 - the options of a turn, all but one by name
        self,
        messages: Sequence[Message],
        *,
        stream: bool = True,
        watched: bool = True,
        origin: Origin | None = None,
        observers: Sequence[TurnObserver] = (),
        handed_back: Sequence[ToolSpec] = (),
        max_tokens: int | None = None,
        depth: int = 0,
    ) -> TurnHandle:
        """Start a turn without waiting for it.

        Args:
            messages: the conversation; never changed.
            stream: ask the model for its reply in pieces.
            watched: somebody will read its `TurnHandle.events`: the turn waits for that reader.
            origin: the ids of the turn and its conversation; by default a new turn of no conversation.
            observers: follow the turn from within, each also in a task of its own.
            handed_back: tools of the caller's own, which hide others of their names: a call of one ends the turn.
            max_tokens: of each of the model's replies.
            depth: rounds of tool calls at the end of `messages` that count as this turn's.
        """
        if self._nursery is None:
            raise RuntimeError("the client is not open: use `async with DialClient(…) as dial`")
        if (provider := self._provider) is None:
            raise ConfigError("no model is named", hint="give DialClient a model")

        async def work(turn: TurnHandle) -> StopReason:
            wanted = turn_runner.TurnOptions(stream, tuple(handed_back), max_tokens, depth)
            return await self._carry_out(provider, tuple(messages), turn, wanted)

        turn = TurnHandle(
            work, EventLog(is_paced=watched), observers, origin=origin, raise_at_limits=self._raise_at_limits
        )
        self._running.add(turn)
        self._nursery.start_soon(self._run, turn)
        for observer in observers:
            self._nursery.start_soon(observer.run_beside, turn)
        return turn

    async def call(self, name: str, arguments: Mapping[str, Any]) -> ToolCallResult:
        """Call one tool by its offered name, without a model; permission, checks and limits are those of a turn."""

        async def unheard(event: Event) -> None:
            pass

        request = ToolCallRequest("call_1", name, arguments)
        return await self._executor.execute(request, unheard, Deadline(self._limits.timeout))

    async def attach(self, said: Content) -> Attached:
        """Make a message of what a person says; a resource that it names (``@server:uri``) goes along with it."""
        return await attach(said, self.resources, self._connections, self._shelf.keep, self._limits.max_result_chars)

    async def _warm(self) -> None:
        """Get the model ready; what goes wrong here goes wrong again, in words, when it is asked."""
        provider = self._provider
        try:
            if provider is not None and isinstance(provider, Preparable):
                await provider.prepare()
        except Exception as error:  # noqa: BLE001 - whatever it is, the first request meets it
            log.debug("warm_failed", error=type(error).__name__)
        finally:
            self._warmed.set()
        if provider is not None and provider.info.url:  # no turn waits for its price
            await to_thread.run_sync(prices.preload, abandon_on_cancel=True)

    async def _run(self, turn: TurnHandle) -> None:
        try:
            await turn.run()
        finally:
            self._running.discard(turn)

    async def _carry_out(
        self, provider: Provider, messages: tuple[Message, ...], turn: TurnHandle, wanted: turn_runner.TurnOptions
    ) -> StopReason:
        # Getting ready has limits of its own: a model that is fetched first must not use up the first turn's time.
        await self._connections.ready()
        await self._warmed.wait()
        turn.recorder.note(*self.notes)
        restarts = self._connections.restarts
        host = turn_runner.TurnServices(
            provider,
            self._format,
            self._window,
            self._current_menu,
            self._shelf,
            self._approvals,
            self._limits,
            self._connections.fresh,
            self._narrator,
            lands_softly=not self._raise_at_limits,
            guidance=self._guidance,
            words=server_instructions.said_by(self._connections.values()),
            system=self._system,
            servers=self._connections.values,
            audit=self._executor.audit,
        )
        reason = await turn_runner.answer(host, messages, turn, wanted)
        turn.recorder.note(*self.notes, *self._connections.notes_since(restarts))
        return reason

    def _current_menu(self) -> ToolSnapshot:
        revisions = self._connections.revision
        if revisions != self._menu_of:
            pinned = (n for n, c in self._connections.items() if c.settings is not None and c.settings.pinned)
            catalog = catalog_of(self._connections.values())
            self._menu = ToolSnapshot(catalog, frozenset(pinned), self._resource_tools.routes())
            self._menu_of = revisions
        return self._menu

    def _current_catalog(self) -> Catalog:
        return self._current_menu().catalog

    def _server_changed(self, name: str, server: ServerStatus) -> None:
        for turn in tuple(self._running):
            turn.announce(ServerChanged(name, server.state.value))
