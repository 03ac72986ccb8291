"""The command ``agents``."""

from __future__ import annotations

import json

from dial_client.cli.load_settings import read_settings
from dial_client.cli.options import Options
from dial_client.cli.streams.error_stream import warn_once
from dial_client.cli.streams.word_wrap import print_lines
from dial_client.cli.trust.folder_texts import FOLDER_AGENTS, USER_AGENTS, read_agents
from dial_client.runtime.safe_text import to_one_line
from dial_client.settings.agent import Agent
from dial_client.settings.config_locations import build_user_config_path


async def list_agents(options: Options, *, as_json: bool) -> None:
    """Print the agents that the model can call, one per line, or as JSON."""
    agents = await read_agents(options, await read_settings(options, needs_servers=False))
    if as_json:
        print(json.dumps([_to_dict(agent) for agent in agents], indent=2))
    elif not agents:
        folder = build_user_config_path().parent / USER_AGENTS
        warn_once(
            f"there are no agents; one is a file NAME.md in {FOLDER_AGENTS[0]} or {folder} (dial-chat help agents)"
        )
    else:
        width = max((len(agent.name) for agent in agents), default=0)
        print_lines((f"{agent.name:<{width}}  {to_one_line(agent.description, 160)}" for agent in agents), width + 2)


def _to_dict(agent: Agent) -> dict[str, object]:
    return {
        "name": agent.name,
        "description": agent.description,
        "model": agent.model,
        "tools": None if agent.tools is None else list(agent.tools),
    }
