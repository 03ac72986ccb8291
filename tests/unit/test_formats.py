"""The tool formats: replies are parsed into calls and visible text."""

from __future__ import annotations

import logging

import pytest

from tests.inner import (
    MAX_CALLS,
    NativeFormatHandler,
    ReActFormatHandler,
    ToolCallRequest,
    ToolFormat,
    ToolFormatHandler,
    ToolSpec,
    XMLFormatHandler,
    build_handler,
    formats,
    read_reply,
)
from tests.inner import TOOL_ARGUMENTS_MAX_DEPTH as MAX_DEPTH

Call = tuple[str, dict[str, object], str | None]

TIME = ToolSpec(
    "get_time", "The time", {"type": "object", "properties": {"tz": {"type": "string"}}, "required": ["tz"]}
)
LIST = ToolSpec("list_all", "All of them", {"type": "object", "properties": {}})
TOOLS = (TIME, LIST)

UTC: Call = ("get_time", {"tz": "UTC"}, None)
ALL: Call = ("list_all", {}, None)
UTC_JSON = '{"name": "get_time", "arguments": {"tz": "UTC"}}'
ALL_JSON = '{"name": "list_all", "arguments": {}}'
TAGGED = f"<tool_call>\n{UTC_JSON}\n</tool_call>"

DELETION = """Done. Next I'm going to delete... <tool_call>
{"name":"delete_user_attribute","arguments":{"query":"qwen"}}
</tool_call>"""


def plain(calls: tuple[ToolCallRequest, ...]) -> list[Call]:
    """Return the calls without their ids."""
    return [(call.name, dict(call.arguments), call.unreadable) for call in calls]


def read(handler: ToolFormatHandler, reply: str) -> tuple[str, list[Call]]:
    calls, shown = read_reply(handler.reader(TOOLS), reply)
    return shown, plain(calls)


