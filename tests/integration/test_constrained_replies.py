"""Grammars of requests: endpoints that support a grammar get it in their own field."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.inner import (
    CHAT,
    ConfigError,
    Message,
    ReActFormatHandler,
    ToolCallRequest,
    ToolCallResult,
    ToolFormatHandler,
    ToolSpec,
    XMLFormatHandler,
    apply_quirks,
)
from tests.support.gbnf_acceptor import accepts
from tests.support.model_endpoint import Say, hear, model_endpoint, provider_of, refuse

GRAMMAR = 'root ::= "yes" | "no"\n'
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
ADD = ToolSpec("add", "Adds.", SCHEMA)


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize(
    ("constrain", "sent"),
    [
        ("none", {}),
        ("grammar", {"grammar": GRAMMAR}),
        ("structured_outputs", {"structured_outputs": {"grammar": GRAMMAR}}),
    ],
)
async def test_a_grammar_is_sent_in_the_field_of_the_endpoint(constrain: str, sent: dict[str, Any]) -> None:
    with model_endpoint([Say("yes")]) as endpoint:
        provider = provider_of(endpoint, quirks={"constrain": constrain})
        assert (await hear(provider, grammar=GRAMMAR)).text == "yes"
        await hear(provider)
        await provider.aclose()
        held, free = (request.json for request in endpoint.requests)
    fields = {"grammar", "structured_outputs"}
    assert {name: held[name] for name in fields & held.keys()} == sent
    assert not fields & free.keys()


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_request_is_repeated_without_a_refused_grammar() -> None:
    with model_endpoint([refuse(400, "Unrecognized request argument supplied: grammar"), Say("maybe")]) as endpoint:
        provider = provider_of(endpoint, quirks={"constrain": "grammar"})
        heard = await hear(provider, grammar=GRAMMAR)
        await provider.aclose()
        assert "grammar" not in endpoint.requests[-1].json
    assert heard.text == "maybe"
    assert heard.completion.notes == ("the endpoint does not accept grammar: it is left out",)


def test_an_unknown_value_of_constrain_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match='expected one of "none", "grammar", "structured_outputs"'):
        apply_quirks(CHAT, {"constrain": "lark"}, "models.x")


@pytest.mark.parametrize(
    ("reply", "is_accepted"),
    [
        ('Thought: add it\nAction: add\nAction Input: {"a": 1}', True),
        ("Thought: I know it.\nFinal Answer: It is:\n\n* one", True),
        ('Action: add\nAction Input: {"a": 1}', False),
        ('Thought: add it\nAction: multiply\nAction Input: {"a": 1}', False),
        ('Thought: add it\nAction: add\nAction Input: {"b": 1}', False),
        ("Thought: \nFinal Answer: 1", False),
    ],
)
def test_a_react_reply_is_constrained_to_its_syntax(reply: str, is_accepted: bool) -> None:
    request = ReActFormatHandler().request([Message.user("What is 1 + 1?")], (ADD,))
    assert accepts(request.grammar, reply) is is_accepted


@pytest.mark.parametrize(
    ("reply", "is_accepted"),
    [
        ('<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>', True),
        ('Let me see.\n<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>', True),
        (2 * '\n<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>', False),
        ("\n".join(2 * ['<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>']), True),
        ("1 < 2, <b>bold</b> and a <table>.\n\n```json\n{}\n```", True),
        ('<tool_call>\n{"name": "multiply", "arguments": {"a": 1}}\n</tool_call>', False),
        ('<tool_call>\n{"name": "add", "arguments": {"b": 1}}\n</tool_call>', False),
        ('Let me see. <tool_call>\n{"name": "add", "arguments": {"b": 1}}\n</tool_call>', False),
        ('<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>\nIt is 2.', False),
        ('{"name": "add", "arguments": {"a": 1}}', True),
        ('{"name": "add", "arguments": {"b": 1}}', False),
        ('{"name": "multiply", "arguments": {"a": 1}}', False),
    ],
)
def test_an_xml_reply_is_constrained_to_its_syntax(reply: str, is_accepted: bool) -> None:
    request = XMLFormatHandler().request([Message.user("What is 1 + 1?")], (ADD,))
    assert accepts(request.grammar, reply) is is_accepted


PLACES = {
    "type": "object",
    "properties": {"places": {"type": "array", "items": {"$ref": "#/$defs/Place"}}},
    "required": ["places"],
    "$defs": {
        "Place": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "near": {"type": "array", "items": {"$ref": "#/$defs/Place"}}},
            "required": ["name"],
        }
    },
}
GOOD = '{"places": [{"name": "a", "near": [{"name": "b"}]}]}'
BAD = '{"places": [{"name": "a", "near": [{"title": "b"}]}]}'
CALL = {
    ReActFormatHandler: 'Action: add\nAction Input: {"a": 1}',
    XMLFormatHandler: '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>',
}


@pytest.mark.parametrize("handler", [ReActFormatHandler(), XMLFormatHandler()])
@pytest.mark.parametrize("tools", [(), (ADD,)])
def test_a_typed_answer_is_constrained_to_its_schema(handler: Any, tools: tuple[ToolSpec, ...]) -> None:
    question = [Message.user("Which places?")]
    request = handler.constrain_answer(handler.request(question, tools), tools, PLACES)
    is_react = bool(tools) and isinstance(handler, ReActFormatHandler)
    label = "Thought: I know.\nFinal Answer: " if is_react else ""
    assert accepts(request.grammar, label + GOOD)
    assert not accepts(request.grammar, label + BAD)
    assert not accepts(request.grammar, f"{label}Here.")
    call = "Thought: add.\n" * is_react + CALL[type(handler)]
    assert accepts(request.grammar, call) is bool(tools)


def test_a_schema_of_a_typed_answer_has_the_react_labels() -> None:
    handler = ReActFormatHandler()
    schema = handler.constrain_answer(handler.request([Message.user("Which?")], (ADD,)), (ADD,), PLACES).schema
    assert schema is not None
    assert schema["$defs"] == PLACES["$defs"]
    assert schema["anyOf"][-1]["properties"]["Final Answer"]["properties"]["places"]["items"] == {
        "$ref": "#/$defs/Place"
    }


def test_after_results_an_xml_call_needs_its_tags() -> None:
    call = ToolCallRequest("1", "add", {"a": 1})
    asked = [Message.user("1 + 1?"), Message.assistant("", (call,)), Message.tool(call, ToolCallResult("1", True, "2"))]
    grammar = XMLFormatHandler().request(asked, (ADD,)).grammar
    assert not accepts(grammar, '{"name": "add", "arguments": {"a": 1}}')
    assert accepts(grammar, '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>')
    assert accepts(grammar, "It is 2.")


@pytest.mark.parametrize("handler", [ReActFormatHandler, XMLFormatHandler])
def test_without_tools_a_reply_is_not_constrained(handler: Callable[[], ToolFormatHandler]) -> None:
    assert handler().request([Message.user("Hi")], ()).grammar == ""
