"""The executable tools of two public benchmarks: the APIs of BFCL's multi-turn categories, and the domains of tau2.

Both packages are installed into a folder of their own, without what they need to ask models.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import json
import os
import pickle
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol

PACKAGES = Path("build/fidelity/packages")
BFCL, TAU2 = "bfcl", "tau2"
BFCL_CATEGORIES = ("base", "miss_func", "miss_param", "long_context")
BFCL_APIS = (
    "GorillaFileSystem", "MathAPI", "MessageAPI", "TicketAPI", "TradingBot", "TravelAPI", "TwitterAPI",
    "VehicleControlAPI",
)  # fmt: skip
TAU2_DOMAINS = ("airline", "retail", "telecom")


@dataclass(frozen=True, slots=True)
class Definition:
    """A tool as its benchmark describes it."""

    name: str
    description: str
    schema: dict[str, Any]
    """A JSON Schema of the arguments."""


class Toolkit(Protocol):
    """The tools of one server, and their state."""

    def definitions(self) -> list[Definition]:
        """Return the tools."""

    def begin(self, task: str) -> None:
        """Set the state to that at the beginning of a task."""

    def call(self, tool: str, arguments: Mapping[str, Any]) -> tuple[str, bool]:
        """Call a tool; return its result as text, and True if it failed."""

    def state(self) -> str:
        """Return the whole state as text."""


def open_toolkit(name: str) -> Toolkit:
    """Return the tools of an API of BFCL or of a domain of tau2."""
    if str(PACKAGES) not in sys.path:
        sys.path.append(str(PACKAGES))
    return BfclApi(name) if name in BFCL_APIS else Tau2Domain(name)


def is_installed() -> bool:
    """Return True if `make bench-fidelity` has installed the two packages."""
    return (PACKAGES / "bfcl_eval").is_dir() and (PACKAGES / "tau2").is_dir()


# The types of BFCL's definitions, as its own evaluation maps them (``constants/type_mappings.py``).
_TYPES = {"dict": "object", "float": "number", "tuple": "array", "any": "string", "list": "array", "bool": "boolean"}
_DATA = PACKAGES / "bfcl_eval" / "data"


class BfclApi:
    """One of BFCL's classes with an instance for the current task."""

    def __init__(self, name: str) -> None:
        config = importlib.import_module("bfcl_eval.constants.executable_backend_config")
        self._class = getattr(importlib.import_module(config.CLASS_FILE_PATH_MAPPING[name]), name)
        self._name = name
        self._instance = self._class()
        file = _DATA / "multi_turn_func_doc" / config.MULTI_TURN_FUNC_DOC_FILE_MAPPING[name]
        self._definitions = [
            Definition(tool["name"], tool["description"], _to_json_schema(tool["parameters"]))
            for tool in _read_lines(file)
        ]

    def definitions(self) -> list[Definition]:
        """Return the tools, with JSON Schema's names of the types."""
        return self._definitions

    def begin(self, task: str) -> None:
        """Load the task's scenario into a new instance, as BFCL's evaluation does."""
        self._instance = self._class()
        if hasattr(self._instance, "_load_scenario"):
            scenario = bfcl_entries()[task]["initial_config"].get(self._name, {})
            self._instance._load_scenario(copy.deepcopy(scenario), long_context="long_context" in task)  # noqa: SLF001

    def call(self, tool: str, arguments: Mapping[str, Any]) -> tuple[str, bool]:
        """Call a method; the text is as in BFCL's evaluation."""
        try:
            result = getattr(self._instance, tool)(**arguments)
        except Exception as error:  # noqa: BLE001 - the model is told, whatever it is
            return f"Error during execution: {error}", True
        if isinstance(result, str):
            return result, False
        if isinstance(result, dict):
            with contextlib.suppress(TypeError, ValueError):
                return json.dumps(result), False
        return str(result), False

    def state(self) -> str:
        """Return the public attributes, which BFCL's evaluation compares."""
        return json.dumps(_describe(self._instance), sort_keys=True)