NATIVE: dict[str, tuple[str, str, list[Call]]] = {
    "text": ("It is noon.\n", "It is noon.\n", []),
    "white space": ("  a\n\n  b \n", "  a\n\n  b \n", []),
    "nothing but white space": (" \n", " \n", []),
    "nothing": ("", "", []),
    "angle brackets": ("a < b, <tool>, </p>, 1 <<2 `<`", "a < b, <tool>, </p>, 1 <<2 `<`", []),
    "labels of another format": ("Thought: a\nAction: b", "Thought: a\nAction: b", []),
    "tagged call": (TAGGED, "", [UTC]),
    "call in a sentence": (f"Let me look. {TAGGED}", "Let me look. ", [UTC]),
    "two calls": (f"{TAGGED}\n<tool_call>{ALL_JSON}</tool_call>", "", [UTC, ALL]),
    "never closed": (f"<tool_call>{UTC_JSON}", "", [UTC]),
    "a brace too many, never closed": (f"<tool_call>{UTC_JSON}}}\n", "", [UTC]),
    "closed by the next": (f"<tool_call>{ALL_JSON}\n{TAGGED}Bye", "Bye", [ALL, UTC]),
    "several in one tag": (f"<tool_call>[{UTC_JSON}, {ALL_JSON}]</tool_call>", "", [UTC, ALL]),
    "closing tag in a string": (
        '<tool_call>{"name": "get_time", "arguments": {"tz": "a</tool_call>b"}}</tool_call>',
        "",
        [("get_time", {"tz": "a</tool_call>b"}, None)],
    ),
    "thought in a string": (
        '<tool_call>{"name": "get_time", "arguments": {"tz": "<think>a</think>"}}</tool_call>',
        "",
        [("get_time", {"tz": "<think>a</think>"}, None)],
    ),
    "bare": (UTC_JSON, "", [UTC]),
    "bare, other keys": ('\n{"parameters": {"tz": "UTC"}, "name": "get_time"}\n', "", [UTC]),
    "bare, a type": ('{"type": "function", "name": "get_time", "parameters": {"tz": "UTC"}}', "", [UTC]),
    "fenced": (f"```json\n{UTC_JSON}\n```\n", "", [UTC]),
    "fenced without a language": (f"\n```\n{UTC_JSON}\n```", "", [UTC]),
    "tags in a fence": (f"```xml\n{TAGGED}\n```", "", [UTC]),
    "prefixed name": (UTC_JSON.replace("get_time", "functions.get_time"), "", [UTC]),
    "arguments as text": ('{"name": "get_time", "arguments": "{\\"tz\\": \\"UTC\\"}"}', "", [UTC]),
    "behind a thought": (f"<think>\nhm\n</think>\n\n{UTC_JSON}", "", [UTC]),
    "thought": ("<think>\nhm\n</think>\n\nNoon.", "Noon.", []),
    "thought in the middle": ("So <think>hm</think>it is.", "So it is.", []),
    "thought without an end": ("Well. <think>hm <tool_call>", "Well. ", []),
    "end of a thought alone": ("</think>Noon.", "Noon.", []),
    "unknown name": (
        f"<tool_call>{UTC_JSON.replace('get_time', 'rm')}</tool_call>Hm.",
        f"{UTC_JSON.replace('get_time', 'rm')}Hm.",
        [],
    ),
    "unknown name, bare": ('{"name": "rm", "arguments": {}}', '{"name": "rm", "arguments": {}}', []),
    "misses a required key": (
        '<tool_call>{"name": "get_time", "arguments": {}}</tool_call>Hm.',
        '{"name": "get_time", "arguments": {}}Hm.',
        [],
    ),
    "arguments are a list": ('{"name": "list_all", "arguments": []}', '{"name": "list_all", "arguments": []}', []),
    "Python": ("<tool_call>{'name': 'list_all', 'arguments': {}}</tool_call>Hm.", "Hm.", [ALL]),
    "broken": ('<tool_call>{"name": "list_all", "arguments": }</tool_call>', '{"name": "list_all", "arguments": }', []),
    "bare and talk": (f"{UTC_JSON}\nThat would call it.", f"{UTC_JSON}\nThat would call it.", []),
    "talk and fenced": (f"Call it so:\n```json\n{UTC_JSON}\n```", f"Call it so:\n```json\n{UTC_JSON}\n```", []),
    "a configuration": ('{"name": "list_all", "version": 1}', '{"name": "list_all", "version": 1}', []),
    "a definition": (
        '{"name": "list_all", "description": "", "parameters": {}}',
        '{"name": "list_all", "description": "", "parameters": {}}',
        [],
    ),
    "a schema": (
        '{"name": "list_all", "parameters": {"type": "object", "properties": {}}}',
        '{"name": "list_all", "parameters": {"type": "object", "properties": {}}}',
        [],
    ),
    "other JSON": ('[{"name": "list_all"}]', '[{"name": "list_all"}]', []),
    "tags in a code span": (
        f"So: `<tool_call>{ALL_JSON}</tool_call>`.",
        f"So: `<tool_call>{ALL_JSON}</tool_call>`.",
        [],
    ),
    "tags in a code block": (f"So:\n```\n{TAGGED}\n```\nOk.", f"So:\n```\n{TAGGED}\n```\nOk.", []),
    "a code block, then a call": (f"```\na\n```\n{TAGGED}", "```\na\n```\n", [UTC]),
    "talk about a tag": ("Put <tool_call> and </tool_call> around it.", "Put  and  around it.", []),
    "an invented result": (f"{TAGGED}\n<tool_response>12</tool_response>\nIt is 12.", "", [UTC]),
    "parts that would make a tag": ("a <tool_<think>b</think>call> c", "a <tool_ call> c", []),
}

