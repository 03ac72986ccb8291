"""Tool formats: how requests offer tools and replies call them, as the API's own tool calls or as text."""

from __future__ import annotations

from dial_client.messages.model import ToolFormat, ToolFormatHandler
from dial_client.providers.formats.native import NativeFormatHandler
from dial_client.providers.formats.react import ReActFormatHandler
from dial_client.providers.formats.xml import XMLFormatHandler

__all__ = ["NativeFormatHandler", "ReActFormatHandler", "XMLFormatHandler", "build_handler"]


def build_handler(
    format: ToolFormat,  # noqa: A002 - the name of the handlers' attribute
    *,
    fenced_calls: bool = False,
) -> ToolFormatHandler:
    """Return the handler of a format; `fenced_calls` applies only to `NativeFormatHandler`."""
    match format:
        case ToolFormat.NATIVE:
            return NativeFormatHandler(fenced_calls=fenced_calls)
        case ToolFormat.REACT:
            return ReActFormatHandler()
        case ToolFormat.XML:
            return XMLFormatHandler()
