"""The tool format in use with a model, and the fallback to text if the endpoint does not support tools."""

from __future__ import annotations

from dial_client.messages.model import ToolFormat, ToolFormatHandler
from dial_client.providers.formats.react import ReActFormatHandler


class ActiveFormat:
    """The format in use with one model. All turns share it, so the fallback happens only once.

    Args:
        handler: The handler of the initial format.
        automatic: True if a fallback to text is allowed; False if the user has chosen the format.
    """

    def __init__(self, handler: ToolFormatHandler, *, automatic: bool = False) -> None:
        self.handler = handler
        self._automatic = automatic

    def fall_back(self) -> bool:
        """Change to a text format, because the endpoint does not support tools; return False if it is not allowed."""
        if not self._automatic or self.handler.format is not ToolFormat.NATIVE:
            return False
        self.handler = ReActFormatHandler()
        return True
