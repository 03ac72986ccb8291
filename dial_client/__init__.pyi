from dial_client.client.blocking_client import BlockingClient as BlockingClient
from dial_client.client.client_options import ApprovalPolicy as ApprovalPolicy
from dial_client.client.client_options import ClientOptions as ClientOptions
from dial_client.client.dial_client import DialClient as DialClient
from dial_client.conversations.chat_loop import Chat as Chat
from dial_client.conversations.conversation_manager import ConversationManager as ConversationManager
from dial_client.conversations.turn_input import ClientResults as ClientResults
from dial_client.conversations.turn_input import Continuation as Continuation
from dial_client.conversations.turn_input import EditedMessage as EditedMessage
from dial_client.conversations.turn_input import Regeneration as Regeneration
from dial_client.durable.workflows import DurableTurns as DurableTurns
from dial_client.hooks.audit.log_writer import AuditLog as AuditLog
from dial_client.hooks.server_callbacks import Callbacks as Callbacks
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
from dial_client.messages.errors import RequestRefused as RequestRefused
from dial_client.messages.errors import ServerError as ServerError
from dial_client.messages.errors import ServerGone as ServerGone
from dial_client.messages.errors import ServerStartError as ServerStartError
from dial_client.messages.errors import StoreUnavailable as StoreUnavailable
from dial_client.messages.events import AgentChanged as AgentChanged
from dial_client.messages.events import AgentEvent as AgentEvent
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
from dial_client.messages.message import FilePart as FilePart
from dial_client.messages.message import ImagePart as ImagePart
from dial_client.messages.message import Message as Message
from dial_client.messages.message import PendingApproval as PendingApproval
from dial_client.messages.message import Role as Role
from dial_client.messages.message import TextPart as TextPart
from dial_client.messages.message import ToolCallRequest as ToolCallRequest
from dial_client.messages.message import ToolCallResult as ToolCallResult
from dial_client.messages.message import ToolSpec as ToolSpec
from dial_client.messages.model import ModelSettings as ModelSettings
from dial_client.messages.token_usage import Usage as Usage
from dial_client.messages.turn_result import ToolCallRecord as ToolCallRecord
from dial_client.messages.turn_result import Turn as Turn
from dial_client.servers.status import ServerState as ServerState
from dial_client.servers.status import ServerStatus as ServerStatus
from dial_client.settings.agent import Agent as Agent
from dial_client.settings.config_types import ModelProfile as ModelProfile
from dial_client.settings.config_types import ServerSettings as ServerSettings
from dial_client.settings.configuration import load_config as load_config
from dial_client.stores.conversation_store import Conversation as Conversation
from dial_client.stores.conversation_store import ConversationSummary as ConversationSummary
from dial_client.stores.memory_store import MemoryStore as MemoryStore
from dial_client.stores.sql_store import SQLStore as SQLStore
from dial_client.tools.approval import Approval as Approval
from dial_client.tools.approval import ApprovalContext as ApprovalContext
from dial_client.tools.approval import Decision as Decision
from dial_client.tools.function_context import Context as Context
from dial_client.tools.function_context import ToolError as ToolError
from dial_client.tools.function_definition import FunctionTool as FunctionTool
from dial_client.turns.turn_handle import TurnHandle as TurnHandle
from dial_client.turns.turn_keywords import TurnInput as TurnInput
from dial_client.turns.turn_keywords import TurnKeywords as TurnKeywords

__version__: str

__all__ = [
    "Agent",
    "AgentChanged",
    "AgentEvent",
    "AppOpened",
    "Approval",
    "ApprovalContext",
    "ApprovalPolicy",
    "AuditLog",
    "BlockingClient",
    "Callbacks",
    "Chat",
    "Citation",
    "ClientOptions",
    "ClientResults",
    "ConfigError",
    "Context",
    "Continuation",
    "Conversation",
    "ConversationBusy",
    "ConversationError",
    "ConversationManager",
    "ConversationNotFound",
    "ConversationSummary",
    "Decision",
    "DialClient",
    "DialError",
    "DurableTurns",
    "EditedMessage",
    "Event",
    "FilePart",
    "Finished",
    "FunctionTool",
    "ImagePart",
    "InputReceived",
    "InputRequested",
    "LimitReached",
    "Limits",
    "LoginFailed",
    "MemoryStore",
    "Message",
    "MessageCompleted",
    "MiddlewareError",
    "ModelProfile",
    "ModelSettings",
    "OutputDelta",
    "OutputError",
    "PendingApproval",
    "ProviderError",
    "ReasoningDelta",
    "Regeneration",
    "RequestRefused",
    "Role",
    "RoundStarted",
    "SQLStore",
    "ServerChanged",
    "ServerError",
    "ServerGone",
    "ServerSettings",
    "ServerStartError",
    "ServerState",
    "ServerStatus",
    "StatusChanged",
    "StopReason",
    "StoreUnavailable",
    "TextDelta",
    "TextPart",
    "ToolCallFinished",
    "ToolCallProgress",
    "ToolCallRecord",
    "ToolCallRequest",
    "ToolCallResult",
    "ToolCallStarted",
    "ToolError",
    "ToolSpec",
    "Turn",
    "TurnHandle",
    "TurnInput",
    "TurnKeywords",
    "Usage",
    "load_config",
]
