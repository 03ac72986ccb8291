"""The work of ``dial-chat models test``: short questions to a model that show what it can do.

Each trial is an ordinary turn, with the model's profile and tool format. The tool is a function of this module. No
server is started, and nothing is stored.
"""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

from dial_client.cli.load_settings import open_model
from dial_client.cli.open_client import choose_tool_format
from dial_client.cli.options import Options
from dial_client.cli.streams.error_stream import warn
from dial_client.cli.trust.configuration_files import ask_for_files, find_profile_name
from dial_client.client.dial_client import DialClient
from dial_client.messages.errors import DialError, OutputError, ProviderError
from dial_client.messages.events import Finished, TextDelta
from dial_client.messages.limits import Limits
from dial_client.messages.message import ImagePart, Message, Role, TextPart
from dial_client.messages.model import StructuredOutput
from dial_client.messages.token_usage import Usage
from dial_client.messages.turn_result import Turn
from dial_client.runtime.safe_text import to_one_line
from dial_client.runtime.text import count_noun
from dial_client.settings import configuration

# Timeout of one trial in seconds.
TIMEOUT = 90.0
_TEMPERATURES = {"oslo": -17, "lima": 23}


@dataclass(frozen=True, slots=True)
class TrialResult:
    """The outcome of one trial."""

    name: str
    works: bool
    detail: str
    """The model's behavior, in one line."""
    seconds: float
    usage: Usage
    cost_usd: float | None = None
    """The cost in US dollars; None if it is unknown."""


# Whether the model can do it, its behavior in one line, and the turn.
_Outcome = tuple[bool, str, Turn[Any]]
_Trial = Callable[[DialClient], Awaitable[_Outcome]]


async def test_model(options: Options, name: str, *, as_json: bool) -> None:
    """Run all trials of a model, and print a row for each trial; a trial that fails is no error.

    Raises:
        ConfigError: There is no such model.
        ProviderError: The model cannot be reached, or refuses a plain question.
    """
    chosen = replace(options, model=name)
    settings = configuration.combine(await ask_for_files(chosen, warn), find_profile_name(chosen))
    provider = open_model(chosen, settings)
    tool_format = choose_tool_format(chosen, settings)
    limits = replace(Limits(), timeout=TIMEOUT, max_depth=4)
    results: list[TrialResult] = []
    if not as_json:
        bill = ", which its endpoint may bill" if provider.info.url and name != "local" else ""
        print(f"{provider.info.name}: {len(_TRIALS)} short questions{bill}.")
    async with DialClient(provider, tool_format=tool_format, limits=limits, tools=[get_temperature]) as dial:
        for trial_name, trial in _TRIALS.items():
            result = await _run(trial_name, trial, dial)
            results.append(result)
            if not as_json:
                mark = "yes" if result.works else "no"
                print(f"{result.name:<18} {mark:<4} {result.seconds:6.1f} s  {result.detail}", flush=True)
    if as_json:
        print(json.dumps({"model": provider.info.name, "trials": [asdict(result) for result in results]}, indent=2))
    else:
        usage = sum((result.usage for result in results), Usage())
        costs = [result.cost_usd for result in results]
        cost = "" if None in costs else f", about ${sum(cost or 0 for cost in costs):.4f}"
        print(f"{usage.input_tokens:,} tokens in, {usage.output_tokens:,} out{cost}")


async def _run(name: str, trial: _Trial, dial: DialClient) -> TrialResult:
    began = time.monotonic()
    try:
        works, detail, turn = await trial(dial)
    except DialError as error:
        if isinstance(error, ProviderError) and trial is _answer_in_text:
            raise
        return TrialResult(name, False, to_one_line(str(error), 200), time.monotonic() - began, Usage())  # noqa: FBT003
    seconds = time.monotonic() - began
    return TrialResult(name, works, to_one_line(detail, 100), seconds, turn.usage, turn.cost_usd)


