"""Scores of the embedded model's tool calls: token probabilities decide whether a call is made."""

from __future__ import annotations

from typing import Any

import pytest

from tests.inner import (
    READ_THRESHOLD,
    DecisionProvider,
    Endpoint,
    EndpointProfile,
    GrammarToolCallingProvider,
    Message,
    ToolSpec,
    score_decision,
)
from tests.support.model_endpoint import ParsedReply, Raw, Say, hear, model_endpoint, one_json

pytestmark = pytest.mark.anyio

TIME = ToolSpec(
    "get_time", "Get the time.", {"type": "object", "properties": {"zone": {"type": "string"}}, "required": ["zone"]}
)
NAME = [("get", -0.1), ("_time", -0.4), ('",', 0.0)]
SURE = [('{"', 0.0), ("tool", -0.2), ('":', 0.0), (' "', 0.0), *NAME, (' "', -9.0)]
"""The tokens of a call, with their log-probabilities."""


def tokens(pairs: list[tuple[str, float]], **key_words: float) -> list[dict[str, Any]]:
    """Return tokens in the form of chat completions; `key_words` are the likeliest alternatives of the second token."""
    likeliest = [{"token": word, "logprob": logprob} for word, logprob in key_words.items()]
    return [
        {"token": token, "logprob": logprob, "top_logprobs": likeliest if at == 1 else []}
        for at, (token, logprob) in enumerate(pairs)
    ]


def test_a_call_is_scored_by_its_key_word_and_its_name_but_not_by_its_arguments() -> None:
    score = score_decision(tokens(SURE, tool=-0.2, answer=-3.2, unknown=-4.0))
    assert score is not None
    assert score[0] == pytest.approx(3.0 - 0.5)
    assert score[0] > READ_THRESHOLD


def test_a_name_with_a_low_probability_that_the_grammar_forced_is_no_call() -> None:
    forced = [(token, -9.0 if token == "get" else logprob) for token, logprob in SURE]
    score = score_decision(tokens(forced, tool=-0.9, answer=-0.7, unknown=-4.0))
    assert score is not None
    assert score[0] < READ_THRESHOLD


@pytest.mark.parametrize(("unknown", "is_unknown"), [(-0.5, True), (-1.2, True), (-3.0, False)])
def test_a_reply_without_a_call_is_an_answer_or_unknown(unknown: float, is_unknown: bool) -> None:
    answer = [('{"', 0.0), ("answer", -0.5), ('"}', -3.0)]
    score = score_decision(tokens(answer, answer=-0.5, unknown=unknown))
    assert score is not None
    assert score[1] is is_unknown
    assert score[0] < READ_THRESHOLD


def test_without_probabilities_there_is_no_score() -> None:
    assert score_decision([]) is None
    assert score_decision([{"token": '{"', "logprob": 0.0, "top_logprobs": []}]) is None


CALL = '{"tool": "get_time", "arguments": {"zone": "Asia/Tokyo"}}'


def decision(text: str, content: list[dict[str, Any]]) -> Raw:
    """Return a complete chat completions response with the probabilities of its tokens."""
    choice = {"index": 0, "message": {"content": text}, "finish_reason": "stop", "logprobs": {"content": content}}
    return one_json({"object": "chat.completion", "choices": [choice]})


async def reply(
    *answers: Raw | Say, question: str = "What time is it in Tokyo?", tools: tuple[ToolSpec, ...] = (TIME,)
) -> ParsedReply:
    with model_endpoint(answers) as endpoint:
        profile = EndpointProfile(constrain="grammar", tool_choice=False)
        model = DecisionProvider("m", Endpoint(f"{endpoint.url}/v1"), profile)
        provider = GrammarToolCallingProvider(model)
        try:
            return await hear(provider, Message.user(question), tools=tools, stream=False)
        finally:
            await provider.aclose()


async def test_a_likely_call_is_made() -> None:
    heard = await reply(decision(CALL, tokens(SURE, tool=-0.2, answer=-3.2)))
    assert [(call.name, call.arguments) for call in heard.calls] == [("get_time", {"zone": "Asia/Tokyo"})]


async def test_an_unlikely_call_is_not_made_and_the_question_is_answered() -> None:
    forced = [(token, -9.0 if token == "get" else logprob) for token, logprob in SURE]
    heard = await reply(decision(CALL, tokens(forced, tool=-0.9, answer=-0.7)), Say("I would look at a clock."))
    assert (heard.calls, heard.text) == ([], "I would look at a clock.")


def tool(name: str, description: str, /, **properties: Any) -> ToolSpec:
    return ToolSpec(name, description, {"type": "object", "properties": properties, "required": list(properties)})


PARCEL = tool("track_parcel", "Find a parcel.", number={"type": "string"})
SEND = tool("send_parcel", "Send a parcel.", number={"type": "string"})
CONTACT = tool("find_contact", "Look a person up in the address book: e-mail, phone and city.", name={"type": "string"})
RESET = tool("git_reset", "Unstage all staged changes.", repo_path={"type": "string"})


@pytest.mark.parametrize(
    ("question", "tool", "argument", "logprob", "is_made"),
    [
        ("What is the time in Tokyo?", TIME, "Asia/Tokyo", -6.0, True),
        ("What is the time in Tokyo?", TIME, "Asia/Tokyo", -8.0, False),
        ("What is the time there?", TIME, "Asia/Tokyo", -6.0, False),
        ("Write a poem about Tokyo.", TIME, "Asia/Tokyo", -6.0, False),
        ("The parcel PX-771, where is it?", SEND, "PX-771", -6.0, False),
        ("Send the parcel PX-771.", SEND, "PX-771", -4.0, False),
        ("Send the parcel PX-771.", SEND, "PX-771", -1.0, True),
        ("What is a leap year?", CONTACT, "leap year", -6.0, False),
        ("How do I undo my last commit but keep the changes?", RESET, ".", -2.5, False),
    ],
    ids=[
        "said", "too unlikely", "not said", "another subject", "it writes", "it writes, unlikely", "it writes, likely",
        "a leap year is no contact", "how to undo is no order to undo",
    ],
)  # fmt: skip
async def test_an_unlikely_call_is_made_only_if_it_reads_what_the_question_names(
    question: str, tool: ToolSpec, argument: str, logprob: float, is_made: bool
) -> None:
    [name] = tool.input_schema["required"]
    text = f'{{"tool": "{tool.name}", "arguments": {{"{name}": "{argument}"}}}}'
    written = [('{"', 0.0), ("tool", -0.2), ('": "', 0.0), (tool.name, logprob), ('", ', 0.0)]
    heard = await reply(
        decision(text, tokens(written, tool=-0.7, answer=-0.7)), Say("I do not know."), question=question, tools=(tool,)
    )
    assert [call.arguments for call in heard.calls] == ([{name: argument}] if is_made else [])
    assert bool(heard.calls) or heard.text == "I do not know."


async def test_an_unlikely_call_gives_way_to_a_tool_that_shares_a_word_with_the_question() -> None:
    first = decision(
        '{"tool": "get_time", "arguments": {"zone": "PX"}}', tokens([*SURE[:4], ("get", -9.0)], tool=-0.7, answer=-0.7)
    )
    second = decision('{"tool": "track_parcel", "arguments": {"number": "PX-771"}}', tokens(SURE, tool=-0.7))
    heard = await reply(first, second, question="Where is my parcel PX-771?", tools=(TIME, PARCEL))
    assert [(call.name, call.arguments) for call in heard.calls] == [("track_parcel", {"number": "PX-771"})]
