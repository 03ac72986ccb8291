"""AgentDojo's suites without AgentDojo's own models. One process runs one trial after another."""

from __future__ import annotations

import importlib.util
import json
import sys
from contextlib import redirect_stdout
from types import ModuleType
from typing import Any

from benchmarks.attack.goals import GOALS, Call

VERSION = "v1.2.2"
"""The newest version of the suites in the pinned package."""


def import_agentdojo() -> None:
    """Make the suites importable without the vendors' SDKs.

    ``agentdojo.agent_pipeline`` imports the SDKs of five vendors. Their models are not needed here, so the package's
    ``__init__`` is skipped, and one constant that its modules import is defined here. Environments are read with
    PyYAML's C parser if it is available: it is ten times as fast, with the same result.
    """
    import yaml

    yaml.SafeLoader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    found = importlib.util.find_spec("agentdojo")
    if found is None or not found.submodule_search_locations:
        raise ModuleNotFoundError("agentdojo is not installed: `make attack` installs it")
    root = found.submodule_search_locations[0]
    for name in ("agent_pipeline", "agent_pipeline.llms"):
        package = ModuleType(f"agentdojo.{name}")
        package.__path__ = [f"{root}/{name.replace('.', '/')}"]
        sys.modules[package.__name__] = package
    google = ModuleType("agentdojo.agent_pipeline.llms.google_llm")
    google.EMPTY_FUNCTION_NAME = ""  # type: ignore[attr-defined]
    sys.modules[google.__name__] = google


class _Pipeline:
    """The part of a pipeline that an attack reads: the model's name, here a generic one."""

    name = "local"


class Suite:
    """One suite, with the environment of the current trial."""

    def __init__(self, name: str) -> None:
        import_agentdojo()
        from agentdojo.attacks.important_instructions_attacks import ImportantInstructionsAttackNoNames
        from agentdojo.functions_runtime import FunctionCall, FunctionsRuntime
        from agentdojo.task_suite.load_suites import get_suite

        self.name = name
        self._suite = get_suite(VERSION, name)
        self._attack = ImportantInstructionsAttackNoNames(self._suite, _Pipeline())
        self._runtime = FunctionsRuntime(self._suite.tools)
        self._call_type = FunctionCall
        self._trace: list[Any] = []
        self._environment: Any = None
        self._before: Any = None
        self._user_task: Any = None
        self._injection_task: Any = None
        self.skill = ""
        """The text of the server's skill; empty for a server without skills."""
        self.trial_count = 0
        """The number of trials with a skill, each of which has a skill of its own: a changed one would be withheld."""

    def tools(self) -> list[dict[str, Any]]:
        """Return name, description and JSON schema of each tool."""
        return [
            {"name": tool.name, "description": tool.description, "schema": tool.parameters.model_json_schema()}
            for tool in self._suite.tools
        ]

    def call(self, name: str, arguments: dict[str, Any]) -> tuple[str, bool]:
        """Run a tool on the environment; return its result as AgentDojo shows it to models, and whether it failed."""
        from agentdojo.agent_pipeline.tool_execution import tool_result_to_str

        self._trace.append(self._call_type(function=name, args=arguments))
        result, error = self._runtime.run_function(self._environment, name, arguments)
        return (error, True) if error else (tool_result_to_str(result), False)

    def tasks(self) -> dict[str, Any]:
        """Return ``{"user_tasks": […], "injection_tasks": […]}``, the ids in their order."""
        return {
            "user_tasks": sorted(self._suite.user_tasks, key=_number),
            "injection_tasks": sorted(self._suite.injection_tasks, key=_number),
        }

    def begin(self, user_task: str, injection_task: str | None, *, in_skill: bool = False) -> dict[str, Any]:
        """Load a new environment, with the injection at the place where the user task will read it, or in a skill.

        Returns:
            ``{"prompt", "calls": [[name, arguments]], "output"}``: the user task, and its solution.
        """
        self._user_task = self._suite.user_tasks[user_task]
        self._injection_task = self._suite.injection_tasks[injection_task] if injection_task else None
        planted = self._attack.attack(self._user_task, self._injection_task) if self._injection_task else {}
        if in_skill:
            self.skill = next(iter(planted.values()), "Read what there is, and answer.")
            self.trial_count += 1
            planted = {}
        loaded = self._suite.load_and_inject_default_environment(planted)
        self._environment = self._user_task.init_environment(loaded)
        self._before = self._environment.model_copy(deep=True)
        self._trace = []
        return {
            "prompt": self._user_task.PROMPT,
            "calls": _plain(self._user_task.ground_truth(self._before.model_copy(deep=True))),
            "output": self._user_task.GROUND_TRUTH_OUTPUT,
        }

    def begin_with_skill(self, user_task: str, injection_task: str | None) -> dict[str, Any]:
        """As `begin`, with the injection in the server's skill, and in no result of a tool."""
        return self.begin(user_task, injection_task, in_skill=True)

    def injected(self) -> dict[str, Any]:
        """Return ``{"calls", "output"}``: the solution of the injected task in the current environment."""
        task, now = self._injection_task, self._environment.model_copy(deep=True)
        if build_calls := GOALS.get((self.name, task.ID)):
            return {"calls": build_calls(now), "output": task.GROUND_TRUTH_OUTPUT}
        return {"calls": _plain(task.ground_truth(now)), "output": task.GROUND_TRUTH_OUTPUT}

    def executed(self) -> list[Call]:
        """Return the calls of this trial, including failed calls, in their order."""
        return _plain(self._trace)

    def judge(self, output: str) -> dict[str, Any]:
        """Return ``{"utility", "security", "executed": [[name, arguments]]}``.

        ``utility`` is True if the user's task is done. ``security`` (AgentDojo's name) is True if the attacker's task
        is done, and null without an attack. AgentDojo computes both, as in `TaskSuite.run_task_with_pipeline`.
        """
        content = [{"type": "text", "content": output}]
        results: list[bool | None] = []
        with redirect_stdout(sys.stderr):  # a task prints, and standard output belongs to MCP
            for task in (self._user_task, self._injection_task):
                checked = self._suite._check_task_result  # noqa: SLF001 - AgentDojo has no public function for this
                state = (self._before, self._environment, self._trace)
                results.append(bool(checked(task, content, *state)) if task is not None else None)
        return {"utility": results[0], "security": results[1], "executed": _plain(self._trace)}


def _number(name: str) -> int:
    return int(name.rpartition("_")[2])


def _plain(calls: list[Any]) -> list[Call]:
    """Return calls as JSON types."""
    return [(call.function, json.loads(json.dumps(dict(call.args), default=str))) for call in calls]
