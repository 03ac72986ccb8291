"""How the page follows a turn whose process leaves it to another, run by Node."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

FOLLOW = Path(__file__).parents[2] / "dial_client" / "serve" / "page" / "turn_stream.js"
NODE = shutil.which("node")
GONE = 'event: error\ndata: {"type": "TurnLost", "message": "nobody knows"}\n\ndata: [DONE]\n\n'
LEFT = 'event: error\ndata: {"type": "ConversationBusy", "message": "another one goes on"}\n\ndata: [DONE]\n\n'
ENDED = 'event: done\ndata: {"stop_reason": "answered"}\n\ndata: [DONE]\n\n'

pytestmark = pytest.mark.skipif(NODE is None, reason="Node is not installed: it runs the page's modules")


def followed(*answers: str | int) -> dict[str, Any]:
    """Follow a turn over these answers: a stream, or a status; 0 for none at all. Tell what the page does."""
    assert NODE is not None
    program = f"""
    import {{ followTurn }} from {json.dumps(FOLLOW.as_uri())};
    import {{ RequestError }} from {json.dumps((FOLLOW.parent / "api.js").as_uri())};
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
    ended = subprocess.run(
        [NODE, "--input-type=module", "-e", program], capture_output=True, text=True, timeout=100, check=True
    )
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def test_a_turn_that_is_left_to_another_process_is_asked_for_again_and_then_read_from_the_conversation() -> None:
    begun = 'id: t:1\nevent: status\ndata: {"text": "…"}\n\n'
    # The server is gone for a moment, and the next one does not know this turn.
    assert followed(begun + LEFT, 0, 404) == {"isWhole": False, "asked": ["t:1"] * 2, "taken": ["status"], "left": 0}
    # It is still there and says the same: the conversation was taken by another turn.
    assert followed(begun + LEFT, LEFT, ENDED) == {"isWhole": False, "asked": ["t:1"], "taken": ["status"], "left": 1}


def test_a_turn_whose_process_is_gone_is_read_from_the_conversation() -> None:
    begun = 'id: t:1\nevent: status\ndata: {"text": "…"}\n\n'
    assert followed(begun + GONE) == {"isWhole": False, "asked": [], "taken": ["status"], "left": 0}


def test_another_error_is_the_end() -> None:
    error = LEFT.replace("ConversationBusy", "ProviderError")
    assert followed(error) == {"isWhole": True, "asked": [], "taken": ["error"], "left": 0}
