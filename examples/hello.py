"""Ask a question that needs a tool: ``python examples/hello.py``."""

import os

from dial_client import DialClient

MODEL = os.environ.get("DIAL_MODEL", "local")  # "anthropic:claude-sonnet-5-5", "openai:gpt-6-luna", "ollama:qwen3.5", …

dial = DialClient(MODEL, servers={"time": {"command": "mcp-server-time", "args": ["--local-timezone", "UTC"]}})
turn = dial.run_sync("What time is it in Tokyo?")
print(turn.text)
print([record.tool for record in turn.tool_calls], turn.stop_reason.value)
