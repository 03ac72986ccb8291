"""Translates a ``server.json`` of the MCP registry to entries of ``servers.json``.

Schema: https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json. A document names packages of npm,
PyPI, OCI or NuGet, and URLs of remote servers; each of them is one way to use the server.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from dial_client.messages.errors import ConfigError
from dial_client.runtime.json_fields import find_object, to_list, to_object
from dial_client.runtime.safe_text import to_one_line

RegistryEntry = dict[str, Any]


@dataclass(frozen=True, slots=True)
class RegistryChoice:
    """One way to use a server: a package or a remote URL."""

    kind: str
    """``npm``, ``pypi``, ``oci``, ``nuget`` or ``remote``."""
    entry: RegistryEntry = field(repr=False)
    """The entry for ``servers.json``."""
    notes: tuple[str, ...] = ()
    """Notes for the user, one sentence each: variables to set, and optional settings."""


@dataclass(frozen=True, slots=True)
class RegistryServer:
    """A server of the registry."""

    name: str
    """The name in reverse-DNS form: ``io.github.owner/weather``."""
    description: str
    version: str
    choices: tuple[RegistryChoice, ...]
    """The supported ways to use the server."""
    left_out: tuple[str, ...] = ()
    """Why other ways to use the server are not supported, one sentence each."""
    status: str = "active"
    """The status in the registry: ``active``, ``deprecated`` or ``deleted``."""
    warning: str = ""
    """A sentence with the registry's message about a server that is not active; empty for active servers."""

    @property
    def short_name(self) -> str:
        """The part of the name after the slash."""
        return self.name.rpartition("/")[2]


def read_registry_document(document: Any) -> RegistryServer:
    """Return the server of a ``server.json``, or of a response of the registry.

    Raises:
        ConfigError: The document is not a ``server.json``.
    """
    status, warning = "active", ""
    if isinstance(document, dict) and isinstance(document.get("server"), dict):
        status, warning = _read_status(document)
        document = document["server"]
    if not isinstance(document, dict) or not isinstance(document.get("name"), str):
        hint = 'expected "name", and "packages" or "remotes"'
        raise ConfigError("this is not a server.json of the MCP registry", hint)
    choices: list[RegistryChoice] = []
    left_out: list[str] = []
    readers = (("packages", _read_package), ("remotes", _read_remote))
    for item, read in ((item, read) for key, read in readers for item in _to_objects(document.get(key))):
        try:
            choices.append(read(item))
        except ConfigError as error:
            left_out.append(error.problem)
    description, version = (str(document.get(key) or "") for key in ("description", "version"))
    return RegistryServer(document["name"], description, version, tuple(choices), tuple(left_out), status, warning)


def _read_status(answer: Mapping[str, Any]) -> tuple[str, str]:
    """Return the status of a server in a response of the registry, and a warning if it is not active."""
    official = find_object(find_object(answer, "_meta"), "io.modelcontextprotocol.registry/official")
    status = str(official.get("status") or "active")
    if status == "active":
        return "active", ""
    message = official.get("statusMessage")
    return status, f"the registry calls it {to_one_line(status, 40)}{f': {message}' if message else ''}"


def _read_remote(remote: Mapping[str, Any]) -> RegistryChoice:
    notes: list[str] = []
    url = _fill(str(remote.get("url") or ""), remote.get("variables"), notes)
    if not re.match(r"https?://|\$\{", url):
        raise ConfigError("one of its remotes has no URL")
    entry: RegistryEntry = {"type": "sse" if remote.get("type") == "sse" else "http", "url": url}
    if headers := dict(_list_pairs(remote.get("headers"), notes)):
        entry["headers"] = headers
    return RegistryChoice("remote", entry, tuple(notes))


def _read_package(package: Mapping[str, Any]) -> RegistryChoice:
    kind, identifier = str(package.get("registryType") or ""), str(package.get("identifier") or "")
    version = str(package.get("version") or "")
    transport = package.get("transport")
    if isinstance(transport, dict) and transport.get("type", "stdio") != "stdio":
        raise ConfigError(f"the {kind} package {identifier} is an HTTP server that you have to start yourself")
    if kind not in _RUNNERS or not re.fullmatch(r"[\w@][\w./:@-]*", identifier):
        hint = f": download it, then dial-chat servers add FILE ({identifier})" if kind == "mcpb" else ""
        raise ConfigError(f"a package of the kind {kind!r} cannot be run here{hint}")
    identifier = _qualify_identifier(kind, identifier, str(package.get("registryBaseUrl") or ""))
    notes: list[str] = []
    env = dict(_list_pairs(package.get("environmentVariables"), notes))
    runner, words = _RUNNERS[kind](identifier, version, list(env))
    runtime = list(_list_arguments(package.get("runtimeArguments"), notes))
    if kind == "oci" and runtime[:1] == ["run"]:
        runtime = runtime[1:]
    index = len(words) - 1  # the package is the last word, after the arguments of its runner
    args = [*words[:index], *(word for word in runtime if word not in words), *words[index:]]
    args += _list_arguments(package.get("packageArguments"), notes)
    entry: RegistryEntry = {"command": runner, "args": args} | ({"env": env} if env else {})
    return RegistryChoice(kind, entry, tuple(notes))


