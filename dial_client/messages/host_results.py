"""Tool results that the host writes itself, because a call was not made or was interrupted.

Their text has no content of a server, so such a result is trusted. A stored result has no `Failure`, so its text tells
which kind it is (`is_host_result`).
"""

from __future__ import annotations

from dial_client.messages.message import Failure, Message, ToolCallResult

NOT_ALLOWED = "The user did not allow this call"
"""The beginning of the result of a call that the user denied."""
_NOT_RUN = "Not run: "
_INTERRUPTED = "Interrupted: "


def build_not_run_result(call_id: str, why: str, failure: Failure = Failure.NOT_RUN) -> ToolCallResult:
    """Return the result of a call that was not made."""
    return ToolCallResult.failed(call_id, failure, f"{_NOT_RUN}{why}")


def build_interrupted_result(call_id: str, why: str) -> ToolCallResult:
    """Return the result of a call that was made, and that ended without a result."""
    unknown = "It is not known whether the tool did its work."
    return ToolCallResult.failed(call_id, Failure.NOT_RUN, f"{_INTERRUPTED}{why}. {unknown}")


def is_host_result(message: Message) -> bool:
    """Return whether a tool result is one that the host wrote itself, by its beginning, which a server can imitate."""
    return message.is_error and message.text.startswith((NOT_ALLOWED, _NOT_RUN, _INTERRUPTED))
