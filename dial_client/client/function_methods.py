"""The method that offers a function to the model."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from typing import Any, Unpack, overload

from dial_client.callbacks.server_callbacks import ClientFeatures
from dial_client.errors import ConfigError
from dial_client.servers.resources import Resources
from dial_client.servers.server_manager import ServerManager
from dial_client.tools.function_definition import FunctionOptions, FunctionT, FunctionTool
from dial_client.tools.function_signature import Function
from dial_client.tools.function_tools import FunctionTools
from dial_client.tools.resource_tools import ResourceTools
from dial_client.tools.tool_selection import ToolSnapshots


class FunctionMethods:
    """The method `tool`, for clients that have servers and tools."""

    _servers: ServerManager
    _tools: ToolSnapshots

    @overload
    def tool(self, function: FunctionT, /) -> FunctionT: ...

    @overload
    def tool(self, **options: Unpack[FunctionOptions]) -> Callable[[FunctionT], FunctionT]: ...

    def tool(self, function: Any = None, /, **options: Any) -> Any:  # type: ignore[misc]  # mypy 2.4 and Unpack
        """Offer a function to the model from the next round on, as ``@dial.tool`` or ``@dial.tool(read_only=True)``.

        The description comes from the docstring, the schema from the annotations. A parameter that is annotated with
        `Context` receives the call. A function without ``async`` runs in a thread. The value that the function returns
        is the result; an error that the function raises is a result too, and the model reads its text.

        Args:
            function: a function, a method, or any other callable. It is returned.
            options: the fields of `FunctionTool`.

        Raises:
            ConfigError: a server has the name that functions have in place of a server's.
            TypeError: the function cannot be a tool, or there is one of its name.
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
    features: ClientFeatures,
    *,
    resource_tools: bool,
) -> ToolSnapshots:
    """Return the tools of a client: those of its servers, its functions, and those that read `resources`.

    Raises:
        ConfigError: a server has the name that functions have in place of a server's.
        TypeError: a function cannot be a tool.
    """
    function_tools = FunctionTools(functions, features)
    if function_tools.tools:
        check_name(FunctionTools.name, servers)
    own_tools = ResourceTools(resources, servers, for_all=resource_tools)
    return ToolSnapshots(servers, own_tools, function_tools, has_apps=features.apps)


def check_name(name: str, servers: Container[str]) -> None:
    """Check that functions and servers share no name.

    Raises:
        ConfigError: a server is named as functions are.
    """
    if name in servers:
        raise ConfigError(f"a server is named {name!r}, as the functions of this program are", hint="rename the server")
