"""An answer that only repeats the question is requested once more."""

from __future__ import annotations

import pytest

from dial_client.messages.message import Message
from dial_client.providers.embedded.echo import Opening
from dial_client.providers.grammar_tool_calling import GrammarToolCallingProvider
from dial_client.providers.scripted import ScriptedProvider
from tests.support.model_endpoint import hear

QUESTION = "How do I remove duplicates from an array in JavaScript?"


def feed_words(question: str, answer: str) -> tuple[list[str], bool, str]:
    """Feed an answer word by word; return the shown pieces, whether the answer is an echo, and the text held back."""
    opening = Opening(question)
    shown = [opening.feed(f"{word} ") for word in answer.split(" ")]
    return [piece for piece in shown if piece], opening.is_echo, opening.finish()


def test_a_repeated_question_is_an_echo_and_is_not_shown() -> None:
    shown, is_echo, _ = feed_words(QUESTION, "How can I remove duplicates from an array in JavaScript without a loop?")
    assert (shown, is_echo) == ([], True)


def test_a_paraphrased_question_is_an_echo() -> None:
    again = "Can you explain the differences between TCP and UDP in terms of their use cases and performance?"
    assert feed_words("What's the difference between TCP and UDP?", again)[:2] == ([], True)


@pytest.mark.parametrize(
    "answer",
    [
        "To remove duplicates from an array, use a Set: it keeps each value once.",
        "Use a Set. Do you want an example?",
        "Which array do you mean, and what should happen to values that are almost equal to others?",
    ],
)
def test_an_answer_that_is_no_echo_is_streamed(answer: str) -> None:
    shown, is_echo, rest = feed_words(QUESTION, answer)
    assert not is_echo
    assert "".join(shown).strip() == answer
    assert (len(shown) > 3, rest) == (True, "")


def test_a_short_answer_is_shown_at_its_end() -> None:
    assert feed_words("Is 7 a prime number?", "Yes") == ([], False, "Yes ")


def test_the_answer_to_a_message_that_is_no_question_is_not_held_back() -> None:
    assert feed_words("hi!", "Hi! How are you?")[0][0] == "Hi! "


@pytest.mark.anyio
async def test_an_echo_is_requested_again_only_once() -> None:
    echo = "How can I remove duplicates from an array in JavaScript?"
    model = ScriptedProvider(['{"answer"}', echo, "Use a Set.", '{"answer"}', echo, echo])
    provider = GrammarToolCallingProvider(model)
    reply = await hear(provider, Message.user(QUESTION))
    assert reply.text == "Use a Set."
    assert model.requests[2].messages[-1].text.endswith("Your answer:")
    assert (await hear(provider, Message.user(QUESTION))).text == echo
