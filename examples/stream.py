"""Follow a turn while it runs: the start and end of its calls, and its text as the model writes it."""

import asyncio
import os

from dial_client import DialClient, Finished, TextDelta, ToolCallFinished, ToolCallStarted

MODEL = os.environ.get("DIAL_MODEL", "local")
SERVERS = {"time": {"command": "mcp-server-time", "args": ["--local-timezone", "UTC"]}}


async def main() -> None:
    async with DialClient(MODEL, servers=SERVERS) as dial:
        async for event in dial.stream("What time is it in Tokyo?"):
            match event:
                case ToolCallStarted(call, server):
                    print(f"[{server}: {call.name} {dict(call.arguments)}]")
                case ToolCallFinished(result):
                    print(f"[{'done' if result.success else result.error}]")
                case TextDelta(text):
                    print(text, end="", flush=True)
                case Finished(turn):
                    print(f"\n{turn.usage.output_tokens} tokens were written")


asyncio.run(main())
