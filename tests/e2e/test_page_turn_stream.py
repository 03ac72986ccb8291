"""The page's turn stream, run by Node: it follows a turn whose process ends or hands it over."""

from __future__ import annotations

import json
from typing import Any

from tests.support.node_program import import_from, needs_node, run_node

GONE = 'event: error\ndata: {"type": "TurnLost", "message": "nobody knows"}\n\ndata: [DONE]\n\n'
LEFT = 'event: error\ndata: {"type": "ConversationBusy", "message": "another one goes on"}\n\ndata: [DONE]\n\n'
ENDED = 'event: done\ndata: {"stop_reason": "answered"}\n\ndata: [DONE]\n\n'

pytestmark = needs_node


def follow(*answers: str | int) -> dict[str, Any]:
    """Follow a turn with these responses, each a stream or an error status (0: no response); return the result."""
    program = f"""
    {import_from("turn_stream.js", "followTurn")}
    {import_from("api.js", "RequestError")}
    globalThis.addEventListener = globalThis.removeEventListener = () => {{}};
    const answers = {json.dumps(answers)}, asked = [], taken = [];
    const next = () => {{
      const answer = answers.shift();
      if (typeof answer === "number") throw new RequestError("", answer);
      return new Response(answer);
    }};
    const fetch = async (method, path, {{ headers }}) => (asked.push(headers["Last-Event-ID"] ?? ""), next());
    const api = {{ fetch }};
    const about = {{ conversation: "c", turn: "t", response: next() }};
    const hooks = {{ onConnection: () => {{}}, signal: new AbortController().signal }};
    const isWhole = await followTurn(api, about, (event) => taken.push(event.name), hooks);
    console.log(JSON.stringify({{ isWhole, asked, taken, left: answers.length }}));
    """
    return dict(run_node(program))


def test_a_turn_handed_over_to_another_process_is_requested_again_and_then_read_from_the_store() -> None:
    begun = 'id: t:1\nevent: status\ndata: {"text": "…"}\n\n'
    # The server is unreachable for a moment, and the next server does not know the turn.
    assert follow(begun + LEFT, 0, 404) == {"isWhole": False, "asked": ["t:1"] * 2, "taken": ["status"], "left": 0}
    # The server gives the same response again: another turn has taken over the conversation.
    assert follow(begun + LEFT, LEFT, ENDED) == {"isWhole": False, "asked": ["t:1"], "taken": ["status"], "left": 1}


def test_the_turn_of_a_dead_process_is_read_from_the_conversation() -> None:
    begun = 'id: t:1\nevent: status\ndata: {"text": "…"}\n\n'
    assert follow(begun + GONE) == {"isWhole": False, "asked": [], "taken": ["status"], "left": 0}


def test_another_error_ends_the_turn() -> None:
    error = LEFT.replace("ConversationBusy", "ProviderError")
    assert follow(error) == {"isWhole": True, "asked": [], "taken": ["error"], "left": 0}
