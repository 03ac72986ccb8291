"""A bot in a chat room: each thread is a conversation, and a participant of the thread approves its calls."""

import asyncio
import os

import dial_client as dc

MODEL = os.environ.get("DIAL_MODEL", "local")


def post(thread: str, text: str) -> None:
    print(f"[{thread[:4]}]: {text}")  # in Slack: chat.postMessage


async def wait_for_reaction(thread: str) -> str:
    return "yes" if thread else "no"  # in Slack: the event reaction_added; the turn's timeout does not count the wait


async def approve(call: dc.ToolCallRequest, tool: dc.ToolSpec, context: dc.ApprovalContext) -> dc.Approval:
    post(context.conversation_id, f"May I run {tool.name}({dict(call.arguments)})?")
    reaction = await wait_for_reaction(context.conversation_id)
    return dc.Approval("once") if reaction == "yes" else dc.Approval("deny", "a person in the thread said no")


def deploy(version: str) -> str:
    """Deploy a version of the shop."""
    return f"version {version} is live"


async def main() -> None:
    async with dc.DialClient(MODEL, tools=[deploy], approve=approve) as dial:
        chat = dial.conversation()  # one for each thread
        post(chat.id, (await chat.send("Deploy version 1.2 of the shop.")).text)


asyncio.run(main())
