"""Which format is spoken with one model, and the change to text where its endpoint turns out to have no tools."""

from __future__ import annotations

from dial_client.formats.react import ReActFormatHandler
from dial_client.model import ToolFormat, ToolFormatHandler


class ActiveFormat:
    """The format of one model; shared by all its turns, so that what was found out once is not found out again.

    Args:
        handler: the format to begin with.
        automatic: it may be given up for text; False where the user asked for this one and no other.
    """

    def __init__(self, handler: ToolFormatHandler, *, automatic: bool = False) -> None:
        self.handler = handler
        self._automatic = automatic

    def fall_back(self) -> bool:
        """Change to text, because the endpoint has no tools of its own; whether there was anything to change."""
        if not self._automatic or self.handler.format is not ToolFormat.NATIVE:
            return False
        self.handler = ReActFormatHandler()
        return True
