"""An MCP host: puts MCP servers behind any chat model.

Importing this package is cheap: each public name is imported from its module when it is first used (PEP 562).
``__init__.pyi`` lists the same names for type checkers; a test compares the two lists.
"""

from importlib import import_module

__version__ = "0.2.0"

_MODULES = {
    "hooks.audit.entries": (
        "AuditEntry",
        "AuditRecorder",
        "Origin",
    ),
    "hooks.audit.log_writer": ("AuditLog",),
    "hooks.server_callbacks": (
        "Callbacks",
        "Elicit",
        "Elicitation",
        "ElicitationAction",
        "ElicitationAnswer",
        "Login",
        "LoginRequest",
        "OnLog",
        "Sample",
        "SamplingReply",
        "SamplingRequest",
        "ServerLog",
    ),
    "messages.citations": ("Citation",),
    "client.dial_client": ("DialClient",),
    "client.client_options": (
        "ApprovalPolicy",
        "ClientOptions",
    ),
    "conversations.compaction": ("Compaction",),
    "conversations.conversation_manager": ("ConversationManager",),
    "conversations.conversation_view": (
        "ConversationView",
        "Versions",
    ),
    "conversations.turn_input": (
        "Continuation",
        "EditedMessage",
        "Regeneration",
    ),
    "durable.results": ("DurableResult",),
    "durable.recovery": ("DurableTimings",),
    "durable.workflows": ("DurableTurns",),
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
    "providers.formats": (
        "NativeFormatHandler",
        "ReActFormatHandler",
        "XMLFormatHandler",
    ),
    "messages.limits": (
        "Limits",
        "StopReason",
    ),
    "messages.mcp_apps": (
        "App",
        "AppPolicy",
        "AppResource",
    ),
    "messages.message": (
        "Content",
        "Failure",
        "FilePart",
        "ImagePart",
        "Message",
        "Part",
        "ProviderState",
        "Role",
        "TextPart",
        "ToolCallRequest",
        "ToolCallResult",
        "ToolSpec",
    ),
    "hooks.middleware": (
        "CallNext",
        "Middleware",
        "ModelReply",
        "ToolCall",
        "TurnRequest",
        "refuse",
    ),
    "messages.model": (
        "AnswerConstraining",
        "ArgumentsChunk",
        "CallChunk",
        "CommentaryChunk",
        "Completion",
        "Delta",
        "EndpointCallChunk",
        "FinishReason",
        "Instruction",
        "InstructionSource",
        "MediaChunk",
        "ModelInfo",
        "ModelRequest",
        "ModelSettings",
        "OnWait",
        "OutputFormat",
        "Preparable",
        "Provider",
        "ReasoningChunk",
        "ReplyReader",
        "StructuredOutput",
        "TextChunk",
        "ToolChoice",
        "ToolFormat",
        "ToolFormatHandler",
    ),
    "providers.scripted": ("ScriptedProvider",),
    "providers.vendor_clients": (
        "AnthropicProvider",
        "OpenAIProvider",
    ),
    "servers.notifications": ("Subscription",),
    "servers.resources": (
        "Resource",
        "ResourceContent",
        "ResourceTemplate",
    ),
    "servers.status": (
        "ServerState",
        "ServerStatus",
    ),
    "settings.config_types": (
        "Api",
        "ModelProfile",
        "OAuthGrant",
        "OAuthSettings",
        "ServerSettings",
        "Transport",
    ),
    "settings.policy_config": (
        "Effect",
        "PolicyRule",
    ),
    "stores.conversation_store": (
        "Conversation",
        "ConversationStore",
        "ConversationSummary",
        "Page",
    ),
    "stores.memory_store": ("MemoryStore",),
    "stores.sql_store": ("SQLStore",),
    "messages.token_usage": ("Usage",),
    "tools.approval": (
        "Approval",
        "ApprovalContext",
        "Approver",
        "Decision",
    ),
    "tools.function_context": (
        "CallCancelled",
        "Context",
    ),
    "tools.function_definition": ("FunctionTool",),
    "tools.prompts": (
        "Prompt",
        "PromptArgument",
    ),
    "turns.turn_keywords": ("TurnInput", "TurnKeywords"),
    "messages.turn_result": (
        "ToolCallRecord",
        "Turn",
    ),
    "turns.event_log": ("EventLog",),
    "conversations.chat_loop": ("Chat",),
    "turns.mentions": ("Attached",),
    "turns.turn_handle": (
        "TurnHandle",
        "TurnObserver",
    ),
    "messages.vendor_forms": (
        "to_anthropic",
        "to_openai",
    ),
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
