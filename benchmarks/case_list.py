"""The list of all cases."""

from __future__ import annotations

from benchmarks.cases import Case, Format, Help, Idle, Kept, Script
from benchmarks.in_process import FunctionTurns, MiddlewareTurns, Programs, TracedTurns, UntracedTurns
from benchmarks.rendered import Rendered
from benchmarks.screen_delay import ShownOnScreen
from benchmarks.through_sdk import SdkStart, SdkTurns

ONE = "await look_up(text='a', count=1)"
LOOP = "for number in range(COUNT):\n    await look_up(text='a', count=number)"
TOGETHER = "import asyncio\nawait asyncio.gather(*[look_up(text='a', count=number) for number in range(COUNT)])"


def all_cases(*, smoke: bool = False) -> dict[str, Case]:
    """Return the cases by name. The cases of a smoke run do the same on a smaller scale."""
    scale = 10 if smoke else 1
    child = {"answer_ms": "to answer ms", "exit_ms": "to exit ms", "cpu_ms": "CPU ms"}
    return {
        "functions": FunctionTurns("5 tool rounds: functions as tools", Script(rounds=5)),
        "program": Programs("the first result of a program | a call", 1, ONE),
        "program-calls": Programs(
            f"{300 // scale} calls: one after the other in a program | direct", 300 // scale, LOOP
        ),
        "program-gather": Programs(f"{300 // scale} calls: together in a program | direct", 300 // scale, TOGETHER),
        "middleware": MiddlewareTurns("5 tool rounds: three middlewares | none", Script(rounds=5)),
        "tracing": TracedTurns("5 tool rounds: tracing on | off", Script(rounds=5)),
        "untraced": UntracedTurns("5 tool rounds: no SDK for traces | no tracing", Script(rounds=5)),
        "react": Format(f"{2000 // scale:,}-chunk stream: react | native", Script(0, chunks=2000 // scale), "react"),
        "xml": Format(f"{2000 // scale:,}-chunk stream: xml | native", Script(0, chunks=2000 // scale), "xml"),
        "rendered": Rendered(f"{2000 // scale:,}-chunk answer: Markdown | plain", Script(0, chunks=2000 // scale)),
        "shown": ShownOnScreen("a chunk each 20 ms, to the screen: Markdown | --plain", 500 // scale, 20),
        "kept": Kept(f"{200 // scale} conversations, 3 rounds: SQLite | no store", Script(3), at_once=200 // scale),
        "idle": Idle("an idle conversation, 3 rounds: kept | a list", Script(3), count=100 // scale),
        "help": Help("--help | import mcp, openai", {"exit_ms": "to exit ms", "cpu_ms": "CPU ms"}),
        "sdk-rounds": SdkTurns("5 tool rounds, streamed: openai's client | direct", Script(rounds=5)),
        "sdk-chunks": SdkTurns(
            f"{2000 // scale:,}-chunk stream: openai's client | direct", Script(0, chunks=2000 // scale)
        ),
        "sdk-start": SdkStart("cold start, 2 servers, 1 round: openai's client | direct", Script(1), child),
    }
