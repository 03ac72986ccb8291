"""Builds the parts of a `DialClient` from its options."""

from __future__ import annotations

import inspect
import os
from collections import ChainMap
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import anyio

from dial_client.client.client_options import ApprovalPolicy, Directory, Logins, Skill
from dial_client.client.sampling import ModelSampler, build_callback_sampler
from dial_client.hooks.audit.entries import AuditRecorder, TurnAudit
from dial_client.hooks.server_callbacks import LOG_LEVELS, Callbacks, Sampler
from dial_client.messages.errors import ConfigError
from dial_client.messages.limits import Limits
from dial_client.messages.message import Message, ToolSpec
from dial_client.providers import is_recorded_server
from dial_client.runtime.background_tasks import BackgroundTasks
from dial_client.servers.oauth.login_stores import FolderLogins, LoginStore, MemoryLogins
from dial_client.servers.resources import Resources
from dial_client.servers.server_cache import JsonCache, ToolPins
from dial_client.servers.server_manager import ServerManager
from dial_client.servers.server_requests import ClientCapabilities
from dial_client.settings.agent import AGENTS, Agent, AgentSource
from dial_client.settings.argument_types import (
    check_functions,
    check_members,
    check_plain_functions,
    check_types,
    describe_type,
    is_code,
)
from dial_client.settings.config_types import ServerSettings, SkillFolder
from dial_client.settings.policy_config import load_policy
from dial_client.tools.approval import ApprovalChecker, Approver
from dial_client.tools.approval_mode import ApprovalMode
from dial_client.tools.catalog import READ_SKILL
from dial_client.tools.executor import ToolExecutor
from dial_client.tools.function_definition import Function, FunctionTool
from dial_client.tools.function_tools import FunctionTools, OnToolError
from dial_client.tools.grants import GrantStore
from dial_client.tools.policy import PolicyRules
from dial_client.tools.resource_tools import ResourceTools
from dial_client.tools.skills.skill_lists import Skills
from dial_client.tools.tool_selection import ToolSnapshots
from dial_client.turns.client_model import ClientModel
from dial_client.turns.turn_handle import TurnHandle
from dial_client.turns.turn_run import FindAgent, find_no_agent

# Subfolders of the user's cache folder, of the user's folder for state that cannot be rebuilt, and of the user's data
# folder.
CACHE, STATE, GRANTS, SKILLS = "servers", "approved-tools", "grants", "approved-skills"


def read_server_target(name: str, entry: Any) -> Any:
    """Return the connection target of a server's entry.

    Raises:
        ConfigError: The entry is wrong, or the name contains a ``/``.
        TypeError: An object of this type cannot be a server.
    """
    given: Any = name  # callers without a type checker may pass any type
    if not isinstance(given, str):
        raise TypeError(f"the name of a server is a string, not {describe_type(given)}")
    if isinstance(entry, str):
        if not entry.lower().startswith(("http://", "https://")):
            command, *arguments = entry.split() or ["PROGRAM"]
            example = {name: {"command": command, "args": arguments}}
            raise TypeError(f"server {name!r}: a text is the URL of a server; a program is an entry, servers={example}")
        entry = {"url": entry}
    if isinstance(entry, Mapping):
        from dial_client.settings import configuration  # loaded only by clients that read entries

        return configuration.read_server_mapping(name, entry)
    if "/" in name:
        raise ConfigError(f"{name!r}: a server's name cannot contain /", "patterns of tools are SERVER/TOOL")
    is_of_sdk = any(base.__module__.split(".")[0] == "mcp" for base in type(entry).__mro__)
    # A transport of the SDK is a context manager.
    is_target = (
        isinstance(entry, ServerSettings | AbstractAsyncContextManager) or is_of_sdk or is_recorded_server(entry)
    )
    if is_code(entry) or not is_target:
        hint = f": functions are tools, DialClient(…, tools=[{entry.__name__}])" if inspect.isroutine(entry) else ""
        raise TypeError(
            f"server {name!r}: expected an entry as in servers.json, a ServerSettings or an mcp.server.MCPServer, "
            f"not {describe_type(entry)}{hint}"
        )
    return entry


