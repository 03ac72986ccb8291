"""The tool format in use with a model, and the fallback to text where its endpoint has no tools."""

from __future__ import annotations

from dial_client.formats.react import ReActFormatHandler
from dial_client.model import ToolFormat, ToolFormatHandler


class ActiveFormat:
    """The format in use with one model; shared by all its turns, so that a fallback happens once.

    Args:
        handler: the format to begin with.
        automatic: a fallback to text is allowed; False where the user has chosen the format.
    """

    def __init__(self, handler: ToolFormatHandler, *, automatic: bool = False) -> None:
        self.handler = handler
        self._automatic = automatic

    def fall_back(self) -> bool:
        """Change to text, because the endpoint has no tools of its own; return False where that is not possible."""
        if not self._automatic or self.handler.format is not ToolFormat.NATIVE:
            return False
        self.handler = ReActFormatHandler()
        return True
