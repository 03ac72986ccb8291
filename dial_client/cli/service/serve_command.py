"""The command ``serve``: builds the HTTP server from the options, runs it, and shuts it down."""

from __future__ import annotations

import signal
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager, closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread

from dial_client.cli.audit_report import find_audit_folder
from dial_client.cli.default_model import open_default_model
from dial_client.cli.gateway_command import build_grants_command, read_listing
from dial_client.cli.load_settings import find_model_name, read_settings
from dial_client.cli.open_client import apply_configuration, open_client, use_agents, use_skills
from dial_client.cli.option_checks import parse_lifetime
from dial_client.cli.options import ConfigChoice, ExitCode, Options, ServeOptions
from dial_client.cli.service.service_access import PERSONAL_TOKENS, choose_access, list_host_names
from dial_client.cli.streams import process_runner
from dial_client.cli.streams.error_stream import print_notes, warn
from dial_client.cli.trust.changed_config import change_config, find_file, find_holder
from dial_client.cli.trust.folder_texts import read_agents, read_skills
from dial_client.client.dial_client import DialClient
from dial_client.conversations.conversation_settings import KEYS
from dial_client.hooks.call_context import LaterCallers
from dial_client.hooks.server_callbacks import Callbacks
from dial_client.messages.errors import ConfigError, DialError, NoModel
from dial_client.messages.model import Provider
from dial_client.serve.application import AppContext
from dial_client.serve.http_server import HttpServer, Proxies, open_socket, parse_proxy
from dial_client.serve.mcp_endpoint import McpOptions
from dial_client.serve.metrics import ServiceMetrics
from dial_client.serve.operations import Operations
from dial_client.serve.people.owner_limits import OwnerLimiter, read_limits
from dial_client.serve.people.stored_credentials import StoredCredentials, open_box
from dial_client.serve.request_log import REQUEST_ID
from dial_client.serve.routes.server_routes import ConfigChanger, ServerChange
from dial_client.serve.turns.human_input import PageUser
from dial_client.serve.turns.turn_registry import ServedModel
from dial_client.serve.web_app import create_app
from dial_client.servers.status import ServerStatus
from dial_client.settings.config_editor import read_text
from dial_client.settings.config_types import Settings
from dial_client.settings.gateway_entry import is_gateway_of_service
from dial_client.stores.memory_store import MemoryStore
from dial_client.stores.sql_store import SQLStore
from dial_client.tools.argument_paths import find_current_folder


async def serve_http(options: Options, serve_options: ServeOptions) -> int:
    """Serve until a signal arrives, and return the exit code: 0 for SIGTERM, 130 for Ctrl-C.

    Raises:
        ConfigError: An option is wrong, or the address is in use.
        ServerStartError: A server marked ``required`` did not start.
    """
    if serve_options.access_log:
        process_runner.log_requests()
    if serve_options.log_format == "json":
        process_runner.write_log_as_json()
    locked = _read_locked_settings(serve_options.lock)
    store = build_store(options, is_durable=serve_options.durable)
    operations = _build_operations(options, serve_options)
    access = choose_access(serve_options, store)
    proxies = Proxies(tuple(map(parse_proxy, serve_options.proxy)), access.proxy_headers | {REQUEST_ID})
    settings, provider = await _open_model(options, await read_settings(options), serve_options)
    skills, agents = await read_skills(options, settings), await read_agents(options, settings)
    user = PageUser()
    callers = None if serve_options.no_mcp else LaterCallers()
    callbacks = Callbacks(elicit=user.elicit, apps=True, log_level="info", callers=callers)
    listener = open_socket(serve_options.host, serve_options.port)
    with closing(listener):
        host, port, *_ = listener.getsockname()
        settings = _without_own_endpoint(settings, host, port)
        is_alone = access.authenticator is None
        credentials = StoredCredentials(store.credentials, await open_box()) if isinstance(store, SQLStore) else None
        async with open_client(
            *(options, settings, provider, user, callbacks),
            single_user=is_alone,
            middleware=operations.middleware,
            logins=credentials or True,
            credentials=credentials,
        ) as dial:
            use_skills(dial, skills)
            use_agents(dial, agents)
            reload = ConfigurationReload(dial, options, settings, partial(_without_own_endpoint, host=host, port=port))
            web = create_app(
                *(dial, user),
                token=access.token,
                host=serve_options.host,
                allow_hosts=list_host_names(serve_options),
                store=store,
                name=_choose_model_name(options, settings, provider),
                max_turns=serve_options.max_turns,
                durable=serve_options.durable,
                answer_timeout=serve_options.answer_timeout,
                shares=not serve_options.no_share,
                title_model=_choose_title_model(serve_options.title_model, dial),
                locked_settings=locked,
                change_config=build_config_changer(options, reload.request) if serve_options.allow_admin else None,
                report=warn,
                mcp=_choose_mcp_options(options, serve_options),
                authenticator=access.authenticator,
                login=access.login,
                operations=operations,
            )
            shown = _format_url(listener.getsockname(), access.token, access.token_source)
            if serve_options.auth == PERSONAL_TOKENS:
                shown += "\ndial-chat: `dial-chat tokens create NAME --owner PERSON` creates a token for a person"
            async with web.lifespan():
                server = HttpServer(web, listener, web.context.turns, proxies=proxies)
                return await _serve(server, web.context, shown, reload)