XML: dict[str, tuple[str, str, list[Call]]] = {
    **{name: case for name, case in NATIVE.items() if case[2]},
    "text": ("It is noon.", "It is noon.", []),
    "a call that an earlier version showed": (
        DELETION,
        "Done. Next I'm going to delete... ",
        [("delete_user_attribute", {"query": "qwen"}, None)],
    ),
    "text around": (f"First. {TAGGED}\nThen.", "First. \nThen.", [UTC]),
    "unknown name": ('<tool_call>{"name": "rm"}</tool_call>', "", [("rm", {}, None)]),
    "arguments that are no object": ('<tool_call>{"name": "a", "arguments": [1]}</tool_call>', "", [("a", {}, "[1]")]),
    "arguments in Python": ('<tool_call>{"name": "get_time", "arguments": {\'tz\': \'UTC\'}}</tool_call>', "", [UTC]),
    "broken arguments": (
        '<tool_call>{"name": "get_time", "arguments": {"tz": UTC}}</tool_call>',
        "",
        [("get_time", {}, '{"tz": UTC}')],
    ),
    "a brace too few": ('<tool_call>{"name": "get_time", "arguments": {"tz": "UTC"}</tool_call>', "", [UTC]),
    "no name": ('<tool_call>{"a": 1}</tool_call>', "", [("", {}, None)]),
    "neither name nor JSON": ("<tool_call>{a 1}</tool_call>", "", [("", {}, "{a 1}")]),
    "a string that never ends": (
        '<tool_call>{"name": "get_time", "arguments": {"tz": "UTC</tool_call> Well.',
        "Well.",
        [("get_time", {}, '{"tz": "UTC')],
    ),
    "cut off": ('Hm. <tool_call>{"name": "get_t', "Hm. ", [("get_t", {}, '{"name": "get_t')]),
    "another dialect": (
        "<tool_call>get_time<arg_key>tz</arg_key></tool_call>",
        "",
        [("get_time", {}, "get_time<arg_key>tz</arg_key>")],
    ),
    "no number": ('<tool_call>{"name": "a", "arguments": {"b": NaN}}</tool_call>', "", [("a", {}, '{"b": NaN}')]),
    "nothing in the tag": ("a<tool_call></tool_call>b", "ab", []),
    "bare, unknown name": ('{"name": "rm", "arguments": {"a": 1}}', "", [("rm", {"a": 1}, None)]),
    "bare, misses a required key": ('{"name": "get_time", "arguments": {}}', "", [("get_time", {}, None)]),
    "bare, with pieces of a schema": (
        '{"name": "list_all", "arguments": {"type": "object", "required": []}}',
        "",
        [("list_all", {"type": "object", "required": []}, None)],
    ),
    "bare, one after the other": (f'{UTC_JSON}\n{{"name": "rm", "arguments": {{}}}}', "", [UTC, ("rm", {}, None)]),
    "a person in JSON": ('{"name": "Mia", "age": 31}', '{"name": "Mia", "age": 31}', []),
    "a definition in JSON": (
        '{"name": "rm", "parameters": {"type": "object", "properties": {}}}',
        '{"name": "rm", "parameters": {"type": "object", "properties": {}}}',
        [],
    ),
    "arguments that are a list": ('{"name": "rm", "arguments": [1]}', '{"name": "rm", "arguments": [1]}', []),
    "JSON and talk": (
        '{"name": "rm", "arguments": {}}\nThat is how.',
        '{"name": "rm", "arguments": {}}\nThat is how.',
        [],
    ),
    "tags in code": (f"`<tool_call>{ALL_JSON}</tool_call>`", "``", [ALL]),
}

