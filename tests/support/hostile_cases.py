"""The table of hostile behaviours: what each does, and what has to be seen of it."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dial_client import ServerStatus, ToolCallResult

ROOT = Path(__file__).parents[2]
ERAS = ("old", "new")
MOMENTS = ("greet", "call")
ADD = {"name": "add", "arguments": {"a": 1, "b": 2}}


@dataclass(frozen=True)
class Row:
    """A behaviour, and what is seen of it."""

    does: str
    text: str = ""
    """A part of what is said of the server, or of its call, or by its tool."""
    works: bool = True
    """Whether the call of its tool succeeds."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Of its entry."""


def entry(behaviour: str, era: str, **settings: Any) -> dict[str, Any]:
    """Return the entry of a hostile server over stdio."""
    args = ["-S", "-W", "ignore", "-m", "tests.support.servers.hostile_stdio", behaviour, era]
    return {"command": sys.executable, "args": args, "cwd": str(ROOT)} | settings


def url_entry(base: str, row: Row, era: str) -> dict[str, Any]:
    """Return the entry of a hostile server behind a URL."""
    return {"url": f"{base}/{row.does}/{era}", "headers": {"Authorization": "Bearer secret"}} | row.settings


def seen_of(server: ServerStatus, notes: Iterable[str], result: ToolCallResult) -> str:
    """Return all text of a called server that a user or a model can read."""
    of_it = (note for note in notes if repr(server.name) in note or note.startswith(f"{server.name}:"))
    return "\n".join([*of_it, str(result.content), result.error or ""])


def works(does: str, result: str = "done") -> Row:
    """Its tool gives its result all the same."""
    return Row(does, result)


def fails(does: str, error: str, **settings: Any) -> Row:
    """Its tool is not there, or fails."""
    return Row(does, error, works=False, settings=settings)


def starts(does: str, **settings: Any) -> Row:
    """It starts for ever."""
    return fails(does, "not ready within 1 seconds", startup_timeout=1.0, **settings)


def hangs(does: str, error: str = "gave no result within 0.3 seconds") -> Row:
    """Its tool never gives a result."""
    return fails(does, error, tool_timeout=0.3)


DIED = "ended by SIGTERM; it last said: out of cheese"
SKIPPED = "it writes lines to its standard output that are not MCP messages; they are skipped"

ROWS = [
    starts("silent"),
    works("slow"),
    fails("exits_at_once", "the server ended with exit code 3; it last said: the database is missing"),
    fails("echoes", "Method not found"),
    fails("closes_its_output_at_once", "the server closed its output and said nothing"),
    works("floods_before_the_handshake", "it sends a flood of logs"),
    fails("dies_in_the_handshake", DIED),
    fails("refuses", "go away (-32603)"),
    fails("speaks_an_unknown_version", "Unsupported protocol version from the server: 1999-01-01"),
    fails("greets_with_nonsense", "the server's answer is not valid MCP: capabilities"),
    fails("dies_in_the_list", DIED),
    starts("never_lists"),
    fails("lists_nonsense", "the server's answer is not valid MCP: tools: Input should be a valid list"),
    works("lists_the_same_page_for_ever", "its list of tools has no end; 2 pages were read"),
    works("lists_new_pages_for_ever", "its list of tools has no end; 100 pages were read"),
    works("gives_an_empty_cursor"),
    works("gives_a_cursor_that_is_none"),
    works("lists_far_too_many", "it has more than 1,000 tools; the rest is left out"),
    works("lists_single_bad_tools", "a malformed tool is left out: text"),
    works("lists_a_deep_schema", "the tool 'deep180' is left out: its schema is nested too deeply"),
    fails("lists_a_schema_beyond_all_depth", "the answer is nested too deeply (more than 200 levels)"),
    fails("dies_in_the_call", DIED),
    works("dies_behind_the_answer", DIED),
    hangs("never_answers"),
    hangs("answers_under_another_id"),
    hangs("answers_under_no_id"),
    works("answers_under_its_id_as_text"),
    works("answers_many_times"),
    works("answers_what_nobody_asked"),
    fails("answers_with_a_list", "the answer is not valid JSON-RPC"),
    fails("answers_with_neither_result_nor_error", "the answer is not valid JSON-RPC"),
    works("answers_in_a_batch"),
    hangs("answers_over_many_lines", SKIPPED),
    works("writes_words_between", SKIPPED),
    works("writes_words_without_an_end"),
    works("writes_what_is_no_text", "d\N{REPLACEMENT CHARACTER}ne ?"),
    fails("writes_a_line_beyond_the_limit", "the server sent a message of more than 67,108,864 bytes"),
    works("writes_long_lines"),
    works("writes_a_batch_of_millions", SKIPPED),
    works("floods_with_progress", "it sends a flood of progress; some of them are dropped"),
    works("floods_with_logs", "it sends a flood of logs"),
    works("floods_with_changes", "it sends a flood of changes of its tools"),
    works("floods_with_pings", "it sends a flood of pings"),
    works("floods_with_requests_nobody_knows", "it sends a flood of requests"),
    works("asks_for_what_was_not_offered"),
    works("sends_notifications_that_are_none"),
    works("cancels_our_own_call"),
    works("answers_deep", '{"a": {"a": '),
    fails("answers_far_too_deep", "the answer is nested too deeply (more than 200 levels)"),
    fails("answers_beyond_all_depth", "the answer is nested too deeply (more than 200 levels)"),
    works("answers_with_deep_unknown_blocks", '"type": "?"'),
    works("answers_with_far_too_many_blocks", "more blocks were left out"),
    works("leaves_out_the_type_of_its_result"),
    works("gives_its_result_an_unknown_type"),
    works("gives_its_result_a_type_that_is_none"),
    works("answers_with_what_is_no_content"),
    works("answers_with_numbers_that_are_none", '"h": Infinity'),
    fails("answers_with_a_number_beyond_all_size", "the answer is not valid JSON"),
    fails("closes_its_output", "the server closed its output and said nothing"),
    works("closes_its_input"),
    hangs("reads_no_more"),
    works("floods_its_standard_error"),
    fails("leaves_a_child_with_its_pipes", DIED),
    works("will_not_leave"),
]