def _qualify_identifier(kind: str, identifier: str, base_url: str) -> str:
    """Return the identifier of a package for its runner; the identifier of an image includes the registry's host.

    Raises:
        ConfigError: The package is in a registry that the runner does not use. In the runner's registry, the name may
            belong to a different package.
    """
    try:
        host = urlsplit(base_url).hostname if "://" in base_url else base_url
    except ValueError:  # such as an incomplete IPv6 address
        host = None
    if not base_url or tuple((host or "").split(".")) in _REGISTRY_HOSTS[kind]:
        return identifier
    if kind == "oci" and host and re.fullmatch(r"[\w.-]+", host):
        return identifier if identifier.startswith(f"{host}/") else f"{host}/{identifier}"
    raise ConfigError(f"the {kind} package {identifier} is in another registry, {to_one_line(base_url, 100)}")


# For each kind of package, the DNS labels of the registry hosts that its runner uses by default.
_REGISTRY_HOSTS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "npm": (("registry", "npmjs", "org"),),
    "pypi": (("pypi", "org"),),
    "oci": (("docker", "io"), ("registry-1", "docker", "io"), ("hub", "docker", "com")),
    "nuget": (("api", "nuget", "org"), ("nuget", "org"), ("www", "nuget", "org")),
}


def _build_docker_command(identifier: str, version: str, variables: list[str]) -> tuple[str, list[str]]:
    name = identifier.rpartition("/")[2]
    image = identifier if not version or ":" in name or "@" in name else f"{identifier}:{version}"
    passed = [word for variable in variables for word in ("-e", variable)]
    return "docker", ["run", "-i", "--rm", *passed, image]


def _pin_version(identifier: str, version: str) -> str:
    return f"{identifier}@{version}" if version else identifier


_RUNNERS: Mapping[str, Callable[[str, str, list[str]], tuple[str, list[str]]]] = {
    "npm": lambda identifier, version, _: ("npx", ["-y", _pin_version(identifier, version)]),
    "pypi": lambda identifier, version, _: ("uvx", [_pin_version(identifier, version)]),
    "oci": _build_docker_command,
    "nuget": lambda identifier, version, _: ("dnx", ["--yes", _pin_version(identifier, version)]),
}


def _list_arguments(arguments: Any, notes: list[str]) -> Iterator[str]:
    for argument in _to_objects(arguments):
        name = str(argument.get("name") or "") if argument.get("type") == "named" else ""
        label = name.lstrip("-") or str(argument.get("valueHint") or "argument")
        if name and not argument.keys() & _VALUED:
            yield name
        elif (value := _find_value(argument, label, notes)) is not None:
            yield from [name, value] if name else [value]


# Keys of a named argument with a value; a named argument without any of these keys is a flag.
_VALUED = {"value", "default", "isRequired", "isSecret", "valueHint", "placeholder", "choices", "format"}


def _list_pairs(inputs: Any, notes: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the names and values of environment variables or headers."""
    for item in _to_objects(inputs):
        name = str(item.get("name") or "")
        value = _find_value(item, name, notes) if name else None
        if value is not None:
            yield name, value


def _find_value(item: Mapping[str, Any], name: str, notes: list[str]) -> str | None:
    """Return the value of an input: its fixed value, its default, or a reference to a variable to set.

    None for an optional input without a default.
    """
    about = str(item.get("description") or "")
    if isinstance(item.get("value"), str):
        return _fill(item["value"], item.get("variables"), notes)
    if isinstance(item.get("default"), str):
        return _require_literal(item["default"])
    if item.get("isRequired") or item.get("isSecret"):
        return _require_variable(name, about, notes)
    notes.append(f"{name} is optional, and is not set{f': {about}' if about else ''}")
    return None


def _fill(text: str, variables: Any, notes: list[str]) -> str:
    """Return a text with its ``{variables}`` replaced by their values."""

    def replace_variable(found: re.Match[str]) -> str:
        variable = to_object(variables).get(found[1])
        if not isinstance(variable, dict):
            return found[0]
        text = variable.get("value") or variable.get("default")
        if text:
            return _require_literal(str(text))
        return _require_variable(found[1], str(variable.get("description") or ""), notes)

    return re.sub(r"\{([^{}]+)\}", replace_variable, _require_literal(text))


def _require_literal(text: str) -> str:
    """Return a text of the publisher, after checking that it contains no ``${…}``.

    Such a reference would insert an environment variable of this machine, and send it to the server.

    Raises:
        ConfigError: The text contains a reference.
    """
    if "${" in text:
        raise ConfigError(f"one of its values reads an environment variable of this machine: {to_one_line(text, 100)}")
    return text


def _require_variable(name: str, about: str, notes: list[str]) -> str:
    """Return a reference to an environment variable for a value, and add a note that it must be set."""
    variable = re.sub(r"\W+", "_", name).strip("_").upper() or "VALUE"
    notes.append(f"set the variable {variable}{f': {about}' if about else ''}")
    return f"${{{variable}}}"


def _to_objects(value: Any) -> list[Mapping[str, Any]]:
    return [item for item in to_list(value) if isinstance(item, dict)]