REACT: dict[str, tuple[str, str, list[Call]]] = {
    "text": ("It is noon.\n", "It is noon.\n", []),
    "answer": ("Thought: I know the answer.\nFinal Answer: It is\nnoon.", "It is\nnoon.", []),
    "call": ('Thought: look\nAction: get_time\nAction Input: {"tz": "UTC"}', "", [UTC]),
    "an invented observation": (
        'Action: get_time\nAction Input: {"tz": "UTC"}\nObservation: 12\nThought: so\nFinal Answer: 12',
        "",
        [UTC],
    ),
    "an observation alone": ("It is:\nObservation: 12\nFinal Answer: 12", "It is:", []),
    "an observation without a colon": ("It is noon.\nObservation\n12", "It is noon.", []),
    "begins with that word": ("Observation of stars is an art.", "Observation of stars is an art.", []),
    "only the first call": ("Action: list_all\nAction Input: {}\nAction: get_time\nAction Input: {}", "", [ALL]),
    "input over lines, fenced": ('Action: get_time\nAction Input:\n```json\n{"tz":\n"UTC"}\n```\n', "", [UTC]),
    "junk behind the input": ('Action: get_time\nAction Input: {"tz": "UTC"}<|im_end|>\n\nWait', "", [UTC]),
    "decorated": ('**Thought:** a\n**Action:** `get_time`\n**Action Input:** {"tz": "UTC"}', "", [UTC]),
    "other case and spaces": ('thought : a\n  action: "get_time"()\naction_input: {"tz": "UTC"}', "", [UTC]),
    "all in one line": ('Thought: a. Action: get_time Action Input: {"tz": "UTC"}', "", [UTC]),
    "answer inside a thought": ("Thought: I know. Final Answer: Noon.", "Noon.", []),
    "decorated answer": ("**Final Answer:** Noon.", "Noon.", []),
    "a bold answer": ("Final Answer: **Noon**.", "**Noon**.", []),
    "answer with bold lines": ("Final Answer: Steps:\n**Action:** run", "Steps:\n**Action:** run", []),
    "goes on behind the answer": ("Final Answer: Noon.\nThought: done\nFinal Answer: Noon.", "Noon.", []),
    "a call behind the answer": ("Final Answer: Noon.\nAction: list_all\nAction Input: {}", "Noon.", []),
    "text before the labels": ("Sure!\nThought: a\nFinal Answer: Noon.", "Sure!\nNoon.", []),
    "only a thought": ("Thought: it is noon", "it is noon", []),
    "no input": ("Action: list_all\n", "", [ALL]),
    "no input, unknown name": ("Action: wait", "", []),
    "no tool": ("Thought: a\nAction: None\nAction Input: None\nFinal Answer: Noon.", "Noon.", []),
    "unknown name": ("Action: rm\nAction Input: {}", "", [("rm", {}, None)]),
    "prefixed name": ('Action: functions.get_time\nAction Input: {"tz": "UTC"}', "", [UTC]),
    "input that is no object": ("Action: get_time\nAction Input: UTC", "", [("get_time", {}, "UTC")]),
    "input in Python": ("Action: get_time\nAction Input: {'tz': 'UTC'}", "", [UTC]),
    "broken input": ("Action: get_time\nAction Input: {'tz': 'UTC'", "", [("get_time", {}, "{'tz': 'UTC'")]),
    "empty input": ("Action: list_all\nAction Input:", "", [ALL]),
    "input in the same line": ('Thought: a\nAction: get_time {"tz": "UTC"}', "", [UTC]),
    "input in brackets": ('Action: get_time({"tz": "UTC"})', "", [UTC]),
    "input in the next line": ('Action: get_time\n{"tz": "UTC"}', "", [UTC]),
    "bold lines": ('**Thought**: a\n\n**Action**: get_time\n**Action Input**: {"tz": "UTC"}\n', "", [UTC]),
    "headings": ('### Thought: a\n### Action: get_time\n### Action Input: {"tz": "UTC"}', "", [UTC]),
    "one word": ('Action: get_time\nActionInput: {"tz": "UTC"}', "", [UTC]),
    "capitals": ('THOUGHT: a\nACTION: get_time\nACTION INPUT: {"tz": "UTC"}\nOBSERVATION: 12', "", [UTC]),
    "a token at the end": ('Action: get_time\nAction Input: {"tz": "UTC"}<|im_end|>', "", [UTC]),
    "tokens in the answer": ("Final Answer: Noon.<|im_end|>\n<|im_start|>", "Noon.\n", []),
    "in a sentence": ('Sure. Action: get_time\nAction Input: {"tz": "UTC"}', "Sure. ", [UTC]),
    "in a sentence, no tool": ("Call to Action: buy. Action: sell", "Call to Action: buy. Action: sell", []),
    "in a quotation": ("> It says. Action: list_all", "> It says. Action: list_all", []),
    "a forgotten label": ("Thought: I know.\n\nIt is noon.", "I know.\n\nIt is noon.", []),
    "no labels, reasoning": ("<think>hm</think>\nIt is noon.", "It is noon.", []),
    "label in the input": (
        'Action: get_time\nAction Input: {"tz": "Final Answer: 1"}',
        "",
        [("get_time", {"tz": "Final Answer: 1"}, None)],
    ),
    "label in the middle of a line": ("I said: Final Answer: 12", "I said: Final Answer: 12", []),
    "words like labels": ("Actions: a\nThoughtful: b", "Actions: a\nThoughtful: b", []),
    "reasoning first": ("<think>Action: rm</think>Thought: a\nFinal Answer: Noon.", "Noon.", []),
    "tags all the same": (f"Let me look.\n{TAGGED}\nIt is 12.", "Let me look.\n", [UTC]),
    "bare JSON": (UTC_JSON, "", [UTC]),
    "bare JSON, unknown name": ('{"name": "rm", "arguments": {}}', "", [("rm", {}, None)]),
    "an answer in JSON": ('Final Answer: {"name": "rm", "arguments": {}}', '{"name": "rm", "arguments": {}}', []),
    "a call that an earlier version showed": (
        DELETION,
        "Done. Next I'm going to delete... ",
        [("delete_user_attribute", {"query": "qwen"}, None)],
    ),
}

