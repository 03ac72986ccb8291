"""The download of a server's package is recognized by the command and the output of the program."""

from __future__ import annotations

import pytest

from tests.inner import ServerSettings, Transport, describe_download, find_package, find_program_name


def server(command: str, *args: str) -> ServerSettings:
    return ServerSettings("it", Transport.STDIO, command=command, args=args)


UVX = server("uvx", "mcp-server-fetch", "--ignore-robots-txt")
NPX = server("C:\\node\\npx.cmd", "-y", "@x/server@1.2", ".")
NPX_BEGINS = "npm warn exec The following package was not found and will be installed: @x/server@1.2"
DOCKER = server("docker", "run", "-i", "--rm", "mcp/fetch")


@pytest.mark.parametrize(
    ("settings", "lines", "sentence"),
    [
        (UVX, ["Downloading lxml (4.8MiB)"], "uvx is downloading mcp-server-fetch"),
        (UVX, ["   Building readabilipy==0.3.0"], "uvx is downloading mcp-server-fetch"),
        (UVX, ["Downloading lxml (4.8MiB)", "Installed 32 packages in 40ms"], ""),
        (UVX, [], ""),
        (UVX, ["cannot open the page"], ""),
        (NPX, [NPX_BEGINS], "npx is downloading @x/server@1.2"),
        (NPX, [NPX_BEGINS, "Listening"], ""),
        (NPX, [NPX_BEGINS, "npm warn deprecated glob@7: old"], "npx is downloading @x/server@1.2"),
        (DOCKER, ["Unable to find image 'mcp/fetch:latest' locally"], "docker is pulling its image"),
        (DOCKER, ["latest: Pulling from mcp/fetch", "Status: Downloaded newer image for mcp/fetch:latest"], ""),
        (server("node", "main.js"), ["Downloading models (4 MiB)"], ""),
        (None, ["Downloading lxml (4.8MiB)"], ""),
    ],
)
def test_a_download_is_described_until_it_is_finished(
    settings: ServerSettings | None, lines: list[str], sentence: str
) -> None:
    assert describe_download(settings, lines) == sentence


@pytest.mark.parametrize(
    ("settings", "package"),
    [
        (UVX, "mcp-server-fetch"),
        (server("/usr/bin/uvx", "--from", "git+https://jane:ghp_1@x.test/y", "serve"), ""),
        (server("uv", "--directory", "/home/jane/x", "run", "weather.py"), ""),
        (server("uv", "run", "--env-file", ".env", "mcp-server-git[cli]>=1.2"), "mcp-server-git[cli]>=1.2"),
        (server("uvx", "--index", "https://jane:ghp_1@x.test/simple", "mcp-server-git"), "mcp-server-git"),
        (server("npx", "./server.js"), ""),
        (server("uv", "tool", "run", "--python", "3.12", "mcp-server-git"), "mcp-server-git"),
        (server("npx", "-y", "-p", "@x/tools", "serve"), "@x/tools"),
        (server("npx", "--package=@x/tools", "serve"), "@x/tools"),
        (server("uvx"), ""),
        (DOCKER, ""),
    ],
)
def test_the_package_is_found_among_the_arguments(settings: ServerSettings, package: str) -> None:
    assert find_package(settings) == package


@pytest.mark.parametrize(
    "args", [("--from", "git+https://jane:ghp_1@x.test/y", "serve"), ("--directory", "/home/jane/x", "run", "a.py")]
)
def test_the_description_of_a_download_contains_no_password_and_no_path(args: tuple[str, ...]) -> None:
    assert describe_download(server("uv", *args), ["Downloading lxml (4.8MiB)"]) == "uv is downloading its packages"


def test_the_name_of_a_program_has_no_folder_and_no_extension() -> None:
    assert [find_program_name(server(command)) for command in ("C:\\a\\Npx.CMD", "/usr/bin/uvx", "python3.11")] == [
        "npx",
        "uvx",
        "python3.11",
    ]
