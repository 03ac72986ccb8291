"""Blocks the network in a test, except connections to this machine."""

from __future__ import annotations

import socket
from asyncio.proactor_events import BaseProactorEventLoop
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any
from unittest.mock import patch


class NetworkBlocked(RuntimeError):
    """`block_network` has refused a connection; the message names the host.

    This is not an `OSError`, because clients would retry it, and programs would handle it like a network failure.
    """


@contextmanager
def block_network() -> Iterator[None]:
    """Refuse connections of this process to other machines, and name look-ups of other machines.

    Returns a context manager, ``with block_network():``, which may be nested. Connections to loopback addresses and
    Unix sockets are allowed. All threads are blocked, but not child processes (MCP servers with a command), nor
    libraries that open sockets without Python, such as uvloop.

    Raises:
        NetworkBlocked: Code within the ``with`` block tried to connect to another machine.
    """
    checks: list[tuple[Any, str, Callable[..., None]]] = [
        (socket.socket, "connect", _check_connection),
        (socket.socket, "connect_ex", _check_connection),
        (socket.socket, "sendto", _check_connection),
        (socket.socket, "sendmsg", _check_message),
        (socket, "getaddrinfo", _check_name),
        (socket, "gethostbyname", _check_name),
        (socket, "gethostbyname_ex", _check_name),
        # On Windows, asyncio's event loop connects without `socket.connect`.
        (BaseProactorEventLoop, "sock_connect", _check_connection),
    ]
    with ExitStack() as stack:
        for owner, name, check in checks:
            if hasattr(owner, name):  # Windows has no `sendmsg`
                stack.enter_context(patch.object(owner, name, _guard(getattr(owner, name), check)))
        yield


def _guard(original: Callable[..., Any], check: Callable[..., None]) -> Callable[..., Any]:
    def check_and_call(*arguments: Any, **options: Any) -> Any:
        check(*arguments, **options)
        return original(*arguments, **options)

    return check_and_call


def _check_connection(*arguments: Any) -> None:
    connection = next(argument for argument in arguments if isinstance(argument, socket.socket))
    _check_address(connection.family, arguments[-1])


def _check_message(connection: socket.socket, *arguments: Any) -> None:
    if len(arguments) > 3 and arguments[3] is not None:  # a connected socket needs no address
        _check_address(connection.family, arguments[3])


def _check_name(host: Any, *_: Any, **__: Any) -> None:
    name = host.decode("ascii", "replace") if isinstance(host, bytes) else host
    if name and _parse_address(name) is None and not _is_local(name):
        raise _refuse(name)


def _check_address(family: int, address: Any) -> None:
    """Refuse an address of another machine.

    Raises:
        NetworkBlocked: The address is neither a loopback address nor a Unix socket.
    """
    if hasattr(socket, "AF_UNIX") and family == socket.AF_UNIX:
        return
    host, *port = address if isinstance(address, tuple) and address else (str(address),)
    if family not in (socket.AF_INET, socket.AF_INET6) or not _is_local(str(host)):
        raise _refuse(f"{host}:{port[0]}" if port else str(host))


def _parse_address(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(host.partition("%")[0])
    except ValueError:
        return None


def _is_local(host: str) -> bool:
    address = _parse_address(host)
    if address is None:
        name = host.rstrip(".").lower()
        return name == "localhost" or name.endswith(".localhost")
    mapped = address.ipv4_mapped if address.version == 6 else None
    return (mapped or address).is_loopback


def _refuse(address: str) -> NetworkBlocked:
    return NetworkBlocked(
        f"the connection to {address} was refused by block_network(): only this machine can be reached in this test;"
        " use a ScriptedProvider or a recording in place of the model"
    )