CASES = {
    f"{format_.value}: {name}": (format_, *case)
    for format_, table in ((ToolFormat.NATIVE, NATIVE), (ToolFormat.XML, XML), (ToolFormat.REACT, REACT))
    for name, case in table.items()
}


@pytest.mark.parametrize(("format_", "reply", "shown", "calls"), CASES.values(), ids=CASES)
def test_a_reply_is_split_into_visible_text_and_calls(
    format_: ToolFormat, reply: str, shown: str, calls: list[Call]
) -> None:
    assert read(build_handler(format_), reply) == (shown, calls)


@pytest.mark.parametrize(("format_", "reply", "shown", "calls"), CASES.values(), ids=CASES)
def test_a_reply_read_character_by_character_gives_the_same_result(
    format_: ToolFormat, reply: str, shown: str, calls: list[Call]
) -> None:
    reader = build_handler(format_).reader(TOOLS)
    pieces = [reader.feed(character) for character in reply]
    rest, found = reader.finish()
    assert ("".join(pieces) + rest, plain(found)) == (shown, calls)


def test_the_thought_of_a_react_reply_is_reasoning() -> None:
    reader = ReActFormatHandler().reader(TOOLS)
    pieces = ("Thought: I", " know", ".\nFinal Ans", "wer: Noon.")
    assert [(reader.feed(piece), reader.reasoning()) for piece in pieces] == [
        ("", " I"),
        ("", " know"),
        ("", "."),
        ("Noon.", ""),
    ]


@pytest.mark.parametrize("format_", ToolFormat)
def test_call_markup_is_removed_from_the_visible_text(format_: ToolFormat) -> None:
    handler = build_handler(format_)
    assert handler.sanitize_response(DELETION) == "Done. Next I'm going to delete..."
    assert "tool_call" not in handler.parse_response(DELETION)[1]


@pytest.mark.parametrize("handler", [ReActFormatHandler(), XMLFormatHandler()])
def test_calls_of_a_whole_reply_are_read_without_the_list_of_tools(handler: ToolFormatHandler) -> None:
    calls, remaining = handler.parse_response(DELETION)
    assert plain(calls) == [("delete_user_attribute", {"query": "qwen"}, None)]
    assert remaining == "Done. Next I'm going to delete... "


