from dial_client.client.client_options import ApprovalPolicy as ApprovalPolicy
from dial_client.client.client_options import ClientOptions as ClientOptions
from dial_client.client.dial_client import DialClient as DialClient
from dial_client.conversations.chat_loop import Chat as Chat
from dial_client.conversations.compaction import Compaction as Compaction
from dial_client.conversations.conversation_manager import ConversationManager as ConversationManager
from dial_client.conversations.conversation_view import ConversationView as ConversationView
from dial_client.conversations.conversation_view import Versions as Versions
from dial_client.conversations.turn_input import Continuation as Continuation
from dial_client.conversations.turn_input import EditedMessage as EditedMessage
from dial_client.conversations.turn_input import Regeneration as Regeneration
from dial_client.durable.recovery import DurableTimings as DurableTimings
from dial_client.durable.results import DurableResult as DurableResult
from dial_client.durable.workflows import DurableTurns as DurableTurns
from dial_client.hooks.audit.entries import AuditEntry as AuditEntry
from dial_client.hooks.audit.entries import AuditRecorder as AuditRecorder
from dial_client.hooks.audit.entries import Origin as Origin
from dial_client.hooks.audit.log_writer import AuditLog as AuditLog
from dial_client.hooks.middleware import CallNext as CallNext
from dial_client.hooks.middleware import Middleware as Middleware
from dial_client.hooks.middleware import ModelReply as ModelReply
from dial_client.hooks.middleware import ToolCall as ToolCall
from dial_client.hooks.middleware import TurnRequest as TurnRequest
from dial_client.hooks.middleware import refuse as refuse
from dial_client.hooks.server_callbacks import Callbacks as Callbacks
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
from dial_client.messages.citations import Citation as Citation
from dial_client.messages.errors import ConfigError as ConfigError
from dial_client.messages.errors import ConversationBusy as ConversationBusy
from dial_client.messages.errors import ConversationError as ConversationError
from dial_client.messages.errors import ConversationNotFound as ConversationNotFound
from dial_client.messages.errors import DialError as DialError
from dial_client.messages.errors import LimitReached as LimitReached
from dial_client.messages.errors import LoginFailed as LoginFailed
from dial_client.messages.errors import MiddlewareError as MiddlewareError
from dial_client.messages.errors import OutputError as OutputError
from dial_client.messages.errors import ProviderError as ProviderError
from dial_client.messages.errors import ServerError as ServerError
from dial_client.messages.errors import ServerGone as ServerGone
from dial_client.messages.errors import ServerStartError as ServerStartError
from dial_client.messages.events import AppOpened as AppOpened
from dial_client.messages.events import Event as Event
from dial_client.messages.events import Finished as Finished
from dial_client.messages.events import InputReceived as InputReceived
from dial_client.messages.events import InputRequested as InputRequested
from dial_client.messages.events import MessageCompleted as MessageCompleted
from dial_client.messages.events import OutputDelta as OutputDelta
from dial_client.messages.events import ReasoningDelta as ReasoningDelta
from dial_client.messages.events import RoundStarted as RoundStarted
from dial_client.messages.events import ServerChanged as ServerChanged
from dial_client.messages.events import StatusChanged as StatusChanged
from dial_client.messages.events import TextDelta as TextDelta
from dial_client.messages.events import ToolCallFinished as ToolCallFinished
from dial_client.messages.events import ToolCallProgress as ToolCallProgress
from dial_client.messages.events import ToolCallStarted as ToolCallStarted
from dial_client.messages.limits import Limits as Limits
from dial_client.messages.limits import StopReason as StopReason
from dial_client.messages.mcp_apps import App as App
from dial_client.messages.mcp_apps import AppPolicy as AppPolicy
from dial_client.messages.mcp_apps import AppResource as AppResource
from dial_client.messages.message import Content as Content
from dial_client.messages.message import Failure as Failure
from dial_client.messages.message import FilePart as FilePart
from dial_client.messages.message import ImagePart as ImagePart
from dial_client.messages.message import Message as Message
from dial_client.messages.message import Part as Part
from dial_client.messages.message import ProviderState as ProviderState
from dial_client.messages.message import Role as Role
from dial_client.messages.message import TextPart as TextPart
from dial_client.messages.message import ToolCallRequest as ToolCallRequest
from dial_client.messages.message import ToolCallResult as ToolCallResult
from dial_client.messages.message import ToolSpec as ToolSpec
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
from dial_client.messages.model import ModelSettings as ModelSettings
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
from dial_client.messages.token_usage import Usage as Usage
from dial_client.messages.turn_result import ToolCallRecord as ToolCallRecord
from dial_client.messages.turn_result import Turn as Turn
from dial_client.messages.vendor_forms import to_anthropic as to_anthropic
from dial_client.messages.vendor_forms import to_openai as to_openai
from dial_client.providers.formats import NativeFormatHandler as NativeFormatHandler
from dial_client.providers.formats import ReActFormatHandler as ReActFormatHandler
from dial_client.providers.formats import XMLFormatHandler as XMLFormatHandler
from dial_client.providers.scripted import ScriptedProvider as ScriptedProvider
from dial_client.providers.vendor_clients import AnthropicProvider as AnthropicProvider
from dial_client.providers.vendor_clients import OpenAIProvider as OpenAIProvider
from dial_client.servers.notifications import Subscription as Subscription
from dial_client.servers.resources import Resource as Resource
from dial_client.servers.resources import ResourceContent as ResourceContent
from dial_client.servers.resources import ResourceTemplate as ResourceTemplate
from dial_client.servers.status import ServerState as ServerState
from dial_client.servers.status import ServerStatus as ServerStatus
from dial_client.settings.config_types import Api as Api
from dial_client.settings.config_types import ModelProfile as ModelProfile
from dial_client.settings.config_types import OAuthGrant as OAuthGrant
from dial_client.settings.config_types import OAuthSettings as OAuthSettings
from dial_client.settings.config_types import ServerSettings as ServerSettings
from dial_client.settings.config_types import Transport as Transport
from dial_client.settings.policy_config import Effect as Effect
from dial_client.settings.policy_config import PolicyRule as PolicyRule
from dial_client.stores.conversation_store import Conversation as Conversation
from dial_client.stores.conversation_store import ConversationStore as ConversationStore
from dial_client.stores.conversation_store import ConversationSummary as ConversationSummary
from dial_client.stores.conversation_store import Page as Page
from dial_client.stores.memory_store import MemoryStore as MemoryStore
from dial_client.stores.sql_store import SQLStore as SQLStore
from dial_client.tools.approval import Approval as Approval
from dial_client.tools.approval import ApprovalContext as ApprovalContext
from dial_client.tools.approval import Approver as Approver
from dial_client.tools.approval import Decision as Decision
from dial_client.tools.function_context import CallCancelled as CallCancelled
from dial_client.tools.function_context import Context as Context
from dial_client.tools.function_definition import FunctionTool as FunctionTool
from dial_client.tools.prompts import Prompt as Prompt
from dial_client.tools.prompts import PromptArgument as PromptArgument
from dial_client.turns.event_log import EventLog as EventLog
from dial_client.turns.mentions import Attached as Attached
from dial_client.turns.turn_handle import TurnHandle as TurnHandle
from dial_client.turns.turn_handle import TurnObserver as TurnObserver
from dial_client.turns.turn_keywords import TurnInput as TurnInput
from dial_client.turns.turn_keywords import TurnKeywords as TurnKeywords

