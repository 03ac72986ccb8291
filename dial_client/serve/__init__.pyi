from dial_client.hooks.call_context import LaterCallers as LaterCallers
from dial_client.serve.mcp_endpoint import McpOptions as McpOptions
from dial_client.serve.metrics import ServiceMetrics as ServiceMetrics
from dial_client.serve.operations import Operations as Operations
from dial_client.serve.people.authentication import Authenticator as Authenticator
from dial_client.serve.people.authentication import Person as Person
from dial_client.serve.people.authentication import PersonalTokens as PersonalTokens
from dial_client.serve.people.authentication import Refusal as Refusal
from dial_client.serve.people.authentication import ResourceMetadata as ResourceMetadata
from dial_client.serve.people.owner_limits import LimitTable as LimitTable
from dial_client.serve.people.owner_limits import OwnerLimiter as OwnerLimiter
from dial_client.serve.people.owner_limits import OwnerLimits as OwnerLimits
from dial_client.serve.turns.human_input import PageUser as PageUser
from dial_client.serve.web_app import WebApp as WebApp
from dial_client.serve.web_app import create_app as create_app

__all__ = [
    "Authenticator",
    "LaterCallers",
    "LimitTable",
    "McpOptions",
    "Operations",
    "OwnerLimiter",
    "OwnerLimits",
    "PageUser",
    "Person",
    "PersonalTokens",
    "Refusal",
    "ResourceMetadata",
    "ServiceMetrics",
    "WebApp",
    "create_app",
]
