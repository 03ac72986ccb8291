"""The form of a stream for a front end, as it passes from the process of the front end to that of the turn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
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
    names: Mapping[str, str] = field(default_factory=dict)
    """The front end's names of its tools, by the names that the model gets, for those that differ."""

    def build_encoder(self, turn: str, conversation: str, *, continues: bool = False) -> TurnEncoder:
        """Return the encoder for a turn.

        Args:
            turn: The id of the turn.
            conversation: The id of its conversation.
            continues: Whether the turn goes on with results of the front end, in the message that made the calls.
        """
        if self.run:
            return AgUiEncoder(turn, self.thread, self.run, self.names)
        return AiSdkEncoder(turn, {"conversationId": conversation}, self.names, continues=continues)

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
        names = data.get("names", {})  # a process of an earlier version has none
        texts = (data["run"], data["thread"], *names, *names.values()) if isinstance(names, dict) else (None,)
        if not isinstance(data["resumes"], int) or not all(isinstance(text, str) for text in texts):
            raise TypeError("a field has another type")
        return cls(data["run"], data["thread"], data["resumes"], names)
