"""The contents of a script: replies, and the servers of a recording. `script_format` parses them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dial_client.errors import ProviderError
from dial_client.messages.message import ToolCallRequest
from dial_client.model import FinishReason
from dial_client.settings.config_types import Wire
from dial_client.turn_data.token_usage import Usage


@dataclass(frozen=True, slots=True)
class ScriptedReply:
    """A reply without an API, as `scripted` describes it."""

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
    """The response of an endpoint, byte by byte, as `scripted` describes it."""

    wire: Wire
    body: bytes = b""
    status: int = 200
    breaks: str | None = None
    """How the connection breaks after the body, in words; empty for the usual words, None if it does not break."""
    hang: bool = False
    chunk_size: int = 0
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class RecordedServer:
    """The tools and calls of a recorded server, as JSON in MCP's terms."""

    tools: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    """The definitions of the tools by name, each as it was listed last."""
    calls: list[Mapping[str, Any]] = field(default_factory=list)
    """The calls in the order of their ends: ``called`` and one of ``result``, ``error``, ``denied``, ``cancelled``."""
    failed: bool = False
    """True if the server was not available."""


@dataclass(frozen=True, slots=True)
class Script:
    """The contents of a file."""

    replies: tuple[ScriptedReply | WireReply, ...] = ()
    repeats: bool = False
    provider: str = ""
    """Of a recording: the name of the provider."""
    tool_format: str | None = None
    """Of a recording: the tool format."""
    flags: Mapping[str, Any] = field(default_factory=dict)
    """Of a recording: the flags of the endpoint's profile that its responses are parsed by."""
    servers: Mapping[str, RecordedServer] | None = None
    """Of a recording: the servers; None for any other script."""
