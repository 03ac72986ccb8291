"""Agents of the program: those of the user's configuration folder, of ``"agents"``, and of the working folder.

An agent below the working folder was written by others, so it is not used before the user trusts its file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from dial_client.cli.streams.error_stream import warn_once
from dial_client.cli.trust.folder_skills import is_below
from dial_client.messages.errors import ConfigError
from dial_client.settings.agent import Agent
from dial_client.settings.config_locations import build_user_config_path
from dial_client.settings.config_trust import FoundFile, read_found
from dial_client.settings.config_types import Settings

# The folder of agents in the user's configuration folder, and the folders of agents in the working folder.
USER_AGENTS = "agents"
FOLDER_AGENTS = (Path(".dial", "agents"), Path(".claude", "agents"))


def list_own_agents(settings: Settings) -> list[FoundFile]:
    """Return the files of agents that need no trust: of the user, and of ``"agents"`` outside the working folder."""
    folder = build_user_config_path().parent / USER_AGENTS
    return list(_read_files([folder, *(path for path in settings.agents if not is_below(path))]))


def find_folder_agents(settings: Settings) -> list[FoundFile]:
    """Return the files of agents below the working folder."""
    return list(_read_files([*FOLDER_AGENTS, *(path for path in settings.agents if is_below(path))]))


def parse_agents(files: Iterable[FoundFile]) -> tuple[Agent, ...]:
    """Return the agents of files; of two of one name the first. A warning names each file that is wrong."""
    agents: dict[str, Agent] = {}
    paths: dict[str, Path] = {}
    for file in files:
        from dial_client.settings.agent_files import parse_agent

        try:
            agent = parse_agent(file.data, file.path)
        except ConfigError as error:
            warn_once(f"not used: {error}")
        else:
            if agents.setdefault(agent.name, agent) is not agent:
                warn_once(f"not used: {file.path}: there is an agent {agent.name} already, in {paths[agent.name]}")
            paths.setdefault(agent.name, file.path)
    return tuple(agents.values())


def _read_files(places: Iterable[Path]) -> Iterator[FoundFile]:
    for place in places:
        if not place.exists():
            continue
        from dial_client.settings.agent_files import list_files

        try:
            yield from map(read_found, list_files(place))
        except ConfigError as error:
            warn_once(f"not used: {error}")
