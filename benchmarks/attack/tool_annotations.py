"""The effects of each tool of the suites, and the tools whose results are untrusted. Written by hand from the sources.

*Annotations* (MCP 2025-11-25, ``ToolAnnotations``). A tool is read-only if a call does not change the suite's
environment; ``get_unread_emails`` is not read-only, because it marks the mails as read. Its world is closed if only the
user's own accounts, or the service that runs the tool, learn of the call: searching mails, looking up a hotel in the
booking service's catalog. Fetching a web page tells its owner the requested URL, and so carries data out: its world is
open. Tools that reach other people (mail, invitations, messages, shared files, payments) are open, too. A tool is
destructive if it replaces or removes existing data.

*Untrusted* are the tools whose results have text of other people: mails, invitations, shared files, web pages, messages
and the names of channels and users, the entries and reviews of a booking service, bills, subjects of incoming
transfers. Tools that change a file or an event are untrusted if they return its whole text. Tools that return only text
of the user or of the program itself are trusted: contacts, the account, planned or just sent items.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Effect:
    """The annotations of a tool."""

    read_only: bool
    destructive: bool
    open_world: bool

    @property
    def harmless(self) -> bool:
        """True if a call changes nothing and sends no data to other people."""
        return self.read_only and not self.open_world


LOOKS = Effect(read_only=True, destructive=False, open_world=False)
FETCHES = Effect(read_only=True, destructive=False, open_world=True)
ADDS = Effect(read_only=False, destructive=False, open_world=False)
REPLACES = Effect(read_only=False, destructive=True, open_world=False)
SENDS = Effect(read_only=False, destructive=False, open_world=True)
REPLACES_AND_SENDS = Effect(read_only=False, destructive=True, open_world=True)

_CALENDAR: Mapping[str, Effect] = {
    "search_calendar_events": LOOKS,
    "get_day_calendar_events": LOOKS,
    "create_calendar_event": SENDS,
    "cancel_calendar_event": REPLACES_AND_SENDS,
}
_DIRECTORY = (
    "get_all_hotels_in_city",
    "get_hotels_prices",
    "get_rating_reviews_for_hotels",
    "get_hotels_address",
    "get_all_restaurants_in_city",
    "get_cuisine_type_for_restaurants",
    "get_restaurants_address",
    "get_rating_reviews_for_restaurants",
    "get_dietary_restrictions_for_all_restaurants",
    "get_contact_information_for_restaurants",
    "get_price_for_restaurants",
    "check_restaurant_opening_hours",
    "get_all_car_rental_companies_in_city",
    "get_car_types_available",
    "get_rating_reviews_for_car_rental",
    "get_car_fuel_options",
    "get_car_rental_address",
    "get_car_price_per_day",
    "get_flight_information",
)

EFFECTS: Mapping[str, Mapping[str, Effect]] = {
    "banking": {
        "get_iban": LOOKS,
        "get_balance": LOOKS,
        "get_most_recent_transactions": LOOKS,
        "get_scheduled_transactions": LOOKS,
        "read_file": LOOKS,
        "get_user_info": LOOKS,
        "send_money": SENDS,
        "schedule_transaction": SENDS,
        "update_scheduled_transaction": REPLACES_AND_SENDS,
        "update_password": REPLACES,
        "update_user_info": REPLACES,
    },
    "slack": {
        "get_channels": LOOKS,
        "read_channel_messages": LOOKS,
        "read_inbox": LOOKS,
        "get_users_in_channel": LOOKS,
        "get_webpage": FETCHES,
        "post_webpage": REPLACES_AND_SENDS,
        "send_direct_message": SENDS,
        "send_channel_message": SENDS,
        "add_user_to_channel": SENDS,
        "invite_user_to_slack": SENDS,
        "remove_user_from_slack": REPLACES_AND_SENDS,
    },
    "travel": {
        **dict.fromkeys(_DIRECTORY, LOOKS),
        **_CALENDAR,
        "get_user_information": LOOKS,
        "reserve_hotel": SENDS,
        "reserve_car_rental": SENDS,
        "reserve_restaurant": SENDS,
        "send_email": SENDS,
    },
    "workspace": {
        **_CALENDAR,
        "send_email": SENDS,
        "delete_email": REPLACES,
        "get_unread_emails": ADDS,
        "get_sent_emails": LOOKS,
        "get_received_emails": LOOKS,
        "get_draft_emails": LOOKS,
        "search_emails": LOOKS,
        "search_contacts_by_name": LOOKS,
        "search_contacts_by_email": LOOKS,
        "get_current_day": LOOKS,
        "reschedule_calendar_event": REPLACES_AND_SENDS,
        "add_calendar_event_participants": SENDS,
        "append_to_file": ADDS,
        "create_file": ADDS,
        "delete_file": REPLACES,
        "search_files_by_filename": LOOKS,
        "get_file_by_id": LOOKS,
        "list_files": LOOKS,
        "share_file": SENDS,
        "search_files": LOOKS,
    },
}
"""The effects of all tools, by suite."""

UNTRUSTED: Mapping[str, tuple[str, ...]] = {
    "banking": ("get_most_recent_transactions", "read_file"),
    "slack": ("get_channels", "read_channel_messages", "read_inbox", "get_users_in_channel", "get_webpage"),
    "travel": (*_DIRECTORY, "search_calendar_events", "get_day_calendar_events"),
    "workspace": (
        "get_unread_emails",
        "get_sent_emails",
        "get_received_emails",
        "get_draft_emails",
        "search_emails",
        "search_calendar_events",
        "get_day_calendar_events",
        "reschedule_calendar_event",
        "add_calendar_event_participants",
        "append_to_file",
        "delete_file",
        "search_files_by_filename",
        "get_file_by_id",
        "list_files",
        "share_file",
        "search_files",
    ),
}
"""The untrusted tools, by suite."""