async def _open_model(
    options: Options, settings: Settings, serve_options: ServeOptions
) -> tuple[Settings, Provider | None]:
    """Return the configuration with the model that answers, and the model; None for a service of ``/mcp`` alone.

    Raises:
        ConfigError: The model cannot be opened, or there is neither a model nor ``/mcp``.
    """
    try:
        return await open_default_model(options, settings)
    except NoModel as error:
        if serve_options.no_mcp or serve_options.title_model:
            raise
        warn(f"{error}. Only /mcp is of use: chats get 503")
        return settings, None


def _build_operations(options: Options, serve_options: ServeOptions) -> Operations:
    """Return how the service is watched, and what it limits.

    Raises:
        ConfigError: An option is wrong, or has no effect.
    """
    retain, limits = parse_lifetime(serve_options.retain, "--retain"), serve_options.owner_limits
    if options.no_save and (retain is not None or limits is not None):
        named = "--retain" if retain is not None else "--owner-limits"
        raise ConfigError(f"{named} cannot be combined with --no-save", "it is about what is in the database")
    return Operations(
        access_log=serve_options.access_log,
        metrics=ServiceMetrics() if serve_options.metrics else None,
        limits=OwnerLimiter(read_limits(limits)) if limits is not None else None,
        retain=retain,
        audit_folder=find_audit_folder(),
    )


def _choose_title_model(name: str | None, dial: DialClient) -> str | None:
    """Return the model that writes titles; None for none.

    Raises:
        ConfigError: There is no such model.
    """
    if not name:
        return None
    dial.model.select(name)
    warn(f"the titles of conversations are written by {name}: one more request for each conversation")
    return name


def _without_own_endpoint(settings: Settings, host: str, port: int) -> Settings:
    """Return the settings without servers that are ``/mcp`` of this very service."""
    kept = {
        name: server for name, server in settings.servers.items() if not is_gateway_of_service(server.url, host, port)
    }
    for name in settings.servers.keys() - kept.keys():
        warn(f"the server {name!r} is left out: it is /mcp of this service, which would list its own tools again")
    return replace(settings, servers=kept)


def _choose_mcp_options(options: Options, serve_options: ServeOptions) -> McpOptions | None:
    if serve_options.no_mcp:
        if serve_options.allow_origin:
            raise ConfigError("--allow-origin is for /mcp, and cannot be combined with --no-mcp")
        return None
    tools = read_listing(serve_options.mcp_tools, "--mcp-tools").value
    return McpOptions(
        origins=serve_options.allow_origin,
        tools=tools,
        max_result_chars=serve_options.mcp_max_result_chars,
        calls_per_minute=serve_options.mcp_calls_per_minute,
        grants_command=build_grants_command(options),
        grants_folder=find_current_folder(),
    )


def _read_locked_settings(values: Sequence[str]) -> frozenset[str]:
    """Return the names of the settings that conversations cannot change.

    Raises:
        ConfigError: There is no such setting.
    """
    names = {name for value in values for name in value.split(",")}
    if unknown := sorted(names - KEYS - {"all"}):
        raise ConfigError(f"--lock: there is no setting {unknown[0]!r}", hint=f"one of {', '.join(sorted(KEYS))}, all")
    return KEYS if "all" in names else frozenset(names)


def _choose_model_name(options: Options, settings: Settings, provider: Provider | None) -> str:
    """Return the name of the model for clients; empty if there is no model."""
    name = find_model_name(options, settings)
    return name or ("" if provider is None else provider.info.model or provider.info.name)


