"""Converts messages from and to the forms of vendors' SDKs: methods of `Message`, and functions for conversations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self, overload

from dial_client.messages.vendor_messages import add_note


class VendorForms:
    """The methods of `Message` that convert it from and to the vendors' forms."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the message as JSON."""
        raise NotImplementedError

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Read the form of `to_dict`."""
        raise NotImplementedError

    def to_openai(self, notes: list[str] | None = None) -> dict[str, Any]:
        """Return the message in the form of chat completions: ``{"role": "user", "content": "…"}``.

        Args:
            notes: Receives a note on each part that the API cannot represent: images in results, marks of untrusted
                content, the reasoning of another provider.
        """
        from dial_client.messages.vendor_messages import write_openai

        notes = [] if notes is None else notes
        data = self.to_dict()
        _note_own_fields(data, notes)
        return write_openai(data, notes)

    def to_anthropic(self, notes: list[str] | None = None) -> dict[str, Any]:
        """Return the message in the form of the Messages API; the result of a call becomes a message of the user.

        Args:
            notes: Receives a note on each part that the API cannot represent, as for `to_openai`.
        """
        from dial_client.messages.vendor_messages import write_anthropic

        notes = [] if notes is None else notes
        data = self.to_dict()
        _note_own_fields(data, notes)
        return write_anthropic(data, notes)

    @overload
    @classmethod
    def from_openai(
        cls, data: Mapping[str, Any], *, provider: str = "openai", notes: list[str] | None = None
    ) -> Self: ...

    @overload
    @classmethod
    def from_openai(
        cls, data: Sequence[Mapping[str, Any]], *, provider: str = "openai", notes: list[str] | None = None
    ) -> list[Self]: ...

    @classmethod
    def from_openai(
        cls,
        data: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        *,
        provider: str = "openai",
        notes: list[str] | None = None,
    ) -> Self | list[Self]:
        """Read a message of chat completions, or a list of messages; results of calls get the names of their tools.

        Args:
            data: A dictionary in the API's form (``message.model_dump()`` of the SDK), or a list of dictionaries.
            provider: The provider to which reasoning and signatures are sent back, such as ``dial.model_name``; by
                default only `to_openai` uses them.
            notes: Receives a note on each part that a `Message` cannot represent, such as an image that is only a URL.

        Raises:
            ValueError: A dictionary is not a message of chat completions.
        """
        from dial_client.messages.vendor_messages import read_openai

        notes = [] if notes is None else notes
        is_single = isinstance(data, Mapping)
        names: dict[str, str] = {}
        messages = []
        for item in _to_items(data):
            try:
                message = read_openai(item, provider, notes)
            except (KeyError, TypeError, AttributeError) as error:
                raise ValueError(f"not a message of chat completions: {error!r}") from error
            messages.append(cls._read(message, names))
        return messages[0] if is_single else messages

    @overload
    @classmethod
    def from_anthropic(
        cls, data: Mapping[str, Any], *, provider: str = "anthropic", notes: list[str] | None = None
    ) -> Self: ...

    @overload
    @classmethod
    def from_anthropic(
        cls, data: Sequence[Mapping[str, Any]], *, provider: str = "anthropic", notes: list[str] | None = None
    ) -> list[Self]: ...

    @classmethod
    def from_anthropic(
        cls,
        data: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        *,
        provider: str = "anthropic",
        notes: list[str] | None = None,
    ) -> Self | list[Self]:
        """Read a message of the Messages API, or a list of messages; each result of a call becomes its own message.

        Args:
            data: A dictionary in the API's form (``message.model_dump()`` of the SDK), or a list of dictionaries.
            provider: The provider to which thinking and signatures are sent back, such as ``dial.model_name``; by
                default only `to_anthropic` uses them.
            notes: Receives a note on each part that a `Message` cannot represent.

        Raises:
            ValueError: A dictionary is not a message of the Messages API, or a single one has the results of several
                calls: pass it in a list.
        """
        from dial_client.messages.vendor_messages import read_anthropic

        notes = [] if notes is None else notes
        names: dict[str, str] = {}
        messages: list[Self] = []
        for item in _to_items(data):
            try:
                found = read_anthropic(item, names, provider, notes)
            except (KeyError, TypeError, AttributeError) as error:
                raise ValueError(f"not a message of the Messages API: {error!r}") from error
            messages += [cls._read(message, names) for message in found]
        if not isinstance(data, Mapping):
            return messages
        if len(messages) != 1:
            raise ValueError(f"this is not one message but {len(messages)}: pass a list to get a list")
        return messages[0]

    @classmethod
    def _read(cls, message: dict[str, Any], names: dict[str, str]) -> Self:
        """Return the message; the result of a call gets the name of its tool."""
        names |= {call["id"]: call["name"] for call in message.get("tool_calls", ())}
        if message["role"] == "tool" and "name" not in message and message.get("tool_call_id") in names:
            message["name"] = names[message["tool_call_id"]]
        return cls.from_dict(message)


def to_openai(messages: Iterable[VendorForms], notes: list[str] | None = None) -> list[dict[str, Any]]:
    """Return a conversation as ``messages`` of chat completions.

    Args:
        messages: The messages; nothing is added or moved to make the conversation valid.
        notes: Receives notes, as for `Message.to_openai`.
    """
    return [message.to_openai(notes) for message in messages]


def to_anthropic(messages: Iterable[VendorForms], notes: list[str] | None = None) -> list[dict[str, Any]]:
    """Return a conversation as ``messages`` of the Messages API; consecutive results are joined into one message.

    Args:
        messages: The messages; nothing is added or moved to make the conversation valid.
        notes: Receives notes, as for `Message.to_openai`.
    """
    written: list[dict[str, Any]] = []
    for message in messages:
        data = message.to_anthropic(notes)
        if _is_result(data) and written and _is_result(written[-1]):
            written[-1]["content"].extend(data["content"])
        else:
            written.append(data)
    return written


def _to_items(data: Any) -> Sequence[Any]:
    if isinstance(data, Mapping):
        return [data]
    if not isinstance(data, Sequence) or isinstance(data, str | bytes | bytearray):
        raise ValueError(f"not a message, nor a list of messages: {type(data).__name__}")  # noqa: TRY004 - as any data
    return data


def _is_result(data: Mapping[str, Any]) -> bool:
    content = data["content"]
    return data["role"] == "user" and isinstance(content, list) and any(_is_result_block(block) for block in content)


def _is_result_block(block: Mapping[str, Any]) -> bool:
    return str(block["type"]) == "tool_result"


def _note_own_fields(data: Mapping[str, Any], notes: list[str]) -> None:
    if "taint" in data:
        add_note(notes, "the mark of untrusted content")
    if "replaces" in data:
        add_note(notes, "the mark of a summary")
