"""The method `DialClient.tool`, which offers a function to the model as a tool."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from typing import Any, Unpack, overload

from dial_client.client.argument_types import check_types
from dial_client.messages.errors import ConfigError
from dial_client.servers.resources import Resources
from dial_client.servers.server_manager import ServerManager
from dial_client.servers.server_requests import ClientCapabilities
from dial_client.tools.function_definition import Function, FunctionOptions, FunctionT, FunctionTool
from dial_client.tools.function_tools import FunctionTools
from dial_client.tools.resource_tools import ResourceTools
from dial_client.tools.tool_selection import ToolSnapshots


class FunctionMethods:
    """The method `tool` of `DialClient`."""

    _servers: ServerManager
    _tools: ToolSnapshots

    @overload
    def tool(self, function: FunctionT, /) -> FunctionT: ...

    @overload
    def tool(self, **options: Unpack[FunctionOptions]) -> Callable[[FunctionT], FunctionT]: ...

    def tool(self, function: Any = None, /, **options: Any) -> Any:  # type: ignore[misc]  # mypy 2.4 and Unpack
        """Offer a function to the model, from the next round on: ``@dial.tool`` or ``@dial.tool(read_only=True)``.

        The tool's description comes from the docstring, its schema from the annotations. A parameter annotated with
        `Context` receives the context of the call. A function without ``async`` runs in a thread. The return value is
        the result of the call. If the function raises an error, the result is a failure with the error's text.

        Args:
            function: A function, a method or another callable; the decorator returns it unchanged.
            options: The fields of `FunctionTool`.

        Raises:
            ConfigError: A server has the name ``functions``, which is reserved for such tools.
            TypeError: The function cannot be a tool, or another tool has its name.
        """

        def add(added: FunctionT) -> FunctionT:
            check_name(FunctionTools.name, self._servers)
            self._tools.functions.add(FunctionTool(added, **options) if options else added)
            return added

        return add if function is None else add(function)


def open_tools(
    servers: ServerManager,
    resources: Resources,
    functions: Iterable[Function | FunctionTool],
    capabilities: ClientCapabilities,
    *,
    resource_tools: bool,
) -> ToolSnapshots:
    """Return the tools of a client: its servers' tools, its functions, and the tools that read `resources`.

    Raises:
        ConfigError: A server has the name ``functions``, which is reserved for functions.
        TypeError: A function cannot be a tool, or `resource_tools` is neither True nor False.
    """
    check_types(resource_tools=(resource_tools, bool))
    function_tools = FunctionTools(functions, capabilities)
    if function_tools.tools:
        check_name(FunctionTools.name, servers)
    own_tools = ResourceTools(resources, servers, for_all=resource_tools)
    return ToolSnapshots(servers, own_tools, function_tools, has_apps=capabilities.apps)


def check_name(name: str, servers: Container[str]) -> None:
    """Check that no server has the name that is reserved for functions.

    Raises:
        ConfigError: A server has this name.
    """
    if name in servers:
        raise ConfigError(f"no server can be named {name!r}: functions have this name", hint="rename the server")
