"""Questions with several requests: the embedded model decides about each request in turn."""

from __future__ import annotations

import pytest

from dial_client.messages.message import Failure, Message
from tests.integration.test_grammar_tool_calling import ANSWER, MEASURE, STRING, TIME, Model, asked, tool, write_call

pytestmark = pytest.mark.anyio

LIGHT = tool("set_light", "Switch the light of a room on.", room=STRING)
FILES = tool("list_directory", "List the files in a directory.", path=STRING)
READ = tool("read_file", "Read a text file.", path=STRING)
LIT = ("set_light", {"room": "kitchen"}, "on")
BOTH = "Turn on the kitchen light and tell me how warm the office is."


async def test_the_second_request_is_decided_separately() -> None:
    model = Model(write_call("measure", room="office"), tools=(LIGHT, MEASURE))
    heard = await model.reply_to(*asked(BOTH, LIT))
    assert heard.asked == [("measure", {"room": "office"})]
    assert model.read().endswith("Result: on\n" + '{"answer": "Done."}' + "\ntell me how warm the office is.")


async def test_a_question_is_answered_when_each_request_has_a_result() -> None:
    model = Model("The light is on, and the office has 21 °C.", tools=(LIGHT, MEASURE))
    heard = await model.reply_to(*asked(BOTH, LIT, ("measure", {"room": "office"}, "21 °C")))
    assert heard.text == "The light is on, and the office has 21 °C."
    assert model.asked_for == ["answer"]


async def test_a_question_about_a_second_value_calls_the_same_tool() -> None:
    model = Model(write_call("measure", room="office"), tools=(LIGHT, MEASURE))
    measured = ("measure", {"room": "kitchen"}, "21 °C")
    heard = await model.reply_to(*asked("Is the kitchen warm, and what about the office?", measured))
    assert heard.asked == [("measure", {"room": "office"})]
    assert not model.could_say(write_call("set_light", room="office"))


async def test_the_word_there_is_replaced_by_the_value_of_the_previous_call() -> None:
    model = Model(write_call("measure", room="there"), write_call("measure", room="kitchen"), tools=(LIGHT, MEASURE))
    heard = await model.reply_to(*asked("Turn on the kitchen light, and tell me if it is warm", LIT))
    assert heard.asked == [("measure", {"room": "kitchen"})]
    assert not model.could_say(write_call("measure", room="hall"))


async def test_a_listed_file_is_read_with_the_path_of_its_folder() -> None:
    listed = ("list_directory", {"path": "/docs/recipes"}, "soup.txt")
    model = Model(write_call("read_file", path="soup.txt"), tools=(FILES, READ))
    heard = await model.reply_to(*asked("List the files in /docs/recipes, then read the recipe.", listed))
    assert heard.asked == [("read_file", {"path": "/docs/recipes/soup.txt"})]


async def test_a_second_name_after_and_calls_the_same_tool() -> None:
    model = Model(write_call("measure", room="office"), tools=(LIGHT, MEASURE))
    heard = await model.reply_to(
        *asked("How warm are the kitchen and the office?", ("measure", {"room": "kitchen"}, "21"))
    )
    assert heard.asked == [("measure", {"room": "office"})]
    assert not model.could_say(write_call("measure", room="kitchen"))
    assert not model.could_say(ANSWER)


async def test_a_note_after_the_answer_names_a_request_without_a_call() -> None:
    model = Model(write_call("get_time", zone="Nowhere"), "The light is on.", tools=(LIGHT, TIME))
    heard = await model.reply_to(*asked("Turn on the kitchen light and tell me when the bakery opens.", LIT))
    assert heard.asked == []
    assert heard.text == "The light is on.\n\nI have not looked up: \u201ctell me when the bakery opens\u201d."


async def test_a_request_that_earlier_results_answer_needs_no_call_and_no_note() -> None:
    model = Model(ANSWER, "The kitchen light is on.", tools=(LIGHT, MEASURE))
    heard = await model.reply_to(*asked("Turn on the kitchen light and tell me which one it is.", LIT))
    assert heard.text == "The kitchen light is on."