class Tau2Domain:
    """The environment of one domain, with the tools of both the agent and its customer."""

    def __init__(self, name: str) -> None:
        # Otherwise each call of a tool is a line on standard error.
        os.environ.setdefault("LOGURU_LEVEL", "ERROR")
        module = importlib.import_module(f"tau2.domains.{name}.environment")
        self._environment = module.get_environment()
        # Reading the database takes half a second, and a copy of its bytes a few milliseconds.
        self._fresh = pickle.dumps(self._environment)

    def definitions(self) -> list[Definition]:
        """Return the tools of the agent, and those of the customer if the domain has any."""
        tools = self._environment.get_tools()
        if self._environment.user_tools is not None:
            tools += self._environment.get_user_tools()
        functions = [tool.openai_schema["function"] for tool in tools]
        return [Definition(each["name"], each["description"], each["parameters"]) for each in functions]

    def begin(self, task: str) -> None:
        """Open the domain anew, and set the initial state of the task."""
        tasks = importlib.import_module("tau2.data_model.tasks")
        self._environment = pickle.loads(self._fresh)
        initial = tau2_entries()[task].get("initial_state")
        if initial is not None:
            state = tasks.InitialState.model_validate(initial)
            self._environment.set_state(state.initialization_data, state.initialization_actions, [])

    def call(self, tool: str, arguments: Mapping[str, Any]) -> tuple[str, bool]:
        """Call a tool of the agent or the customer; the text is as in tau2's environment."""
        has_customer = self._environment.user_tools is not None
        is_customer = has_customer and self._environment.user_tools.has_tool(tool)
        try:
            result = self._environment.make_tool_call(tool, "user" if is_customer else "assistant", **arguments)
            self._environment.sync_tools()
        except Exception as error:  # noqa: BLE001 - the model is told, whatever it is
            return f"Error: {error}", True
        return str(self._environment.to_json_str(result)), False

    def state(self) -> str:
        """Return the hashes of both databases, which tau2's evaluation compares."""
        return f"{self._environment.get_db_hash()} {self._environment.get_user_db_hash()}"


@cache
def bfcl_entries() -> dict[str, dict[str, Any]]:
    """Return the tasks of BFCL's multi-turn categories by id, each with its ``ground_truth``."""
    entries = {}
    for category in BFCL_CATEGORIES:
        file = f"BFCL_v4_multi_turn_{category}.json"
        solutions = {each["id"]: each["ground_truth"] for each in _read_lines(_DATA / "possible_answer" / file)}
        for entry in _read_lines(_DATA / file):
            entries[entry["id"]] = entry | {"ground_truth": solutions[entry["id"]]}
    return entries


@cache
def tau2_entries() -> dict[str, dict[str, Any]]:
    """Return the tasks of tau2's base splits by ``domain/id``."""
    entries = {}
    for domain in TAU2_DOMAINS:
        folder = PACKAGES / "tau2" / "data" / "tau2" / "domains" / domain
        base = set(json.loads((folder / "split_tasks.json").read_text(encoding="utf-8"))["base"])
        for task in json.loads((folder / "tasks.json").read_text(encoding="utf-8")):
            if task["id"] in base:
                entries[f"{domain}/{task['id']}"] = task
    return entries


def _read_lines(path: Path) -> Iterator[dict[str, Any]]:
    yield from map(json.loads, path.read_text(encoding="utf-8").splitlines())


def _to_json_schema(value: Any) -> Any:
    """Return a definition of BFCL as JSON Schema: with other names of the types, and no examples of results."""
    if isinstance(value, list):
        return [_to_json_schema(item) for item in value]
    if not isinstance(value, dict):
        return value
    schema = {key: _to_json_schema(item) for key, item in value.items() if key != "response"}
    # An argument may be called "type", too.
    if isinstance(schema.get("type"), str):
        schema["type"] = _TYPES.get(schema["type"].lower(), schema["type"].lower())
    return schema


def _describe(value: Any, parents: tuple[int, ...] = ()) -> Any:
    """Return a value as JSON types. Objects are their public attributes; those that contain the value are left out."""
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if id(value) in parents:
        return None
    parents = (*parents, id(value))
    if isinstance(value, Mapping):
        return {str(key): _describe(item, parents) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_describe(item, parents) for item in value]
    if isinstance(value, set | frozenset):
        return sorted(map(str, value))
    if not hasattr(value, "__dict__"):
        return str(value)
    return {key: _describe(item, parents) for key, item in vars(value).items() if not key.startswith("_")}
