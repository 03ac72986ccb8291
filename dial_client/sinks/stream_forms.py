"""The form of a stream for a front end, as it passes from the process of the front end to that of the turn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from dial_client.sinks.ag_ui_stream import AgUiEncoder
from dial_client.sinks.ai_sdk_stream import AiSdkEncoder
from dial_client.sinks.turn_frames import TurnEncoder


@dataclass(frozen=True, slots=True)
class StreamForm:
    """The form of a stream, and where it goes on."""

    run: str = ""
    """The id of the run of AG-UI; empty for the stream of the AI SDK."""
    thread: str = ""
    """The id of the thread of AG-UI."""
    resumes: int = 0
    """The position from which on the stream goes on where the turn waits; 0 for the whole turn."""

    def build_encoder(self, turn: str, conversation: str) -> TurnEncoder:
        """Return the encoder for a turn, given the ids of the turn and of its conversation."""
        if self.run:
            return AgUiEncoder(turn, self.thread, self.run)
        return AiSdkEncoder(turn, {"conversationId": conversation})

    def to_dict(self) -> dict[str, Any]:
        """Return the form in JSON types."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Read the form of `to_dict`.

        Raises:
            KeyError: A field is missing.
            TypeError: A field has another type.
        """
        if not isinstance(data["resumes"], int) or not all(isinstance(data[name], str) for name in ("run", "thread")):
            raise TypeError("a field has another type")
        return cls(data["run"], data["thread"], data["resumes"])
