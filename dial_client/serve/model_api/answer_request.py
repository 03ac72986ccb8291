"""What a request of a model API asks for, in terms that all of these APIs share, and how its parts are parsed."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, cast

from dial_client.messages.errors import ConfigError
from dial_client.messages.message import Message, ToolCallRequest, ToolSpec
from dial_client.messages.model import ModelSettings, Thinking, ToolChoice
from dial_client.schema import provider_schema
from dial_client.serve.http_messages import HttpError
from dial_client.serve.model_api.offered_models import NamedModel
from dial_client.turns.output_type import build_output_type

# Tools of one request. Endpoints have lower limits of their own.
MAX_TOOLS = 1_024
# Characters of the name of a client's tool.
_MAX_NAME = 256
_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_THINKING: Mapping[str, Thinking] = {
    "none": "none", "minimal": "minimal", "low": "low", "medium": "medium", "high": "high", "xhigh": "max",
    "max": "max",
}  # fmt: skip


class ShownActivity(StrEnum):
    """What an answer shows of the work on it, beside its text; the header ``X-Dial-Activity``."""

    ALL = "all"
    """The model's reasoning, and the calls of the servers' tools."""
    REASONING = "reasoning"
    """The model's reasoning."""
    NONE = "none"


@dataclass(frozen=True, slots=True)
class AnswerRequest:
    """A request for an answer."""

    model: NamedModel
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    """The client's own tools. `ToolSpec.tool` is the name that the client uses, `ToolSpec.name` the model's."""
    settings: ModelSettings = field(default_factory=ModelSettings)
    """How the model writes its replies. `tool_choice` is ``none``, ``required``, or the model's name of a tool."""
    stream: bool = False
    schema: Mapping[str, Any] | None = None
    """The JSON Schema of the answer; None for an answer in text."""
    hidden_tools: frozenset[str] = frozenset()
    """The offered names of servers' tools that the model cannot call."""
    activity: ShownActivity = ShownActivity.ALL
    is_plain: bool = False
    """True for the model alone, as `NamedModel.is_plain`."""
    ignored: tuple[str, ...] = ()
    """Names of parameters that have no effect."""


def read_activity(headers: Mapping[str, str]) -> ShownActivity:
    """Return what an answer shows of the work on it, from the header ``X-Dial-Activity``; by default all.

    Raises:
        HttpError: The header has another value.
    """
    value = headers.get("x-dial-activity", ShownActivity.ALL).lower()
    if value not in list(ShownActivity):
        raise build_error("X-Dial-Activity", f"must be one of {', '.join(ShownActivity)}")
    return ShownActivity(value)


def read_plain(headers: Mapping[str, str]) -> bool:
    """Return whether the header ``X-Dial-Plain`` asks for the model alone.

    Any value does so but ``false``: a program may put the name of its task there, which is empty for a person's turn.
    """
    return headers.get("x-dial-plain", "").strip().lower() not in ("", "false", "0", "no")


def read_stop(value: Any, path: str) -> tuple[str, ...] | None:
    """Return the texts at which the model stops; None for none.

    Raises:
        HttpError: The value is neither a text nor a list of texts.
    """
    texts = [value] if isinstance(value, str) else value or []
    if not isinstance(texts, list) or not all(isinstance(text, str) and text for text in texts):
        raise build_error(path, "must be a text, or a list of texts")
    return tuple(texts) or None


def build_ignored_header(request: AnswerRequest) -> dict[str, str]:
    """Return the header of a response that names the parameters without effect; none if all have one."""
    # The names are the client's: characters that a header cannot have are written as in JSON.
    names = (json.dumps(name)[1:-1].replace("\x7f", "\\u007f") for name in request.ignored)
    return {"x-ignored-parameters": ", ".join(names)[:500]} if request.ignored else {}


def to_tool_name(name: str) -> str:
    """Return the name under which the model gets a client's tool: the same name, if every endpoint accepts it.

    The name depends on the client's name alone, so that calls in the history get the same one.
    """
    if _TOOL_NAME.fullmatch(name):
        return name
    digest = hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()[:8]
    return f"{re.sub(r'[^a-zA-Z0-9_-]', '_', name)[:55]}_{digest}"


