"""Typed answers of the embedded model: first a decision about tools, then an answer constrained to its schema."""

from __future__ import annotations

import pytest

from tests.inner import NO_TOOL_FITS, Api, Failure, FinishReason, Message, OutputFormat
from tests.integration.test_grammar_tool_calling import MEASURE, UNKNOWN, Model, asked, write_call
from tests.support.model_endpoint import Say, hear, model_endpoint, provider_of

pytestmark = pytest.mark.anyio

FORM = OutputFormat("Reading", {"type": "object", "properties": {"degrees": {"type": "integer"}}})
QUESTION = "How warm is the kitchen?"


async def test_the_tools_are_called_before_the_answer() -> None:
    model = Model(write_call("measure", room="kitchen"), tools=(MEASURE,))
    heard = await model.reply_to(Message.user(QUESTION), output_format=FORM)
    assert heard.asked == [("measure", {"room": "kitchen"})]
    assert model.plain.requests[0].output_format is None


async def test_an_answer_from_results_fits_the_schema() -> None:
    model = Model('{"degrees": 21}', tools=(MEASURE,))
    heard = await model.reply_to(*asked(QUESTION, ("measure", {"room": "kitchen"}, "21 degrees")), output_format=FORM)
    assert (heard.text, heard.completion.finish) == ('{"degrees": 21}', FinishReason.STOP)
    last = model.plain.requests[-1]
    assert (last.output_format, last.grammar, last.tools) == (FORM, "", ())
    assert '"degrees"' in last.instruction_text
    assert "21 degrees" in last.messages[-1].text


async def test_without_tools_no_decision_is_requested() -> None:
    model = Model('{"degrees": 21}', tools=())
    assert (
        await model.reply_to(Message.user("The kitchen has 21 degrees."), output_format=FORM)
    ).text == '{"degrees": 21}'
    assert len(model.plain.requests) == 1


@pytest.mark.parametrize("rounds", [(), (("measure", {"room": "kitchen"}, Failure.TOOL),)])
async def test_an_unknown_answer_is_refused_and_not_invented(
    rounds: tuple[tuple[str, dict[str, str], Failure], ...],
) -> None:
    model = Model(UNKNOWN, UNKNOWN, UNKNOWN, tools=(MEASURE,))
    heard = await model.reply_to(*asked("Who is the mayor at the moment?", *rounds), output_format=FORM)
    assert heard.completion.finish is FinishReason.REFUSED
    assert heard.text == NO_TOOL_FITS if not rounds else "failed" in heard.text


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_the_inference_server_gets_the_schema_instead_of_a_grammar() -> None:
    with model_endpoint([Say("{}")]) as endpoint:
        quirks = {"constrain": "grammar", "structured_output": "without_tools"}
        provider = provider_of(endpoint, Api.CHAT, quirks=quirks)
        await hear(provider, output_format=FORM)
        await provider.aclose()
        body = endpoint.requests[0].json
    assert body["response_format"]["json_schema"]["schema"] == FORM.schema
    assert "grammar" not in body
