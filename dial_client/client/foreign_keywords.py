"""What other libraries call the arguments and the methods of their clients, for errors of `DialClient`."""

from __future__ import annotations

# The argument here, by the foreign name.
ARGUMENTS = {
    "instructions": "system",
    "system_prompt": "system",
    "mcp_servers": "servers",
    "toolsets": "tools for functions, servers for MCP servers",
    "functions": "tools",
    "api_key": "models={…: ModelProfile(…, api_key=…)}",
    "temperature": "settings=ModelSettings(temperature=…)",
    "max_tokens": "settings=ModelSettings(max_tokens=…)",
    "timeout": "limits=Limits(timeout=…)",
    "max_turns": "limits=Limits(max_depth=…)",
    "output_type": "output_type of a turn",
}
# What to use here, by the foreign name of a method or attribute.
ATTRIBUTES = {
    "call_tool": "`await dial.call(name, arguments)`",
    "list_tools": "`dial.tools`, which is a tuple",
    "get_tools": "`dial.tools`, which is a tuple",
    "chat": "`await dial.run(text)`, or `dial.conversation(store)`",
    "query": "`await dial.run(text)`",
    "ask": "`await dial.run(text)`",
    "invoke": "`await dial.run(text)`",
    "run_stream": "`async for event in dial.stream(text)`",
    "run_streamed": "`async for event in dial.stream(text)`",
    "astream": "`async for event in dial.stream(text)`",
    "connect": "`async with DialClient(…) as dial`",
    "initialize": "`async with DialClient(…) as dial`",
    "close": "`await dial.aclose()`",
}
WITH_STATEMENT = "`async with DialClient(…) as dial`, or `with DialClient(…).blocking() as dial`"
