"""Converts messages from and to the forms of vendors' SDKs: methods of `Message`, and functions for conversations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self, overload

from dial_client.messages.vendor_messages import add_note

# A message in the form of a vendor's API.
_Json = Mapping[str, Any]
_Items = Sequence[_Json]


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
        return write_openai(self._to_noted_dict(notes), notes)

    def to_anthropic(self, notes: list[str] | None = None) -> dict[str, Any]:
        """Return the message in the form of the Messages API; the result of a call becomes a message of the user.

        Args:
            notes: Receives a note on each part that the API cannot represent, as for `to_openai`.
        """
        from dial_client.messages.vendor_messages import write_anthropic

        notes = [] if notes is None else notes
        return write_anthropic(self._to_noted_dict(notes), notes)

    def _to_noted_dict(self, notes: list[str]) -> dict[str, Any]:
        data = self.to_dict()
        if "taint" in data:
            add_note(notes, "the mark of untrusted content")
        if "replaces" in data:
            add_note(notes, "the mark of a summary")
        return data

    @overload
    @classmethod
    def from_openai(cls, data: _Json, *, provider: str = "openai", notes: list[str] | None = None) -> Self: ...

    @overload
    @classmethod
    def from_openai(cls, data: _Items, *, provider: str = "openai", notes: list[str] | None = None) -> list[Self]: ...

    @classmethod
    def from_openai(
        cls, data: _Json | _Items, *, provider: str = "openai", notes: list[str] | None = None
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

        kept = [] if notes is None else notes
        messages = cls._read_all(data, "chat completions", lambda item, _: [read_openai(item, provider, kept)])
        return messages[0] if isinstance(data, Mapping) else messages

    @overload
    @classmethod
    def from_anthropic(cls, data: _Json, *, provider: str = "anthropic", notes: list[str] | None = None) -> Self: ...

    @overload
    @classmethod
    def from_anthropic(
        cls, data: _Items, *, provider: str = "anthropic", notes: list[str] | None = None
    ) -> list[Self]: ...

    @classmethod
    def from_anthropic(
        cls, data: _Json | _Items, *, provider: str = "anthropic", notes: list[str] | None = None
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

        kept = [] if notes is None else notes
        messages = cls._read_all(
            data, "the Messages API", lambda item, names: read_anthropic(item, names, provider, kept)
        )
        if not isinstance(data, Mapping):
            return messages
        if len(messages) != 1:
            raise ValueError(f"this is not one message but {len(messages)}: pass a list to get a list")
        return messages[0]

    @classmethod
    def _read_all(
        cls, data: Any, api: str, read: Callable[[Any, Mapping[str, str]], Sequence[dict[str, Any]]]
    ) -> list[Self]:
        """Return the messages of all items that `read` converts; results of calls get the names of their tools."""
        items = [data] if isinstance(data, Mapping) else data
        if not isinstance(items, Sequence) or isinstance(items, str | bytes | bytearray):
            raise ValueError(f"not a message, nor a list of messages: {type(data).__name__}")  # noqa: TRY004 - as any data
        names: dict[str, str] = {}
        messages: list[Self] = []
        for item in items:
            try:
                found = read(item, names)
            except (KeyError, TypeError, AttributeError) as error:
                raise ValueError(f"not a message of {api}: {error!r}") from error
            for message in found:
                names |= {call["id"]: call["name"] for call in message.get("tool_calls", ())}
                if message["role"] == "tool" and "name" not in message and message.get("tool_call_id") in names:
                    message["name"] = names[message["tool_call_id"]]
                messages.append(cls.from_dict(message))
        return messages


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


def _is_result(data: Mapping[str, Any]) -> bool:
    blocks = data["content"] if data["role"] == "user" and isinstance(data["content"], list) else ()
    return any(str(block["type"]) == "tool_result" for block in blocks)
