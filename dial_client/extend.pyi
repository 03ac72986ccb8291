from dial_client.client.config_changes import ConfigChanges as ConfigChanges
from dial_client.conversations.compaction import Compaction as Compaction
from dial_client.conversations.conversation_view import ConversationView as ConversationView
from dial_client.conversations.conversation_view import Versions as Versions
from dial_client.durable.rows import DurableResult as DurableResult
from dial_client.durable.workflows import DurableTimings as DurableTimings
from dial_client.hooks.audit.entries import AuditEntry as AuditEntry
from dial_client.hooks.audit.entries import AuditRecorder as AuditRecorder
from dial_client.hooks.audit.entries import Origin as Origin
from dial_client.hooks.middleware import CallNext as CallNext
from dial_client.hooks.middleware import Middleware as Middleware
from dial_client.hooks.middleware import ModelReply as ModelReply
from dial_client.hooks.middleware import ToolCall as ToolCall
from dial_client.hooks.middleware import TurnRequest as TurnRequest
from dial_client.hooks.middleware import refuse as refuse
from dial_client.hooks.owners import CredentialProvider as CredentialProvider
from dial_client.hooks.server_callbacks import Elicit as Elicit
from dial_client.hooks.server_callbacks import Elicitation as Elicitation
from dial_client.hooks.server_callbacks import ElicitationAction as ElicitationAction
from dial_client.hooks.server_callbacks import ElicitationAnswer as ElicitationAnswer
from dial_client.hooks.server_callbacks import Login as Login
from dial_client.hooks.server_callbacks import LoginRequest as LoginRequest
from dial_client.hooks.server_callbacks import OnLog as OnLog
from dial_client.hooks.server_callbacks import Sample as Sample
from dial_client.hooks.server_callbacks import SamplingReply as SamplingReply
from dial_client.hooks.server_callbacks import SamplingRequest as SamplingRequest
from dial_client.hooks.server_callbacks import ServerLog as ServerLog
from dial_client.messages.mcp_apps import App as App
from dial_client.messages.mcp_apps import AppPolicy as AppPolicy
from dial_client.messages.mcp_apps import AppResource as AppResource
from dial_client.messages.message import Content as Content
from dial_client.messages.message import Failure as Failure
from dial_client.messages.message import Part as Part
from dial_client.messages.message import ProviderState as ProviderState
from dial_client.messages.model import AnswerConstraining as AnswerConstraining
from dial_client.messages.model import ArgumentsChunk as ArgumentsChunk
from dial_client.messages.model import CallChunk as CallChunk
from dial_client.messages.model import CommentaryChunk as CommentaryChunk
from dial_client.messages.model import Completion as Completion
from dial_client.messages.model import Delta as Delta
from dial_client.messages.model import EndpointCallChunk as EndpointCallChunk
from dial_client.messages.model import FinishReason as FinishReason
from dial_client.messages.model import Instruction as Instruction
from dial_client.messages.model import InstructionSource as InstructionSource
from dial_client.messages.model import MediaChunk as MediaChunk
from dial_client.messages.model import ModelInfo as ModelInfo
from dial_client.messages.model import ModelRequest as ModelRequest
from dial_client.messages.model import OnWait as OnWait
from dial_client.messages.model import OutputFormat as OutputFormat
from dial_client.messages.model import Preparable as Preparable
from dial_client.messages.model import Provider as Provider
from dial_client.messages.model import ReasoningChunk as ReasoningChunk
from dial_client.messages.model import ReplyReader as ReplyReader
from dial_client.messages.model import StructuredOutput as StructuredOutput
from dial_client.messages.model import TextChunk as TextChunk
from dial_client.messages.model import ToolChoice as ToolChoice
from dial_client.messages.model import ToolFormat as ToolFormat
from dial_client.messages.model import ToolFormatHandler as ToolFormatHandler
from dial_client.messages.vendor_forms import to_anthropic as to_anthropic
from dial_client.messages.vendor_forms import to_openai as to_openai
from dial_client.providers.formats import NativeFormatHandler as NativeFormatHandler
from dial_client.providers.formats import ReActFormatHandler as ReActFormatHandler
from dial_client.providers.formats import XMLFormatHandler as XMLFormatHandler
from dial_client.providers.vendor_clients import AnthropicProvider as AnthropicProvider
from dial_client.providers.vendor_clients import OpenAIProvider as OpenAIProvider
from dial_client.servers.notifications import Subscription as Subscription
from dial_client.servers.oauth.login_stores import FolderLogins as FolderLogins
from dial_client.servers.oauth.login_stores import LoginStore as LoginStore
from dial_client.servers.oauth.login_stores import MemoryLogins as MemoryLogins
from dial_client.servers.resources import Resource as Resource
from dial_client.servers.resources import ResourceContent as ResourceContent
from dial_client.servers.resources import ResourceTemplate as ResourceTemplate
from dial_client.settings.config_types import Api as Api
from dial_client.settings.config_types import OAuthGrant as OAuthGrant
from dial_client.settings.config_types import OAuthSettings as OAuthSettings
from dial_client.settings.config_types import Settings as Settings
from dial_client.settings.config_types import Transport as Transport
from dial_client.settings.policy_config import Effect as Effect
from dial_client.settings.policy_config import PolicyRule as PolicyRule
from dial_client.stores.conversation_store import ConversationStore as ConversationStore
from dial_client.stores.conversation_store import Page as Page
from dial_client.tools.approval import Approver as Approver
from dial_client.tools.function_context import CallCancelled as CallCancelled
from dial_client.tools.function_tools import OnToolError as OnToolError
from dial_client.tools.prompts import Prompt as Prompt
from dial_client.tools.prompts import PromptArgument as PromptArgument
from dial_client.turns.event_log import EventLog as EventLog
from dial_client.turns.mentions import Attached as Attached
from dial_client.turns.turn_handle import TurnObserver as TurnObserver

