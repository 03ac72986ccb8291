"""Differences between the versions of MCP."""

from __future__ import annotations


def is_modern(version: str | None) -> bool:
    """Return True if this protocol version has neither handshake nor sessions (2026-07-28 and later)."""
    from mcp_types.version import MODERN_PROTOCOL_VERSIONS

    return version in MODERN_PROTOCOL_VERSIONS
