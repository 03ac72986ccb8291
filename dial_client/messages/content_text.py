"""The content of a message as text, with descriptions in place of images and files."""

from __future__ import annotations

from dial_client.messages.message import Content, TextPart, describe


def describe_content(content: Content) -> str:
    """Return the text of a content; an image or a file is replaced by its description in brackets."""
    if isinstance(content, str):
        return content
    return "\n".join(part.text if isinstance(part, TextPart) else f"[{describe(part)}]" for part in content)