def test_the_native_format_reads_no_printed_call_without_the_list_of_tools() -> None:
    assert NativeFormatHandler().parse_response(f"Hm. {TAGGED}") == ((), "Hm. ")


def test_react_removes_every_label() -> None:
    reply = 'Thought: a\nAction: get_time\nAction Input: {"tz": "UTC"}\nObservation: 12\nThought: b'
    assert ReActFormatHandler().sanitize_response(reply) == ""
    assert ReActFormatHandler().sanitize_response("Thought: a\nFinal Answer: Noon.\n") == "Noon."


def test_calls_have_unique_ids() -> None:
    calls, _ = XMLFormatHandler().parse_response(TAGGED * 5)
    assert len({call.id for call in calls}) == 5


def test_the_number_of_calls_of_a_reply_is_bounded() -> None:
    calls, shown = XMLFormatHandler().parse_response(f"{TAGGED}\n" * 50 + "Bye")
    assert (len(calls), shown) == (MAX_CALLS, "Bye")


def test_arguments_that_are_nested_too_deeply_are_not_read() -> None:
    levels = MAX_DEPTH * 20
    text = f'{{"a": {"[" * levels}{"]" * levels}}}'
    calls, _ = ReActFormatHandler().parse_response(f"Action: a\nAction Input: {text}")
    assert plain(calls) == [("a", {}, text)]


def test_text_is_shown_as_soon_as_it_is_known_to_be_text() -> None:
    reader = NativeFormatHandler().reader(TOOLS)
    assert [reader.feed(piece) for piece in ("It ", "is <", "b> ", "noon", ". `<tool", "`\n", "``", "`")] == [
        "It ",
        "is ",
        "<b> ",
        "noon",
        ". ",
        "`<tool`\n",
        "",
        "```",
    ]


def test_an_answer_is_shown_while_it_is_written() -> None:
    reader = ReActFormatHandler().reader(TOOLS)
    pieces = ("Thought: I", " know.\nFinal An", "swer", ": It", " is\n", "noon", "\nObs", "cure.")
    assert [reader.feed(piece) for piece in pieces] == ["", "", "", "It", " is", "\nnoon", "", "\nObscure."]


def test_json_is_shown_as_soon_as_it_cannot_be_a_call() -> None:
    reader = NativeFormatHandler().reader(TOOLS)
    assert reader.feed('```json\n{"na') == ""
    assert reader.feed('me": "Bob",') == '```json\n{"name": "Bob",'
    assert reader.feed(' "age": 1}') == ' "age": 1}'


def test_a_finished_reader_returns_no_more_text() -> None:
    reader = ReActFormatHandler().reader(TOOLS)
    reader.feed("Action: list_all\nAction Input: {}\nObservation: ")
    assert reader.feed("Final Answer: 12") == ""
    assert plain(reader.finish()[1]) == [ALL]
    assert plain(reader.finish()[1]) == [ALL]


@pytest.mark.parametrize("format_", [ToolFormat.NATIVE, ToolFormat.REACT, ToolFormat.XML])
def test_a_handler_knows_its_format(format_: ToolFormat) -> None:
    assert build_handler(format_).format is format_


def test_programs_are_written_in_calls_of_the_api_itself() -> None:
    assert build_handler(ToolFormat.CODE).format is ToolFormat.NATIVE


def test_stop_sequences_end_a_reply_before_it_invents_a_result() -> None:
    assert ReActFormatHandler().stop_sequences() == ("\nObservation:", "\nObservation")
    assert XMLFormatHandler().stop_sequences() == ("<tool_response>",)
    assert NativeFormatHandler().stop_sequences() == ()


def test_xml_is_logged_as_legacy_once(caplog: pytest.LogCaptureFixture) -> None:
    formats._log_legacy_format.cache_clear()
    with caplog.at_level(logging.DEBUG, logger="dial_client"):
        XMLFormatHandler()
        XMLFormatHandler()
    assert [record.getMessage() for record in caplog.records] == ["event='legacy_tool_format' format='xml'"]
