"""DialClient: the servers and the model, put together."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from types import MappingProxyType, TracebackType
from typing import Any, Literal, Self

import anyio
from anyio import to_thread

from dial_client import answering, config, options, prices, replaying
from dial_client.answering import Host
from dial_client.approvals import Approvals, Approver, Rules
from dial_client.catalog import Catalog, catalog_of
from dial_client.connection import Connection
from dial_client.connections import Connections
from dial_client.deadline import Deadline
from dial_client.errors import ConfigError, ServerStartError
from dial_client.events import Event, ServerChanged
from dial_client.executor import ToolExecutor
from dial_client.fitting import Window
from dial_client.host_side import HostSide
from dial_client.limits import Limits, StopReason
from dial_client.logs import get_logger
from dial_client.messages import Message, ToolCallRequest, ToolCallResult, ToolSpec
from dial_client.model import Provider, ToolFormat
from dial_client.nursery import Nursery
from dial_client.offering import Menu
from dial_client.recording import Recording
from dial_client.running import RunningTurn
from dial_client.server_status import ServerState, ServerStatus
from dial_client.shelf import Shelf
from dial_client.sinks import sse
from dial_client.turn import Turn

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
            `asking.GUIDANCE`, where the conversation has no instructions of its own.
        status: who words `StatusChanged`: with ``"template"`` the tools' titles, with ``"model"`` also the model, which
            says what each call does while it runs, if it is quick enough (20 tokens, 2 seconds).
        status_model: says it in place of the model: a smaller one.
        base_url: the endpoint, in place of the model's own.
        models: profiles that `model` may name.
        record: a file to write the conversation to, for a bug report or a test; `recording` has its form. As a model,
            ``scripted:FILE``, it brings stand-ins for its servers; one in `servers` of the same name is used instead.

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
        models: Mapping[str, config.ModelSettings] | None = None,
        record: str | os.PathLike[str] | None = None,
    ) -> None:
        self._targets = {name: options.target(name, entry) for name, entry in servers.items()}
        self._provider, own_format = options.model_named(model, models or {}, base_url)
        self._format = options.format_chosen(tool_format or own_format)
        self._window = Window(options.context_window(model, models or {}, self._provider))
        if status not in ("template", "model"):
            raise ConfigError(f"unknown status {status!r}", hint='expected "template" or "model"')
        narrator, _ = options.model_named(status_model, models or {}, None)
        # A recording has no replies to spare for sentences.
        own = None if replaying.is_recording(self._provider) else self._provider
        self._narrator = (narrator or own) if status == "model" else None
        self._limits = limits or Limits()
        self._raise_at_limits = on_limit == "raise"
        self._system = system
        self._guidance = getattr(self._provider, "guidance", None) if guidance is None else guidance
        if stand_ins := replaying.stand_ins(self._provider, self._targets):
            self._targets, approve = stand_ins | self._targets, replaying.approver(stand_ins, approve)
        connect, self._recording = replaying.connect, None
        if record is not None:
            self._recording = Recording(record, self._targets, self._provider, str(tool_format or own_format or "auto"))
            self._provider, approve = self._recording.heard(self._provider), self._recording.approver(approve)
            connect = self._recording.connection
        approved = {n: t.auto_approve for n, t in self._targets.items() if isinstance(t, config.ServerSettings)}
        self._approvals = Approvals(Rules(tuple(allow), tuple(deny), approved), approve)
        self._executor = ToolExecutor(self._current_catalog, self._approvals, self._limits)
        self._connections = Connections(self._targets, HostSide(self._server_changed), connect)
        self._nursery: Nursery | None = None
        self._warmed = anyio.Event()
        self._menu = Menu()
        self._menu_of: tuple[int, ...] | None = None
        self._shelf = Shelf()
        self._running: set[RunningTurn] = set()

    @classmethod
    def from_config(cls, path: str | os.PathLike[str], model: str | Provider | None = None, **options: Any) -> Self:
        """Make a client of a servers.json; `options` are those of the class.

        No server of the file is started where the model is a recording, which has servers of its own.

        Raises:
            ConfigError: the file is missing or wrong, or no model is named and it has no ``defaultModel``.
        """
        settings = config.load(path)
        chosen = model if model is not None else settings.default_model
        if chosen is None:
            raise ConfigError("no model is named", hint='give model=…, or "defaultModel" in the file', path=str(path))
        servers = {} if replaying.is_recording(chosen) else settings.servers
        return cls(servers, chosen, **({"models": settings.models} | options))

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
        self._nursery = await Nursery.open()
        self._connections.start(self._nursery)
        self._warmed = anyio.Event()
        self._nursery.start_soon(self._warm)

    async def ready(self) -> None:
        """Wait until every server is ready or known not to be, at most its start-up timeout.

        Raises:
            ServerStartError: a server marked ``required`` did not start.
        """
        await self._connections.ready()
        for connection in self._connections.values():
            settings = connection.settings
            if settings is not None and settings.required and connection.status.state is ServerState.FAILED:
                raise ServerStartError(connection.name, connection.status.error or "it did not start")

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

    @property
    def notes(self) -> tuple[str, ...]:
        """What is not as it should be with servers and tools, a line each: why one is missing, what is odd."""
        said: list[str] = []
        for server in self.servers.values():
            if server.state is ServerState.FAILED:
                said.append(f"server {server.name!r} is not available: {server.error}")
            elif server.state is ServerState.RESTARTING:
                said.append(f"server {server.name!r} is being started again: {server.error}")
            said += [f"server {server.name!r}: {note}" for note in server.notes]
        return (*said, *self._current_catalog().notes)

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
        """Answer as server-sent events, each a string that ends in a blank line; `sinks.sse` has the form.

        Raises nothing once it has begun: an error is an ``error`` event, and ``data: [DONE]`` is always the last.
        """
        name = self._provider.name if self._provider is not None else ""
        async with aclosing(sse.encode(self.stream(messages), model=name)) as lines:
            async for line in lines:
                yield line

    def start(self, messages: Sequence[Message], *, stream: bool = True, watched: bool = True) -> RunningTurn:
        """Start a turn without waiting for it.

        Args:
            messages: the conversation; never changed.
            stream: ask the model for its reply in pieces.
            watched: somebody will read its `RunningTurn.events`.
        """
        if self._nursery is None:
            raise RuntimeError("the client is not open: use `async with DialClient(…) as dial`")
        provider = self._provider
        if provider is None:
            raise ConfigError("no model is named", hint="give DialClient a model")

        async def work(turn: RunningTurn) -> StopReason:
            return await self._carry_out(provider, tuple(messages), turn, stream=stream)

        turn = RunningTurn(work, watched=watched, raise_at_limits=self._raise_at_limits)
        self._running.add(turn)
        self._nursery.start_soon(self._run, turn)
        return turn

    async def call(self, name: str, arguments: Mapping[str, Any]) -> ToolCallResult:
        """Call one tool by its offered name, without a model; permission, checks and limits are those of a turn."""

        async def unheard(event: Event) -> None:
            pass

        request = ToolCallRequest("call_1", name, arguments)
        return await self._executor.execute(request, unheard, Deadline(self._limits.timeout))

    async def _warm(self) -> None:
        """Get the model ready; what goes wrong here goes wrong again, in words, when it is asked."""
        try:
            if warm := getattr(self._provider, "warm", None):
                await warm()
        except Exception as error:  # noqa: BLE001 - whatever it is, the first request meets it
            log.debug("warm_failed", error=type(error).__name__)
        finally:
            self._warmed.set()
        if getattr(self._provider, "billing", None) is not None:  # no turn waits for its price
            await to_thread.run_sync(prices.preload, abandon_on_cancel=True)

    async def _run(self, turn: RunningTurn) -> None:
        try:
            await turn.run()
        finally:
            self._running.discard(turn)

    async def _carry_out(
        self, provider: Provider, messages: tuple[Message, ...], turn: RunningTurn, *, stream: bool
    ) -> StopReason:
        # Getting ready has limits of its own: a model that is fetched first must not use up the first turn's time.
        await self._connections.ready()
        await self._warmed.wait()
        turn.recorder.note(*self.notes)
        restarts = self._connections.restarts
        host = Host(
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
        )
        reason = await answering.answer(host, self._instructed(messages), turn, stream=stream)
        turn.recorder.note(*self.notes, *self._connections.notes_since(restarts))
        return reason

    def _instructed(self, messages: tuple[Message, ...]) -> tuple[Message, ...]:
        if self._system is None or (messages and messages[0].role == "system"):
            return messages
        return (Message.system(self._system), *messages)

    def _current_menu(self) -> Menu:
        revisions = tuple(connection.revision for connection in self._connections.values())
        if revisions != self._menu_of:
            pinned = (n for n, t in self._targets.items() if isinstance(t, config.ServerSettings) and t.pinned)
            self._menu = Menu(catalog_of(self._connections.values()), frozenset(pinned))
            self._menu_of = revisions
        return self._menu

    def _current_catalog(self) -> Catalog:
        return self._current_menu().catalog

    def _server_changed(self, name: str, server: ServerStatus) -> None:
        for turn in tuple(self._running):
            turn.announce(ServerChanged(name, server.state.value))
