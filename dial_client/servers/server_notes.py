"""The notes that a server cannot be used: each conversation is told once, and again after the state has changed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dial_client.servers.status import ServerState, ServerStatus


def describe_failure(status: ServerStatus) -> str:
    """Return the note on a server that has failed, or waits for credentials of the person; empty for another state."""
    match status.state:
        case ServerState.FAILED:
            return f"{_begin(status)}: {status.error}"
        case ServerState.NEEDS_CREDENTIALS:
            return f"{_begin(status)} to this person: {status.error}"
        case _:
            return ""


def select_unsaid(notes: Iterable[str], statuses: Iterable[ServerStatus], earlier: Sequence[str]) -> list[str]:
    """Return notes without those on servers that were the last ones on the same server, and those on recovered servers.

    Args:
        notes: The notes on the present state.
        statuses: The present state of the servers.
        earlier: The notes of earlier turns, the oldest first.
    """
    known: set[str] = set()
    recovered: list[str] = []
    for status in statuses:
        recovery = f"server {status.name!r} is available now"
        last = next((note for note in reversed(earlier) if note == recovery or note.startswith(_begin(status))), "")
        if last == describe_failure(status):
            known.add(last)
        elif status.state is ServerState.READY and last not in ("", recovery):
            recovered.append(recovery)
    return [*(note for note in notes if note not in known), *recovered]


def _begin(status: ServerStatus) -> str:
    return f"server {status.name!r} is not available"