__all__ = [
    "AnswerConstraining",
    "AnthropicProvider",
    "Api",
    "App",
    "AppPolicy",
    "AppResource",
    "Approver",
    "ArgumentsChunk",
    "Attached",
    "AuditEntry",
    "AuditRecorder",
    "CallCancelled",
    "CallChunk",
    "CallNext",
    "CommentaryChunk",
    "Compaction",
    "Completion",
    "ConfigChanges",
    "Content",
    "ConversationStore",
    "ConversationView",
    "CredentialProvider",
    "Delta",
    "DurableResult",
    "DurableTimings",
    "Effect",
    "Elicit",
    "Elicitation",
    "ElicitationAction",
    "ElicitationAnswer",
    "EndpointCallChunk",
    "EventLog",
    "Failure",
    "FinishReason",
    "FolderLogins",
    "Instruction",
    "InstructionSource",
    "Login",
    "LoginRequest",
    "LoginStore",
    "MediaChunk",
    "MemoryLogins",
    "Middleware",
    "ModelInfo",
    "ModelReply",
    "ModelRequest",
    "NativeFormatHandler",
    "OAuthGrant",
    "OAuthSettings",
    "OnLog",
    "OnToolError",
    "OnWait",
    "OpenAIProvider",
    "Origin",
    "OutputFormat",
    "Page",
    "Part",
    "PolicyRule",
    "Preparable",
    "Prompt",
    "PromptArgument",
    "Provider",
    "ProviderState",
    "ReActFormatHandler",
    "ReasoningChunk",
    "ReplyReader",
    "Resource",
    "ResourceContent",
    "ResourceTemplate",
    "Sample",
    "SamplingReply",
    "SamplingRequest",
    "ServerLog",
    "Settings",
    "StructuredOutput",
    "Subscription",
    "TextChunk",
    "ToolCall",
    "ToolChoice",
    "ToolFormat",
    "ToolFormatHandler",
    "Transport",
    "TurnObserver",
    "TurnRequest",
    "Versions",
    "XMLFormatHandler",
    "refuse",
    "to_anthropic",
    "to_openai",
]
