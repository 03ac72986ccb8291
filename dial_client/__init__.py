"""An MCP host: puts MCP servers behind any chat model.

Importing this package is cheap: each public name is loaded from its module when it is first used
(PEP 562; ``__init__.pyi`` says the same to type checkers, and a test holds the two together).
"""

from importlib import import_module

__version__ = "0.1.0"

_HOMES = {
    "client": ("DialClient",),
    "conversations.conversation_manager": ("ConversationManager",),
    "errors": (
        "ConfigError",
        "ConversationBusy",
        "ConversationNotFound",
        "DialError",
        "LimitReached",
        "LoginFailed",
        "ProviderError",
        "ServerError",
        "ServerGone",
        "ServerStartError",
    ),
    "events": (
        "Event",
        "Finished",
        "MessageCompleted",
        "InputReceived",
        "InputRequested",
        "ReasoningDelta",
        "RoundStarted",
        "ServerChanged",
        "StatusChanged",
        "TextDelta",
        "ToolCallFinished",
        "ToolCallProgress",
        "ToolCallStarted",
    ),
    "formats": ("NativeFormatHandler", "ReActFormatHandler", "XMLFormatHandler"),
    "limits": ("Limits", "StopReason"),
    "messages": (
        "FilePart",
        "ImagePart",
        "Message",
        "Role",
        "TextPart",
        "ToolCallRequest",
        "ToolCallResult",
        "ToolSpec",
        "Usage",
    ),
    "model": ("ModelRequest", "Provider", "ToolFormat", "ToolFormatHandler"),
    "callbacks.oauth_callbacks": ("Login", "LoginRequest"),
    "callbacks.server_callbacks": (
        "Elicit",
        "Elicitation",
        "ElicitationAction",
        "ElicitationAnswer",
        "OnLog",
        "Sample",
        "SamplingReply",
        "SamplingRequest",
        "ServerLog",
    ),
    "providers.scripted": ("ScriptedProvider",),
    "servers.notifications": ("Subscription",),
    "servers.resources": ("Resource", "ResourceContent", "ResourceTemplate"),
    "servers.status": ("ServerState", "ServerStatus"),
    "stores.conversation_store": ("Conversation", "ConversationStore", "ConversationSummary", "Page"),
    "stores.memory_store": ("MemoryStore",),
    "stores.sql_store": ("SQLStore",),
    "tools.approval": ("Approval", "ApprovalContext", "Approver", "Decision"),
    "tools.prompts": ("Prompt", "PromptArgument"),
    "turn_result": ("ToolCallRecord", "Turn"),
    "turns.mentions": ("Attached",),
    "turns.event_log": ("EventLog",),
    "turns.turn_handle": ("TurnHandle", "TurnObserver"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME_OF)  # noqa: PLE0605 - computed, so that there is one list and not two


def __getattr__(name: str) -> object:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
