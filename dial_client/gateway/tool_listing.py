"""Which tools the clients of the gateway see, as options name it."""

from __future__ import annotations

from enum import StrEnum

from dial_client.messages.errors import ConfigError


class ToolListing(StrEnum):
    """Which tools clients see."""

    ALL = "all"
    SEARCH = "search"
    """Three tools that find, describe and call the others, and the tools of pinned servers."""
    CODE = "code"
    """As `SEARCH`, and a tool that runs a program which calls tools."""
    AUTO = "auto"
    """All tools as long as their definitions are not larger than `Limits.max_tool_bytes`."""


def parse_tool_listing(text: str, option: str) -> ToolListing:
    """Return the listing that an option names.

    Raises:
        ConfigError: There is no such listing.
    """
    try:
        return ToolListing(text)
    except ValueError:
        raise ConfigError(f"{option}: there is no {text!r}", hint=f"one of {', '.join(ToolListing)}") from None
