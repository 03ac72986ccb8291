"""The contents of a script: replies, and the servers of a recording. `script_format` parses scripts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dial_client.messages.errors import ProviderError
from dial_client.messages.message import ToolCallRequest
from dial_client.messages.model import FinishReason
from dial_client.messages.token_usage import Usage
from dial_client.settings.config_types import Api


@dataclass(frozen=True, slots=True)
class ScriptedReply:
    """A reply as text and calls, independent of any API. `scripted` describes the members."""

    text: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCallRequest, ...] = ()
    finish: FinishReason | None = None
    usage: Usage = field(default_factory=Usage)
    notes: tuple[str, ...] = ()
    echo: Any = None
    chunks: tuple[str, ...] = ()
    chunk_size: int = 0
    completion: bool = True
    error: ProviderError | None = None
    hang: bool = False


@dataclass(frozen=True, slots=True)
class WireReply:
    """The HTTP response of an endpoint, as bytes. `scripted` describes the members."""

    wire: Api
    body: bytes = b""
    status: int = 200
    breaks: str | None = None
    """The error message when the connection breaks after the body; empty for the default; None for no break."""
    hang: bool = False
    chunk_size: int = 0
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class RecordedServer:
    """The tools and calls of a recorded MCP server, as the JSON objects of MCP."""

    tools: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    """The last listed definition of each tool, by name."""
    calls: list[Mapping[str, Any]] = field(default_factory=list)
    """The calls in the order of completion: ``called``, and one of ``result``, ``error``, ``denied``, ``cancelled``."""
    failed: bool = False
    """True if the server was not available."""


@dataclass(frozen=True, slots=True)
class Script:
    """The parsed contents of a script."""

    replies: tuple[ScriptedReply | WireReply, ...] = ()
    repeats: bool = False
    provider: str = ""
    """The name of the recorded provider; empty if the script is not a recording."""
    tool_format: str | None = None
    """The tool format of the recording; None for the API's own tool calls, or if the script is not a recording."""
    flags: Mapping[str, Any] = field(default_factory=dict)
    """The flags of the recorded endpoint's profile that affect the parsing of responses."""
    servers: Mapping[str, RecordedServer] | None = None
    """The recorded servers; None if the script is not a recording."""
