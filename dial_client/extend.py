"""The names for providers, tool formats, stores, approvers, callbacks and middleware of your own.

`dial_client` has the names that most programs need, and `dial_client.testing` those for tests. Importing this module is
cheap: each name is imported from its module when it is first used. ``extend.pyi`` has the same names for type checkers.
"""

from importlib import import_module

_MODULES = {
    "conversations.compaction": ("Compaction",),
    "conversations.conversation_view": ("ConversationView", "Versions"),
    "durable.recovery": ("DurableTimings",),
    "durable.results": ("DurableResult",),
    "hooks.audit.entries": ("AuditEntry", "AuditRecorder", "Origin"),
    "hooks.middleware": ("CallNext", "Middleware", "ModelReply", "ToolCall", "TurnRequest", "refuse"),
    "hooks.server_callbacks": (
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
    "messages.mcp_apps": ("App", "AppPolicy", "AppResource"),
    "messages.message": ("Content", "Failure", "Part", "ProviderState"),
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
    "messages.vendor_forms": ("to_anthropic", "to_openai"),
    "providers.formats": ("NativeFormatHandler", "ReActFormatHandler", "XMLFormatHandler"),
    "providers.vendor_clients": ("AnthropicProvider", "OpenAIProvider"),
    "servers.notifications": ("Subscription",),
    "servers.resources": ("Resource", "ResourceContent", "ResourceTemplate"),
    "settings.config_types": ("Api", "OAuthGrant", "OAuthSettings", "Transport"),
    "settings.policy_config": ("Effect", "PolicyRule"),
    "stores.conversation_store": ("ConversationStore", "Page"),
    "tools.approval": ("Approver",),
    "tools.function_context": ("CallCancelled",),
    "tools.prompts": ("Prompt", "PromptArgument"),
    "turns.event_log": ("EventLog",),
    "turns.mentions": ("Attached",),
    "turns.turn_handle": ("TurnObserver",),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

__all__ = sorted(_MODULE_OF)  # noqa: PLE0605 - computed, so that there is one list and not two


def __getattr__(name: str) -> object:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"dial_client.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
