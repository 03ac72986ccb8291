"""Arguments of the embedded model's tool calls: corrected from the conversation, and never a folder that is unnamed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dial_client.messages.message import Message, Role, ToolCallRequest, ToolCallResult, ToolSpec
from dial_client.messages.model import FinishReason
from dial_client.providers.embedded.fixed_replies import NO_TOOL_FITS
from dial_client.providers.grammar_tool_calling import REPEATED, GrammarToolCallingProvider
from dial_client.providers.scripted import ScriptedProvider
from tests.support.model_endpoint import ParsedReply, hear

pytestmark = pytest.mark.anyio


def tool(name: str, description: str, **properties: Any) -> ToolSpec:
    return ToolSpec(name, description, {"type": "object", "properties": properties, "required": list(properties)})


TIME = tool("get_time", "Get the time.", zone={"description": "IANA time zone. Use 'UTC' if no zone is given."})
SEND = tool(
    "send_message",
    "Send a message to an e-mail address.",
    to={"type": "string", "description": "The receiver's e-mail address"},
    text={"type": "string"},
)
STATUS = tool("git_status", "Show the status of a repository.", repo_path={"type": "string"})


async def ask_with_call(tool: ToolSpec, *messages: Message, **arguments: Any) -> ParsedReply:
    """Return the reply for the messages, when the model calls the tool with the arguments."""
    reply = json.dumps({"tool": tool.name, "arguments": arguments})
    return await hear(GrammarToolCallingProvider(ScriptedProvider([reply])), *messages, tools=(tool,))


def refused(question: str, repo_path: str) -> list[Message]:
    """Return a turn whose call was refused, with an error that names the allowed folder."""
    call = ToolCallRequest("c1", STATUS.name, {"repo_path": repo_path})
    error = f"Repository path '{repo_path}' is outside the allowed repository '/srv/shop'"
    result = Message.tool(call, ToolCallResult("c1", success=False, content=error))
    return [Message.user(question), Message(Role.ASSISTANT, "", (call,)), result]


async def test_a_city_is_replaced_by_its_time_zone() -> None:
    heard = await ask_with_call(TIME, Message.user("What time is it in London?"), zone="London")
    assert heard.asked == [("get_time", {"zone": "Europe/London"})]


async def test_a_default_in_the_description_is_used_for_a_missing_argument() -> None:
    heard = await ask_with_call(TIME, Message.user("What time is it?"), zone="Asia/Tokyo")
    assert heard.asked == [("get_time", {"zone": "UTC"})]


async def test_a_repository_that_the_question_does_not_name_is_the_current_folder() -> None:
    heard = await ask_with_call(STATUS, Message.user("Show me the git status"), repo_path="/home/ada/git")
    assert heard.asked == [("git_status", {"repo_path": "."})]


async def test_an_unnamed_folder_is_replaced_by_the_allowed_folder() -> None:
    heard = await ask_with_call(STATUS, *refused("Show me the git status", "."), repo_path="/home/ada/git")
    assert heard.asked == [("git_status", {"repo_path": "/srv/shop"})]


async def test_a_named_folder_is_not_replaced_by_the_allowed_folder() -> None:
    heard = await ask_with_call(
        STATUS, *refused("Show me the git status of /srv/inn", "/srv/inn"), repo_path="/srv/inn"
    )
    assert heard.asked == []
    assert "/srv/inn" in heard.text


async def test_an_answer_that_repeats_itself_is_cut_off_with_a_note() -> None:
    reply = {"text": "".join(f"{at}. Sunscreen: 100% SPF {at}\n" for at in range(99)), "chunk_size": 40}
    provider = GrammarToolCallingProvider(ScriptedProvider(['{"answer"}', reply]))
    heard = await hear(provider, Message.user("Give me a packing list"), tools=(TIME,))
    assert heard.text.count("Sunscreen") < 30
    assert (heard.completion.finish, heard.completion.notes) == (FinishReason.LENGTH, (REPEATED,))


async def test_a_general_question_is_answered_without_a_request_for_arguments() -> None:
    diff = tool("git_diff", "Compare two revisions in git.", revision={"type": "string"})
    call = json.dumps({"tool": "git_diff", "arguments": {"revision": "12"}})
    provider = GrammarToolCallingProvider(ScriptedProvider([call, "Rebase rewrites."]))
    question = "What is the difference between git merge and git rebase?"
    assert (await hear(provider, Message.user(question), tools=(diff,))).text == "Rebase rewrites."
    provider = GrammarToolCallingProvider(ScriptedProvider([call]))
    assert "you have not said its revision" in (await hear(provider, Message.user("git diff"), tools=(diff,))).text


async def test_a_question_about_a_file_is_decided_again_without_tools() -> None:
    provider = GrammarToolCallingProvider(ScriptedProvider(['{"answer"}', '{"unknown"}']))
    heard = await hear(provider, Message.user("What does README.md say?"), tools=(TIME,))
    assert heard.text == NO_TOOL_FITS
    provider = GrammarToolCallingProvider(ScriptedProvider(['{"answer"}', '{"answer"}', "# Garden"]))
    heard = await hear(provider, Message.user("Write a README.md for a garden"), tools=(TIME,))
    assert heard.text == "# Garden"


async def test_no_message_is_sent_to_a_name_without_an_address() -> None:
    question = "Send a message to Ruth Okafor that the budget is approved."
    heard = await ask_with_call(SEND, Message.user(question), to="Ruth Okafor", text="The budget is approved")
    assert heard.asked == []
    assert "you have not said its to (The receiver's e-mail address)" in heard.text


async def test_a_name_is_replaced_by_its_address_from_the_conversation() -> None:
    question = "Send a message to Ruth Okafor, ruth@example.test, that the budget is approved."
    heard = await ask_with_call(SEND, Message.user(question), to="Ruth Okafor", text="The budget is approved")
    assert heard.asked == [("send_message", {"to": "ruth@example.test", "text": "The budget is approved"})]
