"""The list of all cases."""

from __future__ import annotations

from benchmarks.cases import Case, Format, Help, Idle, Kept, Program, Script, Start, Turns
from benchmarks.in_process import FunctionTurns, MiddlewareTurns, TracedTurns, UntracedTurns
from benchmarks.rendered import Rendered
from benchmarks.screen_delay import ShownOnScreen
from benchmarks.server_entries import server_entries
from benchmarks.through_sdk import SdkStart, SdkTurns


def all_cases(*, smoke: bool = False) -> dict[str, Case]:
    """Return the cases by name. The cases of a smoke run do the same on a smaller scale."""
    scale = 10 if smoke else 1
    servers = 2 if smoke else 10
    tools = server_entries(4, tools=50 // scale)
    child = {"answer_ms": "to answer ms", "exit_ms": "to exit ms", "cpu_ms": "CPU ms"}
    return {
        "rounds": Turns("5 tool rounds, plain", Script(rounds=5)),
        "rounds-streamed": Turns("5 tool rounds, streamed", Script(rounds=5), streamed=True),
        "functions": FunctionTurns("5 tool rounds: functions as tools", Script(rounds=5)),
        "middleware": MiddlewareTurns("5 tool rounds: three middlewares | none", Script(rounds=5)),
        "tracing": TracedTurns("5 tool rounds: tracing on | off", Script(rounds=5)),
        "untraced": UntracedTurns("5 tool rounds: no SDK for traces | no tracing", Script(rounds=5)),
        "parallel": Turns("8 parallel calls of 50 ms", Script(1, calls=8), server_entries(call_delay=0.05)),
        "chunks": Turns(f"{2000 // scale:,}-chunk stream", Script(0, chunks=2000 // scale), streamed=True),
        "react": Format(f"{2000 // scale:,}-chunk stream: react | native", Script(0, chunks=2000 // scale), "react"),
        "xml": Format(f"{2000 // scale:,}-chunk stream: xml | native", Script(0, chunks=2000 // scale), "xml"),
        "rendered": Rendered(f"{2000 // scale:,}-chunk answer: Markdown | plain", Script(0, chunks=2000 // scale)),
        "shown": ShownOnScreen("a chunk each 20 ms, to the screen: Markdown | --plain", 500 // scale, 20),
        "tools": Turns(f"5 rounds, {200 // scale} tools of 4 servers", Script(rounds=5), tools),
        "tools-start": Start(f"4 servers, {200 // scale} tools: start", tools),
        "start": Start(f"{servers} servers of 0.3 s each: start", server_entries(servers, start_delay=0.3 / scale)),
        "turns": Turns(f"{50 // scale} turns at once, 1 round", Script(rounds=1), at_once=50 // scale),
        "kept": Kept(f"{200 // scale} conversations, 3 rounds: SQLite | no store", Script(3), at_once=200 // scale),
        "idle": Idle("an idle conversation, 3 rounds: kept | a list", Script(3), count=100 // scale),
        "cold-start": Program("cold start, 2 servers, 1 round", Script(1), server_entries(2), child),
        "help": Help("--help | import mcp, openai", {"exit_ms": "to exit ms", "cpu_ms": "CPU ms"}),
        "sdk-rounds": SdkTurns("5 tool rounds, streamed: openai's client | direct", Script(rounds=5)),
        "sdk-chunks": SdkTurns(
            f"{2000 // scale:,}-chunk stream: openai's client | direct", Script(0, chunks=2000 // scale)
        ),
        "sdk-start": SdkStart("cold start, 2 servers, 1 round: openai's client | direct", Script(1), child),
        "memory": Program(
            f"peak memory: 5 rounds, {2000 // scale:,} chunks",
            Script(rounds=5, chunks=2000 // scale),
            server_entries(2, tools=20 // scale),  # as many as the host offers without a search
            {"peak_mb": "peak MB"},
        ),
    }
