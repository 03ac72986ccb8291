"""fast-agent: one agent with all servers, in ``fast.run()``, and the model ``generic.x``.

`isolated` keeps sessions, files of logs, skills and telemetry out, and `quiet` its display, as its documentation says
for embedding; `auto-cancel` is its mode for questions that nobody is there to answer. The history is kept
outside of the agent (`use_history`), which allows turns at the same time.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fast_agent import FastAgent, RequestParams
from fast_agent.types import PromptMessageExtended, text_content


@asynccontextmanager
async def open_host(base_url: str, servers: Mapping[str, Any]) -> AsyncIterator[Any]:
    """Write the settings, and run the agent."""
    nobody = {"elicitation": {"mode": "auto-cancel"}}
    entries = {name: {"command": entry["command"], "args": entry["args"], **nobody} for name, entry in servers.items()}
    settings = {"generic": {"base_url": base_url, "api_key": "none"}, "mcp": {"servers": entries}}
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "fast-agent.yaml")
        config.write_text(json.dumps(settings), encoding="utf-8")  # noqa: ASYNC240 - a small file; JSON is YAML
        fast = FastAgent(
            "probes", config_path=str(config), parse_cli_args=False, quiet=True, home=folder, isolated=True
        )

        async def assistant() -> None:
            """Only declares the agent."""

        fast.agent(name="assistant", model="generic.x", servers=list(servers))(assistant)
        async with fast.run() as app:
            agent = app.assistant

            async def ask(question: str, history: Any, on_text: Any) -> tuple[str, Any]:
                asked = PromptMessageExtended(role="user", content=[text_content(question)])
                messages = [*(history or ()), asked]
                remove = (
                    agent.add_stream_listener(lambda chunk: chunk.is_reasoning or on_text(chunk.text))
                    if on_text
                    else None
                )
                try:
                    answer = await agent.generate(messages, RequestParams(use_history=False))
                finally:
                    if remove:
                        remove()
                return answer.last_text() or "", [*messages, answer]

            yield ask