class ConfigurationReload:
    """Reloads the configuration on request, and applies it.

    Args:
        dial: The client.
        options: The options of the command line.
        settings: The configuration in effect.
        adapt: Returns a configuration without what this service cannot use.
    """

    def __init__(
        self, dial: DialClient, options: Options, settings: Settings, adapt: Callable[[Settings], Settings]
    ) -> None:
        self._dial, self._options, self._settings, self._adapt = dial, options, settings, adapt
        self._requested = anyio.Event()

    def request(self) -> None:
        """Request a reload; several requests before the next reload count as one."""
        self._requested.set()

    async def run(self, model: ServedModel) -> None:
        """Handle reload requests until cancelled. If the configuration has an error, print it and change nothing.

        Args:
            model: The served model, whose name is updated.
        """
        while True:
            await self._requested.wait()
            self._requested = anyio.Event()
            await self._reload(model)

    async def _reload(self, model: ServedModel) -> None:
        def report(name: str, result: ServerStatus | DialError) -> None:
            if isinstance(result, DialError):
                warn(f"{name}: {result}")

        try:
            settings = self._adapt(await read_settings(self._options, may_ask=False))
            # Nobody waits for a question of a service that runs. Before anything is changed, so that a file that is
            # wrong changes nothing.
            skills = await read_skills(self._options, settings, is_silent=True)
            agents = await read_agents(self._options, settings, is_silent=True)
            changes = await apply_configuration(self._dial, self._options, self._settings, settings, report)
            use_skills(self._dial, skills)
            use_agents(self._dial, agents)
        except DialError as error:
            warn(f"the configuration was not reloaded, the old one stays in effect: {error}")
        else:
            self._settings = settings
            model.name = _choose_model_name(self._options, settings, self._dial.model.provider)
            warn(f"the configuration was reloaded. {changes}")


async def _serve(server: HttpServer, context: AppContext, shown: str, reload: ConfigurationReload) -> int:
    code: int = ExitCode.ANSWERED
    failed: DialError | None = None

    def leave(number: int) -> None:
        nonlocal code
        code = ExitCode.INTERRUPTED if number == signal.SIGINT else ExitCode.ANSWERED
        server.shut_down()

    async def start() -> None:
        nonlocal failed
        try:
            await context.dial.ready()
            print_notes(context.dial.notes)
        except DialError as error:
            failed = error
            server.shut_down()

    process_runner.interrupts.hand_over(leave, reload.request)
    async with anyio.create_task_group() as group:
        group.start_soon(start)
        group.start_soon(reload.run, context.model)
        await server.run(lambda: print(f"dial-chat: listening on {shown}", file=sys.stderr, flush=True))
        group.cancel_scope.cancel()
    if failed is not None:
        raise failed
    return code


def build_store(options: Options, *, is_durable: bool) -> SQLStore | MemoryStore:
    """Return the store of conversations that the options name.

    Raises:
        ConfigError: Two options contradict each other, or the address of the store is wrong.
    """
    if options.no_save:
        if options.store or is_durable:
            raise ConfigError(f"--{'store' if options.store else 'durable'} cannot be combined with --no-save")
        return MemoryStore()
    if options.store is None:
        return SQLStore.sqlite()
    return SQLStore(options.store if "://" in options.store else Path(options.store))


@asynccontextmanager
async def open_database(options: Options) -> AsyncIterator[SQLStore]:
    """Open the database of conversations for a command of the service's operator, and close it on exit."""
    store = build_store(options, is_durable=False)
    assert isinstance(store, SQLStore)  # these commands have no option for a store in memory
    async with aclosing(store):
        yield store


def _format_url(bound_address: tuple[str, int], token: str | None, token_source: str) -> str:
    """Return the URL to print, with a generated token in its fragment, which browsers do not send.

    A token that the user set is not printed, because standard error may be the log of a service manager.
    """
    reachable_host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(bound_address[0], bound_address[0])  # noqa: S104 - nothing listens here
    host = f"[{reachable_host}]" if ":" in reachable_host else reachable_host
    shown = f"http://{host}:{bound_address[1]}/"
    if token_source:
        return f"{shown}\ndial-chat: the page asks for the token {token_source}; {shown}#token=TOKEN opens it directly"
    return shown if token is None else f"{shown}#token={token}"


def build_config_changer(options: Options, reload: Callable[[], None]) -> ConfigChanger:
    """Return the function that changes the configuration file in use, and then requests a reload."""
    choice = ConfigChoice(file=options.config)
    lock = anyio.Lock()

    async def change_file(change: ServerChange, name: str, edit: Callable[[str], str]) -> None:
        def find_and_change() -> None:
            before = read_text(find_file(choice)) if change == "added" else find_holder(name, choice)
            change_config(before, edit, f"{change} {name!a}")

        async with lock:
            await anyio.to_thread.run_sync(find_and_change)
        reload()

    return change_file
