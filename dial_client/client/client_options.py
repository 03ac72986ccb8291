"""Options of a `DialClient` that belong together, the keywords of `DialClient.from_config`, and foreign names.

Foreign names are those of other libraries for arguments and methods: the errors of `DialClient` say what to use here.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypedDict

from dial_client.hooks.audit.entries import AuditRecorder, Origin
from dial_client.hooks.middleware import Middleware
from dial_client.hooks.owners import CredentialProvider
from dial_client.hooks.server_callbacks import Callbacks
from dial_client.messages.limits import Limits
from dial_client.messages.message import ToolSpec
from dial_client.messages.model import Provider, ToolFormat, ToolFormatHandler
from dial_client.servers.oauth.login_stores import LoginStore
from dial_client.settings.agent import AgentSource
from dial_client.settings.argument_types import check_folders, check_items
from dial_client.settings.config_types import ModelProfile, SkillFolder
from dial_client.settings.policy_config import EVERYTHING, Policy
from dial_client.tools.approval import Approver, Decisions
from dial_client.tools.approval_mode import ApprovalMode
from dial_client.tools.background_calls import BackgroundCalls
from dial_client.tools.function_definition import Function, FunctionTool
from dial_client.tools.function_tools import OnToolError
from dial_client.turns.turn_handle import TurnObserver
from dial_client.turns.turn_keywords import TurnKeywords

# The path of a folder; True for the user's default folder, False for no folder.
Directory = bool | str | os.PathLike[str]
# The path of a folder with a skill, or with several.
Skill = str | os.PathLike[str] | SkillFolder
# Where logins are stored; False for memory.
Logins = Directory | LoginStore


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalPolicy:
    """Which tool calls run without approval, which never run, and where the approver's answers are stored.

    Raises:
        TypeError: `allow` or `deny` is no list of patterns, or another field has the wrong type.
        ValueError: A pattern of `allow` can match no tool, or there is no such mode.
    """

    # What precedes the names of the patterns in warnings and in the audit log: they are options of a command line, too.
    prefix: ClassVar[str] = ""

    allow: Iterable[str] = ()
    """Patterns of tools that run without approval: ``time/*``."""
    deny: Iterable[str] = ()
    """Patterns of tools that never run."""
    rules: Policy | str | os.PathLike[str] | list[Any] = ()
    """A file of rules, or a list in the form of ``"policy"`` in servers.json. These rules precede the rules of the file
    that `DialClient.from_config` reads."""
    grants: Directory = False
    """The folder that stores the answers ``always``; without a folder they apply until the client is closed."""
    tool_pins: Directory = False
    """The folder that stores the definitions of approved tools. A tool whose definition has changed needs a new
    approval, even if a rule allows it; without an approver its calls are denied."""
    concurrent: bool = False
    """True if the approver may be asked about several calls at the same time."""
    single_user: bool = False
    """True if one person answers for all turns, as in a terminal: the answer ``session`` then applies to all of them,
    not only to those of the same owner or conversation."""
    mode: ApprovalMode | str = ApprovalMode.ASK
    """What happens to calls that no rule and no grant decides: ``ask``, ``read``, ``plan`` or ``auto``, see
    `ApprovalMode`. `DialClient.approvals.set_mode` changes it. Without an approver ``ask`` allows such calls, and
    ``read`` and ``plan`` deny them."""

    def __post_init__(self) -> None:
        for name, patterns in (("allow", self.allow), ("deny", self.deny)):
            if isinstance(patterns, str):
                raise TypeError(f"{name} takes a list of patterns, not a string: {name}=[{patterns!r}]")
            given: Any = patterns  # callers without a type checker may pass any type
            object.__setattr__(self, name, tuple(given) if isinstance(given, Iterable) else given)
        check_items(allow=(self.allow, str), deny=(self.deny, str))
        if not self.prefix:
            for pattern in self.allow:
                if "/" not in pattern and pattern != EVERYTHING:
                    example = f"SERVER/{pattern or 'TOOL'}"
                    way_out = f"a pattern is SERVER/TOOL, such as {example!r}, or {EVERYTHING!r}"
                    raise ValueError(f"allow=[{pattern!r}] allows nothing: {way_out}")
        check_folders(grants=self.grants, tool_pins=self.tool_pins)
        object.__setattr__(self, "mode", ApprovalMode(self.mode))


class StartKeywords(TurnKeywords, total=False):
    """The keywords of `DialClient.start`, which describes them, without ``output_type``."""

    stream: bool
    stream_events: bool
    client_tools: Sequence[ToolSpec]
    observers: Sequence[TurnObserver]
    origin: Origin | None
    tool_format: str | None
    hidden_tools: Collection[str]
    decisions: Decisions | None
    plain: bool
    background: BackgroundCalls | None


class ClientOptions(TypedDict, total=False):
    """The keyword arguments of `DialClient`, for functions that pass them on."""

    tool_format: ToolFormat | ToolFormatHandler | str | None
    guidance: str | None
    base_url: str | None
    models: Mapping[str, ModelProfile | Mapping[str, Any]] | None
    fallback_models: Sequence[str | Provider]
    status: Literal["template", "model"]
    status_model: str | Provider | None
    callbacks: Callbacks | None
    cache_dir: Directory
    logins: Logins
    credentials: CredentialProvider | None
    resource_tools: bool
    startup_patience: float
    tools: Sequence[Function | FunctionTool]
    approve: Approver | None
    approval: ApprovalPolicy | None
    audit: AuditRecorder | None
    system: str | None
    limits: Limits | None
    on_limit: Literal["answer", "raise"] | None
    middleware: Sequence[Middleware]
    on_tool_error: OnToolError | None
    skills: Sequence[Skill]
    agents: Sequence[AgentSource]
    record: str | os.PathLike[str] | None


# The argument here, by the foreign name.
FOREIGN_ARGUMENTS = {
    "instructions": "system",
    "system_prompt": "system",
    "mcp_servers": "servers",
    "toolsets": "tools for functions, servers for MCP servers",
    "functions": "tools",
    "api_key": "models={NAME: {…, 'api_key': …}}",
    "temperature": "settings=ModelSettings(temperature=…)",
    "max_tokens": "settings=ModelSettings(max_tokens=…)",
    "timeout": "limits=Limits(timeout=…)",
    "max_turns": "limits=Limits(max_depth=…)",
    "output_type": "output_type of a turn",
}
# What to use here, by the foreign name of a method or attribute.
FOREIGN_ATTRIBUTES = {
    "call_tool": "`await dial.call(name, arguments)`",
    "list_tools": "`dial.tools`, which is a tuple",
    "get_tools": "`dial.tools`, which is a tuple",
    "chat": "`await dial.run(text)`, or `dial.conversation(store)`",
    "query": "`await dial.run(text)`",
    "ask": "`await dial.run(text)`",
    "invoke": "`await dial.run(text)`",
    "run_stream": "`async for event in dial.stream(text)`",
    "run_streamed": "`async for event in dial.stream(text)`",
    "astream": "`async for event in dial.stream(text)`",
    "connect": "`async with DialClient(…) as dial`",
    "initialize": "`async with DialClient(…) as dial`",
    "close": "`await dial.aclose()`",
}
WITH_STATEMENT = "`async with DialClient(…) as dial`, or `with DialClient(…).blocking() as dial`"