def read_targets(servers: Mapping[str, Any]) -> dict[str, Any]:
    """Return the connection target of each server.

    Raises:
        ConfigError: An entry is wrong.
        TypeError: `servers` is not a mapping, or an object of an entry's type cannot be a server.
    """
    entries: Any = servers  # callers without a type checker may pass any type
    if not isinstance(entries, Mapping):
        functions = entries if isinstance(entries, list | tuple) else (entries,)
        hint = ": functions are tools, DialClient(…, tools=[…])" if any(map(inspect.isroutine, functions)) else ""
        raise TypeError(f"expected a mapping of names to servers, not {describe_type(entries)}{hint}")
    return {name: read_server_target(name, entry) for name, entry in servers.items()}


def read_profiles(models: Any) -> Any:
    """Return the profiles of models, with those read that are given as entries of servers.json; others unchanged.

    Raises:
        ConfigError: An entry is wrong.
    """
    if not isinstance(models, Mapping) or not any(isinstance(entry, Mapping) for entry in models.values()):
        return models
    from dial_client.settings import configuration  # loaded only by clients that read entries

    return {
        name: configuration.read_model_mapping(name, entry) if isinstance(entry, Mapping) else entry
        for name, entry in models.items()
    }


def open_cache(directory: Directory, name: str) -> JsonCache | None:
    """Return the cache in a folder; for True in the subfolder `name` of the user's folder, for False None."""
    folder = _find_folder(directory, name)
    return JsonCache(folder) if folder is not None else None


class SkillAccess:
    """The skills of a client, whose modules are loaded by clients that have skills, or whose servers have some.

    Args:
        servers: The servers.
        pins: The folder that stores which skills of servers were used, and how they were.
        skills: The folders with skills.

    Raises:
        ConfigError: A folder has no skills, or one of them is wrong.
        TypeError: `skills` is no list, or an element is no path.
    """

    def __init__(self, servers: ServerManager, pins: Directory, skills: Iterable[Skill]) -> None:
        self._servers, self._pins = servers, pins
        self._opened: Skills | None = None
        self.set_folders(skills)

    def set_folders(self, skills: Iterable[Skill]) -> None:
        """Use the skills of these folders. Raises as the class does; nothing is changed then."""
        folders = read_skill_folders(skills)
        if folders or self._opened is not None:
            self.open().set_folders(folders)

    def open(self) -> Skills:
        """Return the skills, which may be none."""
        if self._opened is None:
            from dial_client.tools.skills.skill_library import SkillLibrary

            self._opened = SkillLibrary(self._servers, open_cache(self._pins, SKILLS))
        return self._opened

    def find(self) -> Skills | None:
        """Return the skills; None if there are none, and no server may have one."""
        may_have = self._opened is not None or any(server.has_skills for server in self._servers.values())
        return self.open() if may_have and not self.open().is_empty else None

    def find_reason_to_ask(self, spec: ToolSpec, arguments: Mapping[str, Any]) -> str:
        """Return why the user is asked before a call of a tool of the host; empty for no reason."""
        if spec.tool != READ_SKILL or self._opened is None:
            return ""
        return self._opened.find_reason_to_ask(str(arguments.get("name") or ""))

    @property
    def notes(self) -> tuple[str, ...]:
        """The problems with skills, one line each."""
        return () if self._opened is None else self._opened.notes


def read_skill_folders(skills: Iterable[Skill]) -> tuple[SkillFolder, ...]:
    """Return the folders that a program names.

    Raises:
        TypeError: `skills` is no list, or an element is no path.
    """
    given: Any = skills  # callers without a type checker may pass any type
    if isinstance(given, str | bytes | os.PathLike) or not isinstance(given, Iterable):
        raise TypeError(f"skills takes a list of folders, not {describe_type(given)}")
    folders: list[SkillFolder] = []
    for folder in given:
        if not isinstance(folder, str | os.PathLike | SkillFolder):
            raise TypeError(f"skills takes folders with a SKILL.md, not {describe_type(folder)}")
        folders.append(folder if isinstance(folder, SkillFolder) else SkillFolder(Path(folder)))
    return tuple(folders)


def open_grants(directory: Directory) -> GrantStore | None:
    """Return the stored grants of a folder; for True of the user's folder, for False None."""
    folder = _find_folder(directory, GRANTS)
    return GrantStore(folder) if folder is not None else None