__version__: str

__all__ = [
    "Approval",
    "ApprovalContext",
    "ApprovalPolicy",
    "Approver",
    "ArgumentsChunk",
    "Attached",
    "AuditEntry",
    "AuditLog",
    "AuditRecorder",
    "CallCancelled",
    "CallChunk",
    "CallNext",
    "Callbacks",
    "Chat",
    "Citation",
    "ClientOptions",
    "CommentaryChunk",
    "Completion",
    "ConfigError",
    "Content",
    "Context",
    "Conversation",
    "ConversationBusy",
    "ConversationError",
    "ConversationManager",
    "ConversationNotFound",
    "ConversationStore",
    "ConversationSummary",
    "Decision",
    "Delta",
    "DialClient",
    "DialError",
    "DurableResult",
    "DurableTimings",
    "DurableTurns",
    "Elicit",
    "Elicitation",
    "ElicitationAction",
    "ElicitationAnswer",
    "EndpointCallChunk",
    "Event",
    "EventLog",
    "Failure",
    "FilePart",
    "FinishReason",
    "Finished",
    "FunctionTool",
    "ImagePart",
    "InputReceived",
    "InputRequested",
    "Instruction",
    "InstructionSource",
    "LimitReached",
    "Limits",
    "Login",
    "LoginFailed",
    "LoginRequest",
    "MediaChunk",
    "MemoryStore",
    "Message",
    "MessageCompleted",
    "Middleware",
    "MiddlewareError",
    "ModelInfo",
    "ModelProfile",
    "ModelReply",
    "ModelRequest",
    "ModelSettings",
    "NativeFormatHandler",
    "OAuthGrant",
    "OAuthSettings",
    "OnLog",
    "OnWait",
    "Origin",
    "Page",
    "Part",
    "PolicyRule",
    "Preparable",
    "Prompt",
    "PromptArgument",
    "Provider",
    "ProviderError",
    "ProviderState",
    "ReActFormatHandler",
    "ReasoningChunk",
    "ReasoningDelta",
    "ReplyReader",
    "Resource",
    "ResourceContent",
    "ResourceTemplate",
    "Role",
    "RoundStarted",
    "SQLStore",
    "Sample",
    "SamplingReply",
    "SamplingRequest",
    "ScriptedProvider",
    "ServerChanged",
    "ServerError",
    "ServerGone",
    "ServerLog",
    "ServerSettings",
    "ServerStartError",
    "ServerState",
    "ServerStatus",
    "StatusChanged",
    "StopReason",
    "Subscription",
    "TextChunk",
    "TextDelta",
    "TextPart",
    "ToolCall",
    "ToolCallFinished",
    "ToolCallProgress",
    "ToolCallRecord",
    "ToolCallRequest",
    "ToolCallResult",
    "ToolCallStarted",
    "ToolChoice",
    "ToolFormat",
    "ToolFormatHandler",
    "ToolSpec",
    "Turn",
    "TurnHandle",
    "TurnInput",
    "TurnKeywords",
    "TurnObserver",
    "TurnRequest",
    "Usage",
    "XMLFormatHandler",
    "refuse",
]
