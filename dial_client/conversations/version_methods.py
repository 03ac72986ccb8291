"""The methods that show, switch and remove the versions of a conversation."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from dial_client.client.dial_client import DialClient
from dial_client.conversations.branches import build_deletion, build_switch
from dial_client.conversations.conversation_settings import check_limits, check_settings, to_turn_settings
from dial_client.conversations.conversation_view import ConversationView, build_view, hash_state, list_messages
from dial_client.conversations.history_editor import HistoryEditor
from dial_client.conversations.message_tree import build_entry
from dial_client.messages.errors import ConfigError
from dial_client.messages.message import EntryKind
from dial_client.stores.conversation_store import ConversationStore
from dial_client.stores.sql_store import SQLStore


class VersionMethods:
    """The methods of `ConversationManager` for versions of messages, and for settings."""

    _store: ConversationStore
    _editor: HistoryEditor
    locked_settings: frozenset[str]
    _dial: DialClient

    async def view(self, conversation_id: str) -> ConversationView:
        """Return a conversation with the positions and versions of its messages, and the details of its turns.

        Raises:
            ConversationNotFound: The conversation does not exist.
        """
        return build_view(await self._store.get(conversation_id))

    async def list_messages(self, conversation_id: str) -> list[dict[str, Any]]:
        """Return the messages of all versions (`conversation_view.list_messages`).

        Raises:
            ConversationNotFound: The conversation does not exist.
        """
        return list_messages(await self._store.get(conversation_id))

    async def read_state(self, conversation_id: str) -> str:
        """Return the conversation's `ConversationView.state`; a `SQLStore` computes it without reading the messages.

        Raises:
            ConversationNotFound: The conversation does not exist.
        """
        if isinstance(self._store, SQLStore):
            return hash_state(*await self._store.read_state(conversation_id))
        stored = await self._store.get(conversation_id)
        return hash_state(stored.turn, stored.running, stored.message_count, stored.title)

    async def switch(self, conversation_id: str, position: int) -> bool:
        """Show the latest version of the conversation that contains the message at `position`.

        Returns:
            True if the shown version has changed; False if the message was already shown.

        Raises:
            ConversationNotFound: The conversation does not exist.
            ConversationBusy: A turn of the conversation is running.
            ConfigError: There is no message at `position`.
        """
        return await self._editor.edit(conversation_id, partial(build_switch, position=position))

    async def remove_message(self, conversation_id: str, position: int) -> None:
        """Remove a question with all its answers, or one answer with its calls; later exchanges are kept.

        The messages stay in the store, but no version shows them, and they are not sent to a model. Raises as `switch`.
        """
        await self._editor.edit(conversation_id, partial(build_deletion, position=position))

    async def update_settings(self, conversation_id: str, settings: Mapping[str, Any]) -> None:
        """Replace all settings of a conversation, from its next turn on.

        Args:
            conversation_id: The id of the conversation.
            settings: The settings, as `conversation_settings` describes them; empty for the client's settings.

        Raises:
            ConversationNotFound: The conversation does not exist.
            ConfigError: A setting is unknown, wrong, locked or above a limit of the client, or the model is unknown.
        """
        checked = check_settings(settings)
        if locked := sorted(self.locked_settings.intersection(checked)):
            raise ConfigError(f"the setting {locked[0]!r} is locked")
        check_limits(checked, self._dial.limits)
        turn_settings, _ = to_turn_settings(checked, self._dial.limits)
        self._dial.model.select(turn_settings)  # raises what the next turn would
        await self._store.append(conversation_id, [build_entry(EntryKind.SETTINGS, checked)])