def open_logins(logins: Logins) -> LoginStore:
    """Return where a client keeps its logins: for False in memory, for True where `dial-chat` keeps them.

    Raises:
        TypeError: `logins` is neither a folder nor a `LoginStore`.
    """
    if isinstance(logins, bool):
        return FolderLogins() if logins else MemoryLogins()
    if isinstance(logins, str | os.PathLike):
        return FolderLogins(logins)
    if is_code(logins) or not isinstance(logins, LoginStore):
        raise TypeError(f"logins takes the path of a folder, True, False or a LoginStore, not {describe_type(logins)}")
    return logins


def _find_folder(directory: Directory, name: str) -> str | os.PathLike[str] | None:
    if not isinstance(directory, bool):
        return directory or None
    if not directory:
        return None
    import platformdirs

    parents = {
        CACHE: platformdirs.user_cache_dir,
        STATE: platformdirs.user_state_dir,
        SKILLS: platformdirs.user_state_dir,
        GRANTS: platformdirs.user_data_dir,
    }
    return Path(parents[name]("dial-client"), name)


def build_approval_checker(
    servers: ServerManager, approve: Approver | None, approval: ApprovalPolicy
) -> ApprovalChecker:
    """Return the checker that decides for each tool call whether it may run.

    Raises:
        ConfigError: The rules cannot be read, or a rule is wrong.
        TypeError: `approve` is a class, or cannot be called.
    """
    check_functions(approve=approve)
    policy = load_policy(approval.rules)
    rules = PolicyRules(tuple(approval.allow), tuple(approval.deny), policy, prefix=approval.prefix)
    pins = open_cache(approval.tool_pins, STATE)
    return ApprovalChecker(
        rules,
        approve,
        ToolPins(pins, servers.targets) if pins is not None else None,
        servers.targets,
        open_grants(approval.grants),
        question_lock=nullcontext() if approval.concurrent else anyio.Lock(),
        single_user=approval.single_user,
        mode=ApprovalMode(approval.mode),
    )


def build_client_capabilities(
    callbacks: Callbacks | None,
    model: ClientModel,
    approve: Approver | None,
    approval: ApprovalPolicy,
    limits: Limits,
    audit: AuditRecorder | None,
) -> ClientCapabilities:
    """Return the features that the client offers to its servers.

    Raises:
        ConfigError: The log level or a text in place of `Callbacks.sample` is unknown, or ``sample="model"`` is set
            without a model.
        TypeError: A callback has the wrong type, or `audit` is no `AuditRecorder`.
    """
    if audit is not None:
        check_members(audit, AuditRecorder, "an AuditRecorder, such as AuditLog(…)")
    callbacks = callbacks or Callbacks()
    check_callbacks(callbacks)
    level = callbacks.log_level or ("info" if callbacks.on_log is not None else None)
    if level not in (None, *LOG_LEVELS):
        raise ConfigError(f"unknown log level {level!r}", hint=f"one of {', '.join(LOG_LEVELS)}")
    sampler: Sampler | None = None
    if callbacks.sample == "model":
        try:
            model.get_unrecorded()
        except ConfigError:
            raise ConfigError('sample="model" needs a model', hint="give DialClient a model") from None
        sampler = ModelSampler(
            model.get_unrecorded,
            approve,
            tuple(approval.allow),
            limits,
            audit,
            model.middleware,
            single_user=approval.single_user,
            prefix=approval.prefix,
        )
    elif callbacks.sample is not None and not isinstance(callbacks.sample, str):
        sampler = build_callback_sampler(callbacks.sample, audit)
    callbacks = replace(callbacks, roots=tuple(os.fspath(root) for root in callbacks.roots), log_level=level)
    return ClientCapabilities(callbacks=callbacks, sampler=sampler, audit=TurnAudit(audit))


def check_callbacks(callbacks: Callbacks) -> None:
    """Check the types of callbacks, and that folders for servers are a list.

    Raises:
        ConfigError: A text in place of the function that answers sampling requests is not ``"model"``.
        TypeError: A callback has the wrong type.
    """
    sample: Any = callbacks.sample
    if isinstance(sample, str):
        if sample != "model":
            raise ConfigError(f"unknown sample {sample!r}", hint='expected "model" or an asynchronous function')
        sample = None
    check_functions(elicit=callbacks.elicit, sample=sample, login=callbacks.login)
    check_plain_functions(on_log=callbacks.on_log)
    check_types(apps=(callbacks.apps, bool))
    roots: Any = callbacks.roots
    if isinstance(roots, str | bytes | os.PathLike) or not isinstance(roots, Iterable):
        raise TypeError(f"roots takes a list of folders, not {describe_type(roots)}")


