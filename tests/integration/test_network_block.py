"""The network block of tests: only this machine can be reached."""

from __future__ import annotations

import asyncio
import socket
import sys
from typing import Any

import pytest

from dial_client import DialClient
from dial_client.testing import NetworkBlocked, block_network
from tests.support.model_endpoint import Say, model_endpoint

# An address reserved for documentation (RFC 5737), which no machine uses.
FOREIGN = "192.0.2.1"


def open_socket(family: int = socket.AF_INET, kind: int = socket.SOCK_STREAM) -> socket.socket:
    connection = socket.socket(family, kind)
    connection.setblocking(False)
    return connection


@pytest.mark.parametrize(
    ("family", "address", "name"),
    [
        (socket.AF_INET, (FOREIGN, 443), "192.0.2.1:443"),
        (socket.AF_INET, ("0.0.0.0", 443), "0.0.0.0:443"),
        (socket.AF_INET6, ("2001:db8::1", 443, 0, 0), "2001:db8::1:443"),
        (socket.AF_INET6, ("::ffff:192.0.2.1", 443, 0, 0), "192.0.2.1:443"),
    ],
)
def test_a_connection_to_another_machine_is_refused_with_its_name(family: int, address: Any, name: str) -> None:
    for method in ("connect", "connect_ex"):
        with open_socket(family) as connection, block_network(), pytest.raises(NetworkBlocked, match=name):
            getattr(connection, method)(address)


def test_a_datagram_to_another_machine_is_refused() -> None:
    with open_socket(kind=socket.SOCK_DGRAM) as connection, block_network():
        with pytest.raises(NetworkBlocked, match=FOREIGN):
            connection.sendto(b"x", (FOREIGN, 53))
        with pytest.raises(NetworkBlocked, match=FOREIGN):
            connection.sendto(b"x", 0, (FOREIGN, 53))
        if hasattr(connection, "sendmsg"):
            with pytest.raises(NetworkBlocked, match=FOREIGN):
                connection.sendmsg([b"x"], [], 0, (FOREIGN, 53))


@pytest.mark.parametrize("host", ["api.example.test", b"api.example.test", "localhost.example.test"])
def test_the_name_of_another_machine_is_not_resolved(host: Any) -> None:
    with block_network():
        for look_up in (socket.gethostbyname, lambda name: socket.getaddrinfo(name, 443)):
            with pytest.raises(NetworkBlocked, match=r"example\.test"):
                look_up(host)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
def test_this_machine_can_be_reached(host: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        server = socket.create_server(("::1" if ":" in host else "127.0.0.1", 0), family=family)
    except OSError:
        pytest.skip("no such loopback address")
    with server, block_network(), socket.create_connection((host, server.getsockname()[1]), 10):
        pass


@pytest.mark.skipif(sys.platform == "win32", reason="no Unix sockets")
def test_a_unix_socket_can_be_used() -> None:
    with block_network():
        first, second = socket.socketpair()
        first.send(b"x")
        assert second.recv(1) == b"x"
        first.close()
        second.close()


def test_the_block_restores_the_socket_functions() -> None:
    before = (dict(vars(socket.socket)), socket.getaddrinfo)
    with block_network(), block_network():
        assert socket.getaddrinfo is not before[1]
    assert (dict(vars(socket.socket)), socket.getaddrinfo) == before


def test_a_local_model_answers_and_a_remote_model_is_an_error() -> None:
    with model_endpoint([Say("Here.")]) as endpoint, block_network():
        assert DialClient("chat:m", base_url=f"{endpoint.url}/v1").run_sync("Where?").text == "Here."
        dial = DialClient("chat:m", base_url="http://models.example.test/v1")
        with pytest.raises(NetworkBlocked, match=r"models\.example\.test"):
            dial.run_sync("Where?")


def test_a_connection_of_asyncio_is_refused() -> None:
    with block_network(), pytest.raises(NetworkBlocked, match=FOREIGN):
        asyncio.run(asyncio.wait_for(asyncio.open_connection(FOREIGN, 443), 10))