def parse_tool(name: Any, description: Any, parameters: Any, path: str) -> ToolSpec:
    """Return a client's tool.

    Args:
        name: Its name in the request.
        description: Its description; None for none.
        parameters: The JSON Schema of its arguments; None for none.
        path: The path of the tool in the request, for error messages.

    Raises:
        HttpError: A value is wrong.
    """
    if not isinstance(name, str) or not 0 < len(name) <= _MAX_NAME or not name.isprintable():
        raise build_error(f"{path}.name", f"must have 1 to {_MAX_NAME} printable characters")
    if not isinstance(description or "", str):
        raise build_error(f"{path}.description", "must be a string")
    parameters = parameters or {}
    try:
        fit = provider_schema.adapt(parameters)
    except provider_schema.Unsupported as error:
        raise build_error(f"{path}.parameters", f"cannot be offered: {error}") from None
    text = "\n\n".join([description or "", *fit.hints]).strip()
    return ToolSpec(to_tool_name(name), text, fit.schema, tool=name, original_schema=parameters)


def collect_tools(specs: Iterable[ToolSpec]) -> tuple[ToolSpec, ...]:
    """Return the tools of a request.

    Raises:
        HttpError: There are too many, or two have the same name.
    """
    tools: dict[str, ToolSpec] = {}
    for index, spec in enumerate(specs):
        if index >= MAX_TOOLS:
            raise build_error("tools", f"must be a list of at most {MAX_TOOLS:,} tools")
        if spec.name in tools:
            raise build_error(f"tools[{index}]", f"has the name of another tool: {spec.tool}")
        tools[spec.name] = spec
    return tuple(tools.values())


def check_choice(choice: str | None, tools: Sequence[ToolSpec], server_tools: Sequence[ToolSpec]) -> None:
    """Check that a tool that the model has to call is offered.

    Args:
        choice: `ModelSettings.tool_choice`.
        tools: The client's own tools.
        server_tools: The tools of the servers.

    Raises:
        HttpError: There is no tool of this name.
    """
    if choice in (None, *ToolChoice):
        return
    if not any(choice == tool.name for tool in (*tools, *server_tools)):
        problem = "names a tool that is neither in tools nor a tool of this server's MCP servers"
        raise build_error("tool_choice", problem)


def parse_call(id_: Any, name: Any, text: Any, path: str) -> ToolCallRequest:
    """Return a call of the history, with its arguments as JSON text.

    Raises:
        HttpError: A value is wrong.
    """
    if not isinstance(id_, str) or not isinstance(name, str) or not isinstance(text, str):
        raise build_error(path, "must have an id, a name and arguments, all of them strings")
    try:
        arguments = json.loads(text or "{}")
    except (ValueError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict):
        return ToolCallRequest(id_, to_tool_name(name), {}, text)
    return ToolCallRequest(id_, to_tool_name(name), arguments)


def check_schema(schema: Any, path: str) -> Mapping[str, Any]:
    """Return the JSON Schema of an answer.

    Raises:
        HttpError: It is not a schema, or cannot be used.
    """
    if not isinstance(schema, Mapping):
        raise build_error(path, "must be a JSON Schema")
    try:
        build_output_type(schema)
    except (ConfigError, TypeError) as error:
        raise build_error(path, f"cannot be used: {error}") from None
    return cast("Mapping[str, Any]", schema)


def read_count(value: Any, path: str) -> int | None:
    """Return a whole number of at least 1, also from a number such as 10.0; None for none.

    Raises:
        HttpError: It is another value.
    """
    if value is None:
        return None
    number = int(value) if isinstance(value, float) and value.is_integer() else value
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        raise build_error(path, "must be a number greater than 0")
    return number


def read_fraction(value: Any, path: str, maximum: float) -> float | None:
    """Return a number from 0 to `maximum`; None for none.

    Raises:
        HttpError: It is another value.
    """
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= maximum:
        raise build_error(path, f"must be a number from 0 to {maximum:g}")
    return float(value)


def read_thinking(value: Any, path: str) -> Thinking | None:
    """Return how much the model reasons, from OpenAI's ``reasoning_effort``; None for none.

    Raises:
        HttpError: It is another value.
    """
    if value is None:
        return None
    if not isinstance(value, str) or value not in _THINKING:
        raise build_error(path, f"must be one of {', '.join(_THINKING)}")
    return _THINKING[value]


def build_error(path: str, problem: str) -> HttpError:
    """Return the error for a value of a request.

    Args:
        path: The path of the value in the request.
        problem: What is wrong, which follows the path in the message.
    """
    return HttpError(400, f"{path} {problem}", "invalid_request", param=path)
