"""An MCP host: puts MCP servers behind any chat model.

Importing this package is cheap: each public name is imported from its module when it is first used (PEP 562).
``__init__.pyi`` lists the same names for type checkers; a test compares the two lists.
"""

from importlib import import_module

__version__ = "0.3.0"

_MODULES = {
    "client.client_options": ("ApprovalPolicy", "ClientOptions"),
    "client.dial_client": ("DialClient",),
    "conversations.chat_loop": ("Chat",),
    "conversations.conversation_manager": ("ConversationManager",),
    "conversations.turn_input": ("Continuation", "EditedMessage", "Regeneration"),
    "durable.workflows": ("DurableTurns",),
    "hooks.audit.log_writer": ("AuditLog",),
    "hooks.server_callbacks": ("Callbacks",),
    "messages.citations": ("Citation",),
    "messages.errors": (
        "ConfigError",
        "ConversationBusy",
        "ConversationError",
        "ConversationNotFound",
        "DialError",
        "LimitReached",
        "LoginFailed",
        "MiddlewareError",
        "OutputError",
        "ProviderError",
        "ServerError",
        "ServerGone",
        "ServerStartError",
    ),
    "messages.events": (
        "AppOpened",
        "Event",
        "Finished",
        "InputReceived",
        "InputRequested",
        "MessageCompleted",
        "OutputDelta",
        "ReasoningDelta",
        "RoundStarted",
        "ServerChanged",
        "StatusChanged",
        "TextDelta",
        "ToolCallFinished",
        "ToolCallProgress",
        "ToolCallStarted",
    ),
    "messages.limits": ("Limits", "StopReason"),
    "messages.message": (
        "FilePart",
        "ImagePart",
        "Message",
        "Role",
        "TextPart",
        "ToolCallRequest",
        "ToolCallResult",
        "ToolSpec",
    ),
    "messages.model": ("ModelSettings",),
    "messages.token_usage": ("Usage",),
    "messages.turn_result": ("ToolCallRecord", "Turn"),
    "servers.status": ("ServerState", "ServerStatus"),
    "settings.config_types": ("ModelProfile", "ServerSettings"),
    "stores.conversation_store": ("Conversation", "ConversationSummary"),
    "stores.memory_store": ("MemoryStore",),
    "stores.sql_store": ("SQLStore",),
    "tools.approval": ("Approval", "ApprovalContext", "Decision"),
    "tools.function_context": ("Context",),
    "tools.function_definition": ("FunctionTool",),
    "turns.turn_handle": ("TurnHandle",),
    "turns.turn_keywords": ("TurnInput", "TurnKeywords"),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

__all__ = sorted(_MODULE_OF)  # noqa: PLE0605 - computed, so that there is one list and not two


def __getattr__(name: str) -> object:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
