"""Tool formats: how tools and calls go with a request and a reply, as the API's own tool calls or as text."""

from __future__ import annotations

from dial_client.formats.native import NativeFormatHandler
from dial_client.formats.react import ReActFormatHandler
from dial_client.formats.xml import XMLFormatHandler
from dial_client.model import ToolFormat, ToolFormatHandler

__all__ = ["NativeFormatHandler", "ReActFormatHandler", "XMLFormatHandler", "handler_for"]


def handler_for(
    format: ToolFormat,  # noqa: A002 - the field's own name for it
    *,
    fenced_calls: bool = False,
) -> ToolFormatHandler:
    """Return the handler of a format; `fenced_calls` is for the API's own tool calls (`NativeFormatHandler`)."""
    match format:
        case ToolFormat.NATIVE:
            return NativeFormatHandler(fenced_calls=fenced_calls)
        case ToolFormat.REACT:
            return ReActFormatHandler()
        case ToolFormat.XML:
            return XMLFormatHandler()
