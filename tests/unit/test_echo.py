"""An answer that only asks the question again is asked for once more."""

from __future__ import annotations

import pytest

from dial_client.local.echo import Opening
from dial_client.messages.message import Message
from dial_client.providers.grammar_tool_calling import GrammarToolCallingProvider
from dial_client.providers.scripted import ScriptedProvider
from tests.support.model_endpoint import hear

QUESTION = "How do I remove duplicates from an array in JavaScript?"


def played(question: str, answer: str) -> tuple[list[str], bool, str]:
    """Return the pieces that were shown word by word, whether the answer is an echo, and what was held to the end."""
    opening = Opening(question)
    shown = [opening.feed(f"{word} ") for word in answer.split(" ")]
    return [piece for piece in shown if piece], opening.is_echo, opening.finish()


def test_the_question_over_again_is_an_echo_and_never_shown() -> None:
    shown, is_echo, _ = played(QUESTION, "How can I remove duplicates from an array in JavaScript without a loop?")
    assert (shown, is_echo) == ([], True)


def test_the_question_given_back_to_the_user_in_other_words_is_an_echo() -> None:
    again = "Can you explain the differences between TCP and UDP in terms of their use cases and performance?"
    assert played("What's the difference between TCP and UDP?", again)[:2] == ([], True)


@pytest.mark.parametrize(
    "answer",
    [
        "To remove duplicates from an array, use a Set: it keeps each value once.",
        "Use a Set. Do you want an example?",
        "Which array do you mean, and what should happen to values that are almost equal to others?",
    ],
)
def test_another_answer_is_shown_as_it_comes(answer: str) -> None:
    shown, is_echo, rest = played(QUESTION, answer)
    assert not is_echo
    assert "".join(shown).strip() == answer
    assert (len(shown) > 3, rest) == (True, "")


def test_a_short_answer_is_shown_at_its_end() -> None:
    assert played("Is 7 a prime number?", "Yes") == ([], False, "Yes ")


def test_what_is_no_question_is_never_held_back() -> None:
    assert played("hi!", "Hi! How are you?")[0][0] == "Hi! "


@pytest.mark.anyio
async def test_the_model_is_asked_once_more_and_no_further() -> None:
    echo = "How can I remove duplicates from an array in JavaScript?"
    model = ScriptedProvider(['{"answer"}', echo, "Use a Set.", '{"answer"}', echo, echo])
    provider = GrammarToolCallingProvider(model)
    heard = await hear(provider, Message.user(QUESTION))
    assert heard.text == "Use a Set."
    assert model.requests[2].messages[-1].text.endswith("Your answer:")
    assert (await hear(provider, Message.user(QUESTION))).text == echo
