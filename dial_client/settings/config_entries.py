"""Reads an entry of ``mcpServers`` as `ServerSettings`: the keys, their readers, and checks across keys."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any, get_args, get_type_hints
from urllib.parse import urlsplit

from dial_client.messages.errors import ConfigError
from dial_client.messages.limits import Limits
from dial_client.messages.model import ModelSettings
from dial_client.runtime.text import did_you_mean, find_nearest, suggest_name
from dial_client.settings.config_types import (
    ModelProfile,
    OAuthGrant,
    OAuthSettings,
    Profile,
    ServerSettings,
    Settings,
    Transport,
)
from dial_client.settings.config_values import (
    COMMENTS,
    TOP_KEYS,
    USER_REFERENCE,
    Node,
    Reader,
    Variables,
    build_choice_reader,
    build_readers,
    check_name,
    parse_env_file,
    quote_key,
)
from dial_client.settings.endpoint_profile import FLAGS
from dial_client.settings.policy_config import read_policy


def _to_keys(readers: Mapping[str, Reader]) -> dict[str, Reader]:
    """Return readers of fields under the names of the keys: ``autoApprove`` for ``auto_approve``."""
    return {re.sub(r"_(\w)", lambda found: found[1].upper(), name): reader for name, reader in readers.items()}


def _to_field(key: str) -> str:
    return re.sub("([A-Z])", r"_\1", key).lower()


def read_oauth(node: Node) -> OAuthSettings:
    """Read the OAuth settings: an object, "oauth" or true for the defaults, or in Python an ``httpx2.Auth``.

    Raises:
        ConfigError: A value is invalid, or values contradict each other.
    """
    if node.value == "oauth" or node.value is True:
        return OAuthSettings()
    if hasattr(node.value, "async_auth_flow"):
        return OAuthSettings(auth=node.value)
    found, unknown = node.split_members(OAUTH_KEYS, OAUTH_ALIASES)
    for key, child in unknown.items():
        if key not in _OF_OTHER_HOSTS and (hint := did_you_mean(key, (*OAUTH_KEYS, *OAUTH_ALIASES))):
            raise child.build_error("unknown setting of a login", hint, at_name=True)
    for key in ("callbackPort", "callbackHost"):
        if key in found and "redirectUri" in found:
            raise found["redirectUri"].build_error(f"must not be combined with {key}", at_name=True)
    settings = OAuthSettings(**{_to_field(key): OAUTH_KEYS[key](child) for key, child in found.items()})
    if settings.private_key is not None and settings.grant is not OAuthGrant.CLIENT_CREDENTIALS:
        raise found["privateKey"].build_error('needs "grantType": "client_credentials"', at_name=True)
    _check_identity(settings, found, node)
    has_secret = settings.client_secret is not None or settings.private_key is not None
    if (has_secret or settings.grant is OAuthGrant.CLIENT_CREDENTIALS) and settings.client_id is None:
        raise node.build_error("clientId is not given")
    if settings.grant is OAuthGrant.CLIENT_CREDENTIALS and not has_secret:
        raise node.build_error("neither clientSecret nor privateKey is given", "client_credentials needs one of them")
    return settings


def _check_identity(settings: OAuthSettings, found: Mapping[str, Node], node: Node) -> None:
    """Check the settings of enterprise-managed authorization: all of them, or none.

    Raises:
        ConfigError: A setting is missing, or has no meaning without the grant.
    """
    if settings.grant is OAuthGrant.JWT_BEARER:
        for key in ("issuer", "clientId", "clientSecret", "identityProvider"):
            if key not in found:
                raise node.build_error(f"{key} is not given", "the grant jwt-bearer needs it")
        return
    for key, child in found.items():
        if key.startswith("identity"):
            raise child.build_error('needs "grantType": "jwt-bearer"', at_name=True)


OAUTH_KEYS = _to_keys(build_readers(OAuthSettings, without=("auth",)))
OAUTH_ALIASES = {"scope": "scopes", "grantType": "grant"}
_OF_OTHER_HOSTS = frozenset(("authorizationUrl", "authServerMetadataUrl", "registrationUrl", "tokenUrl"))


def read_server(name: str, node: Node, variables: Variables, *, is_selected: bool = True) -> ServerSettings:
    """Read one entry; its variables are expanded unless the server is disabled.

    Args:
        name: The name of the server.
        node: The entry.
        variables: The values of ``${…}``.
        is_selected: False to disable the server.

    Raises:
        ConfigError: The entry is invalid; the error names the place, and what was expected.
    """
    check_name(name, node)
    if "/" in name:
        raise node.build_error("a server's name cannot contain /", "patterns of tools are SERVER/TOOL", at_name=True)
    found, unknown = node.split_members(SERVER_KEYS, SERVER_ALIASES)
    enabled = _read_enabled(found) and is_selected
    values: dict[str, Any] = {}
    for key, child in found.items():
        if enabled and key in _EXPANDED:
            values[key] = SERVER_KEYS[key](variables.expand(child, home=key in _PATHS, of_user=key in _OF_USER))
        else:  # the URL of a disabled server may begin with a variable
            values[key] = child.read_string() if key == "url" else SERVER_KEYS[key](child)
    if "command" not in found and "url" not in found:
        raise _build_target_error(node, unknown)
    transport = _choose_transport(found, values)
    if enabled:
        _resolve_files(found, values, variables)
        # Who fills in a value must not choose where it is sent: an internal address would be as good as any other.
        if USER_REFERENCE.search("".join(urlsplit(values.get("url", ""))[:2])):
            problem = "${user.…} must not be a part of the host"
            raise found["url"].build_error(problem, "it may be in the path and the query")
    if "timeout" in values:
        values.setdefault("toolTimeout", values["timeout"] / 1000)
    settings = {_to_field(key): value for key, value in values.items() if key not in _NO_FIELDS}
    return ServerSettings(name, transport, enabled=enabled, warnings=tuple(_list_warnings(found, unknown)), **settings)


def _read_enabled(found: Mapping[str, Node]) -> bool:
    on, off = (found[key].read_boolean() if key in found else None for key in ("enabled", "disabled"))
    if on is not None and on == off:
        raise found["disabled"].build_error("contradicts enabled", "keep one of the two", at_name=True)
    return not off if on is None else on


def _build_target_error(node: Node, unknown: Mapping[str, Node]) -> ConfigError:
    hints = [f'write "{_OTHER_TARGETS[key]}" in place of "{key}"' for key in unknown if key in _OTHER_TARGETS]
    hints += [did_you_mean(key, ("command", "url")) for key in list(unknown)[:10]]
    if not node.source.lines and node.keys in (("mcpServers",), ("servers",)):
        key = repr(node.keys[0])
        hints.insert(0, f"pass the value of {key}, servers=content[{key}], or the file, DialClient.from_config(FILE)")
    if node.source.lines and len(node.keys) == 1:
        hints.append(did_you_mean(str(node.keys[0]), TOP_KEYS))
    usual = 'a server needs a program ("command") or a URL ("url")'
    return node.build_error("neither command nor url is present", next(filter(None, hints), usual), at_name=True)


def _choose_transport(found: Mapping[str, Node], values: Mapping[str, Any]) -> Transport:
    """Return the transport that the entry names, or the one that its command or URL implies."""
    program, address = "command" in values, "url" in values
    if program and address:
        raise found["url"].build_error(
            "must not be combined with command", "a server has a program or a URL, not both", at_name=True
        )
    if "type" in values:
        if (values["type"] is Transport.STDIO) != program:
            raise found["type"].build_error(
                f"this type needs {'url' if program else 'command'}", "or leave the type out"
            )
        return Transport(values["type"])
    if program:
        return Transport.STDIO
    if found["url"].keys[-1] != "httpUrl" and re.match(r"[^/]*//[^/?#]*/(?:[^?#]*/)?sse/?(?:[?#]|$)", values["url"]):
        return Transport.SSE
    return Transport.HTTP


def _resolve_files(found: Mapping[str, Node], values: dict[str, Any], variables: Variables) -> None:
    """Make the folders absolute, and read ``envFile``; ``env`` has precedence, and null there removes a variable."""
    folder = variables.folder
    if "cwd" in values:
        values["cwd"] = str(folder / values["cwd"])
    if "roots" in values:
        values["roots"] = tuple(root if root.startswith("file:") else str(folder / root) for root in values["roots"])
    if "envFile" in values:
        own = found["env"].value if "env" in found else {}
        from_file = parse_env_file(found["envFile"], variables.read(folder / values["envFile"]))
        kept = {name: value for name, value in from_file.items() if name not in own}
        values["env"] = kept | values.get("env", {})


def _list_warnings(found: Mapping[str, Node], unknown: Mapping[str, Node]) -> Iterator[str]:
    yield from describe_unknown_keys(find_unknown_keys(unknown, (*SERVER_KEYS, *SERVER_ALIASES), OTHER_HOSTS_KEYS))
    yield from (str(warning.to_error()) for warning in find_odd_values(found))


SERVER_KEYS: Mapping[str, Reader] = {
    "type": build_choice_reader(
        {**{kind: kind for kind in Transport}, "streamable-http": Transport.HTTP, "local": Transport.STDIO}
    ),
    **_to_keys(build_readers(ServerSettings, without=("name", "transport", "oauth", "warnings", "user_secrets"))),
    "oauth": read_oauth,
    "envFile": Node.read_string,
    "disabled": Node.read_boolean,
    "timeout": Node.read_positive,
}
SERVER_ALIASES = {
    "transport": "type",
    "httpUrl": "url",
    "auth": "oauth",
    "alwaysAllow": "autoApprove",
    "includeTools": "enabledTools",
    "excludeTools": "disabledTools",
    "startup_timeout_sec": "startupTimeout",
    "tool_timeout_sec": "toolTimeout",
    "isActive": "enabled",
    "active": "enabled",
}
# Keys of other hosts for the program or the URL, which are no aliases: an entry should say the same in every host.
_OTHER_TARGETS = {"serverUrl": "url", "uri": "url", "endpoint": "url", "baseUrl": "url", "cmd": "command"}
_NO_FIELDS = frozenset({"type", "enabled", "disabled", "envFile", "timeout"})
_EXPANDED = frozenset({"command", "args", "env", "envFile", "cwd", "url", "headers", "oauth", "roots"})
_OF_USER = frozenset({"args", "env", "url", "headers"})
_PATHS = frozenset({"command", "envFile", "cwd", "roots"})


def read_model(name: str, node: Node, variables: Variables) -> ModelProfile:
    """Read one profile; its variables are expanded.

    Raises:
        ConfigError: The profile is invalid; the error names the place, and what was expected.
    """
    check_name(name, node)
    found = node.read_known_members("unknown setting of a model", MODEL_KEYS, MODEL_ALIASES)
    values = {key: MODEL_KEYS[key](variables.expand(child)) for key, child in found.items()}
    settings, quirks = ({key: values.pop(key) for key in keys if key in values} for keys in (_SETTINGS, FLAGS))
    return ModelProfile(name, settings=ModelSettings(**settings), quirks=quirks, **({"model": name} | values))


_SETTINGS = build_readers(ModelSettings, without=("tool_choice", "stop", "parallel_calls"))
MODEL_KEYS: Mapping[str, Reader] = {
    **build_readers(ModelProfile, without=("name", "settings", "quirks")),
    **_SETTINGS,
    **FLAGS,
}
# Former names of keys, which existing files use.
MODEL_ALIASES = {"wire": "api"}


# Keys of other hosts in a server's entry, which have no effect here, and cause no warning.
OTHER_HOSTS_KEYS = frozenset(
    (
        *("authProviderType", "description", "dev", "displayName", "gallery", "icon", "iconUrl", "icons", "id"),
        *("keep_alive", "logoUrl", "metadata", "modernLogLevel", "name", "note", "notes", "protocolEra"),
        *("sandbox", "sandboxEnabled", "sse_read_timeout", "tags", "title", "tools", "trust", "version"),
    )
)


class EntryFault(StrEnum):
    """What is odd; the value is the problem in words."""

    UNKNOWN_KEY = "this key is unknown, and has no effect"
    SHORT_TIMEOUT = "less than a second"
    BARE_VARIABLE = "this is not a variable, and is used literally"


@dataclass(frozen=True, slots=True)
class EntryWarning:
    """An odd key or value."""

    fault: EntryFault
    node: Node
    hint: str = ""
    replacement: str = ""
    """The key, or the value, that was probably meant; empty if it is unknown. A value may be a secret."""

    def to_error(self) -> ConfigError:
        """Return the warning as an error with its place in the file."""
        return self.node.build_error(self.fault, self.hint, at_name=self.fault is not EntryFault.BARE_VARIABLE)


def describe_unknown_keys(found: Iterable[EntryWarning]) -> Iterator[str]:
    """Yield one sentence about all unknown keys of an object, the first five by their names; nothing without any."""
    odd = list(found)
    if odd:
        named = ((str(warning.node.keys[-1]), warning.hint) for warning in odd[:5])
        names = ", ".join(quote_key(key) + (f" ({hint})" if hint else "") for key, hint in named)
        ending = f" and {len(odd) - 5} more" if len(odd) > 5 else ""
        yield str(odd[0].node.build_error(f"unknown keys have no effect: {names}{ending}", at_name=True))


def find_unknown_keys(
    unknown: Mapping[str, Node], known: Collection[str], without_effect: Collection[str] = ()
) -> Iterator[EntryWarning]:
    """Yield a warning for each unknown key that is not a comment.

    Args:
        unknown: The unknown members of an object.
        known: The known keys.
        without_effect: Keys that cause no warning.
    """
    for key, node in unknown.items():
        if key not in without_effect and not key.startswith(COMMENTS):
            nearest = find_nearest(key, known)
            yield EntryWarning(EntryFault.UNKNOWN_KEY, node, f'did you mean "{nearest}"?' if nearest else "", nearest)


def find_odd_values(found: Mapping[str, Node]) -> Iterator[EntryWarning]:
    """Yield a warning for each odd value of a server's entry.

    Args:
        found: The members of the entry by their proper keys; values of a wrong type are skipped.
    """
    timeout = found.get("timeout")
    if timeout is not None and isinstance(timeout.value, int | float) and timeout.value < 1000:
        yield EntryWarning(EntryFault.SHORT_TIMEOUT, timeout, "timeout is in milliseconds, toolTimeout in seconds")
    for key in ("env", "headers"):
        node = found.get(key)
        for child in node.read_members().values() if node is not None and isinstance(node.value, Mapping) else ():
            if re.fullmatch(r"\$[A-Za-z_][A-Za-z0-9_]*", str(child.value)):
                hint = "a variable is written ${NAME}"
                yield EntryWarning(EntryFault.BARE_VARIABLE, child, hint, f"${{{str(child.value)[1:]}}}")


def read_profile(name: str, node: Node, variables: Variables) -> Profile:
    """Read one profile; its variables are expanded.

    Raises:
        ConfigError: The profile is invalid; the error names the place, and what was expected.
    """
    check_name(name, node)
    found = node.read_known_members("unknown key of a profile", PROFILE_KEYS)
    return Profile(name, **{key: PROFILE_KEYS[key](child, variables) for key, child in found.items()})


# The keys of ``limits``, with the names of their fields.
LIMIT_KEYS = {re.sub(r"_(\w)", lambda found: found[1].upper(), field.name): field.name for field in fields(Limits)}


def read_limits(node: Node) -> dict[str, Any]:
    """Return the limits of a turn by the names of the fields of `Limits`; ``"timeout": "none"`` is infinite.

    Raises:
        ConfigError: A limit is unknown or out of range; the error names the place, and what was expected.
    """
    limits: dict[str, Any] = {}
    for key, child in node.read_known_members("unknown limit", LIMIT_KEYS).items():
        name = LIMIT_KEYS[key]
        limits[name] = math.inf if (key, child.value) == ("timeout", "none") else child.read_number()
        kind = get_type_hints(Limits)[name]
        if float not in (kind, *get_args(kind)):
            if not limits[name].is_integer():
                raise child.build_error("expected a whole number")
            limits[name] = int(limits[name])
        try:
            replace(Limits(), **{name: limits[name]})
        except ValueError as error:
            raise child.build_error(str(error)) from None
    return limits


def merge_profiles(base: Profile, over: Profile) -> Profile:
    """Merge two profiles of the same name: values of `over` have precedence, and rules of `base` are tried first."""
    return Profile(
        over.name,
        base.model if over.model is None else over.model,
        base.servers if over.servers is None else over.servers,
        base.system if over.system is None else over.system,
        (*base.policy, *over.policy),
        {**base.limits, **over.limits},
    )


def apply_profile(settings: Settings, profile: Profile | None) -> Settings:
    """Return the configuration with the model, the instructions and the limits of a profile."""
    if profile is None:
        return settings
    if profile.model:
        settings = replace(settings, default_model=profile.model, fallback_models=None)
    return replace(settings, system=profile.system, limits={**settings.limits, **profile.limits})


def build_profile_error(name: str, names: Iterable[str]) -> ConfigError:
    """Return the error for a profile that no file has, with the nearest name."""
    known = tuple(dict.fromkeys(names))
    hint = suggest_name(name, known) if known else 'profiles belong under "profiles"'
    return ConfigError(f"there is no profile {quote_key(name)}", hint=hint)


def selects_server(profile: Profile | None, server: str) -> bool:
    """Return True if a server is used with this profile."""
    return profile is None or profile.servers is None or any(fnmatchcase(server, glob) for glob in profile.servers)


def check_servers(profile: Profile | None, servers: Iterable[str]) -> None:
    """Check that each pattern of a profile matches a server.

    Raises:
        ConfigError: A pattern matches no server of any file; the hint names the nearest server.
    """
    if profile is None or not profile.servers:
        return
    names = tuple(servers)
    for glob in profile.servers:
        if not any(fnmatchcase(name, glob) for name in names):
            problem = f"the profile {quote_key(profile.name)} names the server {quote_key(glob)}, which does not exist"
            raise ConfigError(problem, hint=suggest_name(glob, names))


# The keys of a profile, each with the reader of its value.
PROFILE_KEYS: Mapping[str, Callable[[Node, Variables], Any]] = {
    "model": lambda node, variables: variables.expand_text(node),
    "servers": lambda node, _: node.read_strings(),
    "system": lambda node, variables: variables.expand_text(node),
    "policy": read_policy,
    "limits": lambda node, _: read_limits(node),
}