def open_tools(
    servers: ServerManager,
    resources: Resources,
    functions: Iterable[Function | FunctionTool],
    capabilities: ClientCapabilities,
    *,
    resource_tools: bool,
    on_error: OnToolError | None = None,
) -> ToolSnapshots:
    """Return the tools of a client: its servers' tools, its functions, and the tools that read `resources`.

    Raises:
        ConfigError: A server has the name ``functions``, which is reserved for functions.
        TypeError: A function cannot be a tool, `resource_tools` is neither True nor False, or `on_error` is no
            function.
    """
    check_types(resource_tools=(resource_tools, bool))
    check_plain_functions(on_tool_error=on_error)
    function_tools = FunctionTools(functions, capabilities, on_error)
    if function_tools.tools:
        check_name(FunctionTools.name, servers)
    own_tools = ResourceTools(resources, servers, for_all=resource_tools)
    return ToolSnapshots(servers, own_tools.list_routes, function_tools, capabilities.callbacks.apps)


def set_agents(
    agents: Sequence[AgentSource],
    servers: ServerManager,
    tools: ToolSnapshots,
    approvals: ApprovalChecker,
    start: Callable[..., TurnHandle],
    find_taint: Callable[[Sequence[Message]], tuple[str, ...]],
    model: ClientModel,
) -> FindAgent:
    """Let a client offer agents in place of earlier ones; return what finds those that take conversations over.

    Args:
        agents: The agents, or the paths of their files.
        servers: The servers of the client.
        tools: The tools of the client.
        approvals: What decides about its calls.
        start: Starts a turn.
        find_taint: Returns the sources of untrusted content in a conversation.
        model: The model of the client.

    Raises:
        ConfigError: A server has the name ``agents``, which is reserved, a file is wrong, or two agents have one name.
        TypeError: `agents` is no list of agents and paths.
    """
    given: Any = agents  # callers without a type checker may pass any type
    if not isinstance(given, Sequence) or isinstance(given, str | bytes):
        raise TypeError(f"agents takes a list, not {describe_type(given)}")
    if not agents:
        tools.set_agents(None)
        # The name may be that of a server later, which must not have the settings of agents.
        approvals.entries, approvals.agent_patterns = servers.targets, {}
        return find_no_agent
    from dial_client.client.agent_tools import AgentTools  # loaded only by clients that have agents

    check_name(AGENTS, servers)
    found = [agent for source in agents for agent in _read_agents(source)]
    backend = AgentTools(found, start, find_taint, model)
    tools.set_agents(backend)
    approvals.agent_patterns = {agent.name: agent.tools or () for agent in found}
    approvals.entries = ChainMap({AGENTS: backend.settings}, servers.targets)
    return backend.build_services


def _read_agents(source: AgentSource) -> tuple[Agent, ...]:
    if isinstance(source, Agent):
        return (source,)
    if not isinstance(source, str | os.PathLike):
        raise TypeError(f"agents takes Agents, and paths of their files, not {describe_type(source)}")
    from dial_client.settings import agent_files

    return agent_files.read_agents(Path(source))


def check_name(name: str, servers: Container[str]) -> None:
    """Check that no server has the name that is reserved for functions, or for agents.

    Raises:
        ConfigError: A server has this name.
    """
    if name in servers:
        raise ConfigError(f"no server can be named {name!r}: {name} have this name", hint="rename the server")


@dataclass(frozen=True, eq=False, slots=True)
class ClientParts:
    """What a `DialClient` calls tools with."""

    servers: ServerManager
    """The connections to the servers, by name."""
    executor: ToolExecutor
    """Validates, approves, makes and audits calls; `ToolExecutor.derive` is for other tools and another origin."""
    open_sandbox: Callable[[], Any]
    """Returns the `Sandbox` of code mode."""
    require_tasks: Callable[[], BackgroundTasks]
    """Returns what runs tasks until the client is closed; raises `RuntimeError` before it is open."""