async def test_no_further_request_is_decided_after_a_failure() -> None:
    model = Model(tools=(LIGHT, TIME))
    failed = ("set_light", {"room": "kitchen"}, Failure.TOOL)
    heard = await model.reply_to(*asked("Turn on the kitchen light and tell me a story.", failed))
    assert heard.text.startswith("I could not find that out: the call of set_light failed.")


async def test_the_first_decision_is_made_for_the_first_request() -> None:
    model = Model(write_call("set_light", room="kitchen"), tools=(LIGHT, MEASURE))
    heard = await model.reply_to(Message.user(BOTH))
    assert heard.asked == [("set_light", {"room": "kitchen"})]
    assert model.read() == "Turn on the kitchen light"


async def test_a_first_request_without_a_call_leads_to_a_decision_about_the_whole_question() -> None:
    model = Model(ANSWER, write_call("measure", room="office"), tools=(LIGHT, MEASURE))
    heard = await model.reply_to(Message.user("Tell me a joke and tell me how warm the office is."))
    assert heard.asked == [("measure", {"room": "office"})]
    assert model.read().endswith("Tell me a joke and tell me how warm the office is.")


async def test_a_quantity_in_another_unit_is_converted_without_asking_the_model() -> None:
    amount, code = {"type": "number"}, {"enum": ["C", "F"]}
    convert = tool("convert_units", "Convert a temperature.", value=amount, from_unit=code, to_unit=code)
    model = Model(tools=(MEASURE, convert))
    heard = await model.reply_to(
        *asked("How warm is the office in Fahrenheit?", ("measure", {"room": "office"}, "21 °C"))
    )
    assert heard.asked == [("convert_units", {"value": 21, "from_unit": "C", "to_unit": "F"})]


async def test_a_conversion_whose_result_has_no_unit_is_made_once() -> None:
    amount, code = {"type": "number"}, {"enum": ["C", "F"]}
    convert = tool("convert_units", "Convert a temperature.", value=amount, from_unit=code, to_unit=code)
    model = Model("The office has 69.8 degrees Fahrenheit.", tools=(MEASURE, convert))
    made = ("convert_units", {"value": 21, "from_unit": "C", "to_unit": "F"}, "69.8")
    measured = ("measure", {"room": "office"}, "21 °C")
    heard = await model.reply_to(*asked("How warm is the office in Fahrenheit?", measured, made))
    assert (heard.asked, heard.text) == ([], "The office has 69.8 degrees Fahrenheit.")


async def test_a_note_says_that_no_tool_converts_the_unit() -> None:
    model = Model("The office has 21 °C.", tools=(MEASURE, TIME))
    heard = await model.reply_to(
        *asked("How warm is the office in Fahrenheit?", ("measure", {"room": "office"}, "21 °C"))
    )
    note = "The result is in C: no connected tool converts it to Fahrenheit."
    assert heard.text == f"The office has 21 °C.\n\n{note}"


async def test_the_content_of_a_message_is_looked_up_before_sending() -> None:
    send = tool("send_message", "Send a message.", text=STRING)
    model = Model(
        write_call("send_message", text="The kitchen is warm."),
        write_call("measure", room="kitchen"),
        tools=(send, MEASURE),
    )
    heard = await model.reply_to(Message.user("Send the temperature of the kitchen."))
    assert heard.asked == [("measure", {"room": "kitchen"})]
    assert heard.completion.echo == {"then": "send_message"}


@pytest.mark.parametrize(
    "question", ["Send that the kitchen is warm.", 'Send "the kitchen is warm".', "Send a greeting."]
)
async def test_a_message_with_a_given_text_is_sent_at_once(question: str) -> None:
    send = tool("send_message", "Send a message.", text=STRING)
    model = Model(write_call("send_message", text="The kitchen is warm."), tools=(send, MEASURE))
    assert (await model.reply_to(Message.user(question))).asked == [("send_message", {"text": "The kitchen is warm."})]
