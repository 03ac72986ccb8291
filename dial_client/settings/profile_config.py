"""The ``"profiles"`` of a configuration: named selections of model, servers, instructions and rules.

{"profiles": {"work": {"model": "anthropic:claude-sonnet-5-5", "servers": ["git", "jira*"]}}}
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

from dial_client.messages.errors import ConfigError
from dial_client.runtime.text import did_you_mean
from dial_client.settings.config_types import Profile, Settings
from dial_client.settings.config_values import COMMENTS, check_name
from dial_client.settings.jsonc import Node, quote_key
from dial_client.settings.policy_config import read_policy
from dial_client.settings.variables import Variables


def read_profile(name: str, node: Node, variables: Variables) -> Profile:
    """Read one profile; its variables are expanded.

    Raises:
        ConfigError: The profile is invalid; the error names the place, and what was expected.
    """
    check_name(name, node)
    found, unknown = node.split_members(PROFILE_KEYS, {})
    for key, child in unknown.items():
        if not key.startswith(COMMENTS):
            raise child.build_error("unknown key of a profile", did_you_mean(key, PROFILE_KEYS), at_name=True)
    return Profile(name, **{key: PROFILE_KEYS[key](child, variables) for key, child in found.items()})


def merge_profiles(base: Profile, over: Profile) -> Profile:
    """Merge two profiles of the same name: values of `over` have precedence, and rules of `base` are tried first."""
    return Profile(
        over.name,
        base.model if over.model is None else over.model,
        base.servers if over.servers is None else over.servers,
        base.system if over.system is None else over.system,
        (*base.policy, *over.policy),
    )


def apply_profile(settings: Settings, profile: Profile | None) -> Settings:
    """Return the configuration with the model and the instructions of a profile."""
    if profile is None:
        return settings
    if profile.model:
        settings = replace(settings, default_model=profile.model, fallback_models=None)
    return replace(settings, system=profile.system)


def build_profile_error(name: str, names: Iterable[str]) -> ConfigError:
    """Return the error for a profile that no file has, with the nearest name."""
    known = tuple(dict.fromkeys(names))
    listed = f"there are {', '.join(map(quote_key, known[:20]))}" if known else 'profiles belong under "profiles"'
    return ConfigError(f"there is no profile {quote_key(name)}", hint=did_you_mean(name, known) or listed)


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
            raise ConfigError(problem, hint=did_you_mean(glob, names))


PROFILE_KEYS: Mapping[str, Callable[[Node, Variables], Any]] = {
    "model": lambda node, variables: variables.expand_text(node),
    "servers": lambda node, _: node.read_strings(),
    "system": lambda node, variables: variables.expand_text(node),
    "policy": read_policy,
}
"""The keys of a profile, each with the reader of its value."""