def get_temperature(city: str) -> str:
    """Return the temperature in a city at this moment.

    Args:
        city: The name of the city, such as Paris.
    """
    return f"{_TEMPERATURES.get(city.lower().strip(), 0)} degrees Celsius"


async def _answer_in_text(dial: DialClient) -> _Outcome:
    turn = await dial.run("Which number comes after forty-one? Answer with the number only.")
    return bool(turn.text.strip()), f"answered {turn.text.strip()!r}", turn


async def _stream(dial: DialClient) -> _Outcome:
    pieces = 0
    turn: Turn[Any] | None = None
    async for event in dial.stream("Write the numbers from one to thirty in words."):
        pieces += isinstance(event, TextDelta)
        if isinstance(event, Finished):
            turn = event.turn
    assert turn is not None
    return pieces > 1, f"{pieces} pieces", turn


async def _call_a_tool(dial: DialClient) -> _Outcome:
    turn = await dial.run("What is the temperature in Oslo? Use the tool.")
    called = [record.arguments for record in turn.tool_calls]
    right = any(str(arguments.get("city", "")).lower().startswith("oslo") for arguments in called)
    reported = "17" in turn.text
    detail = f"called with {json.dumps(dict(called[0]))}" if called else "no call"
    missing = "" if reported else "; the answer lacks the result"
    return right and reported, f"{detail}{missing}", turn


async def _call_in_parallel(dial: DialClient) -> _Outcome:
    turn = await dial.run("What are the temperatures in Oslo and in Lima? Call the tool for both cities at once.")
    rounds = [len(message.tool_calls) for message in turn.messages if message.tool_calls]
    limit = max(rounds, default=0)
    return limit > 1, f"at most {count_noun(limit, 'call')} in one reply", turn


async def _answer_in_a_schema(dial: DialClient) -> _Outcome:
    schema = {
        "type": "object",
        "properties": {"city": {"type": "string"}, "inhabitants": {"type": "integer", "minimum": 1}},
        "required": ["city", "inhabitants"],
        "additionalProperties": False,
    }
    try:
        turn = await dial.run("Which is the largest city of Italy, and how many people live there?", output_type=schema)
    except OutputError as error:
        return False, f"no answer that fits the schema: {error}", error.turn
    ways = {StructuredOutput.WITH_TOOLS: "enforced by the endpoint", StructuredOutput.WITHOUT_TOOLS: "by a tool"}
    structured = dial.model.require().info.structured_output
    way = ways.get(structured, "checked by dial-chat")
    return True, f"{turn.text} ({way})", turn


async def _see_an_image(dial: DialClient) -> _Outcome:
    question = "This image has three stripes. Name their colors from left to right, and nothing else."
    turn = await dial.run(Message(Role.USER, (TextPart(question), ImagePart(_STRIPED_PNG, "image/png"))))
    text = turn.text.lower()
    places = [text.find(color) for color in _STRIPES]
    right = -1 not in places and places == sorted(places)
    return right, f"stripes of {', '.join(_STRIPES)} are {turn.text.strip()!r}", turn


# The colors of the image, in order; a model that cannot see the image is unlikely to guess them.
_STRIPES = ("yellow", "blue", "red")
# A PNG file of 96 by 96 pixels, with three vertical stripes of these colors, in base64.
_STRIPED_PNG = (
    "iVBORw0KGgoAAAANSUhEUgAAAGAAAABgCAMAAADVRocKAAAACVBMVEX//wAAAP//AACM+tFxAAAAPklEQVR42u3NMQ0AAAgDsIF/"
    "0UjYTdIaaFJMsUUEAoFAIBAIBAKBQCAQCAQCgUAgEAgEAoFAIBAIBALB1+AACpQkAY74Jn8AAAAASUVORK5CYII="
)


_TRIALS: dict[str, _Trial] = {
    "text": _answer_in_text,
    "streaming": _stream,
    "tool call": _call_a_tool,
    "parallel calls": _call_in_parallel,
    "structured output": _answer_in_a_schema,
    "image": _see_an_image,
}