NOT_VALID = "the answer is not valid JSON-RPC"
TOO_LARGE = "the server sent a message of more than 67,108,864 bytes"
WEB_PAGE = "the URL leads to a web page"

URL_ROWS = [
    *(fails(f"answers_{code}_at_{moment}", f"HTTP {code}") for code in (403, 404, 429, 500, 503) for moment in MOMENTS),
    *(fails(f"answers_401_at_{moment}", "login") for moment in MOMENTS),
    fails("shows_a_web_page", WEB_PAGE),
    fails("shows_a_web_page_in_the_call", WEB_PAGE),
    fails("answers_nothing", NOT_VALID),
    fails("answers_what_is_no_json", NOT_VALID),
    fails("answers_with_another_type", "Unexpected content type: text/plain"),
    fails("answers_without_a_type", "Unexpected content type"),
    fails("answers_far_too_deep", NOT_VALID),
    fails("accepts_a_request", "answered a request with 202 Accepted"),
    fails("redirects_to_a_file", "Redirect to file://"),
    fails("redirects_nowhere", "not followed"),
    fails("redirects_to_another_host", "Redirect to http://localhost"),
    fails("redirects_in_a_circle", "not followed"),
    fails("knows_no_version", "HTTP 400 (Bad Request)"),
    fails("encodes_as_nobody_else", "incorrect header check"),
    starts("never_answers_the_first_request"),
    hangs("never_answers"),
    hangs("dribbles_its_headers"),
    fails("speaks_no_http", "the connection broke: illegal status line"),
    fails("sends_endless_headers", "the connection broke"),
    fails("resets_the_connection", "the connection broke"),
    fails("ends_in_the_middle", "the connection broke"),
    hangs("answers_without_end"),
    fails("answers_beyond_the_limit", TOO_LARGE),
    fails("sends_a_bomb", TOO_LARGE),
    works("answers_under_another_id"),
    works("answers_with_a_batch"),
    fails("names_an_impossible_session", "characters that are not allowed in a header"),
    works("streams_oddly", "done \N{SNOWMAN}"),
    hangs("streams_in_silence"),
    hangs("streams_comments_for_ever"),
    fails("streams_an_event_beyond_the_limit", "event exceeded the 67108864 byte limit"),
    fails("streams_what_is_no_message", "the server's answer is not valid JSON-RPC"),
    fails("streams_no_answer", "SSE stream ended without a response"),
    works("streams_a_flood", "it sends a flood of progress"),
    hangs("lets_us_come_back_for_ever"),
    starts("names_a_place_elsewhere", transport="sse"),
    starts("names_no_place", transport="sse"),
    fails("streams_nothing_at_all", "", transport="sse"),
]
