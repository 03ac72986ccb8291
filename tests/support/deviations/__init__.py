"""Valid and invalid behaviour of models and endpoints, with the expected result."""

from __future__ import annotations

from dataclasses import replace

from tests.support.deviations.case import BOTH, CALLS, DONE, TRUNCATED, Case, write_reply
from tests.support.deviations.chat import CHAT
from tests.support.deviations.messages import MESSAGES
from tests.support.deviations.plain import PLAIN
from tests.support.deviations.responses import RESPONSES
from tests.support.model_endpoint import Say

__all__ = ["CASES", "Case"]


WIRES: dict[str, Case] = {}
for _name in ("chat", "responses", "messages"):
    WIRES |= {
        f"{_name}: an answer": write_reply(_name, Say(DONE, reasoning="Hm, how?")),
        f"{_name}: calls": write_reply(_name, Say("I look.", CALLS, "Hm, how?"), ran=BOTH),
    }
_LENGTH = {"responses": "max_output_tokens", "messages": "max_tokens"}
for _name, _finish in _LENGTH.items():
    WIRES |= {
        f"{_name}: {_finish}": write_reply(_name, Say("Half", finish=_finish), text="Half", stop=TRUNCATED),
        f"{_name}: {_finish} behind calls": replace(
            write_reply(_name, Say("Half", CALLS, finish=_finish)), text="Half", stop=TRUNCATED
        ),
    }


CASES: dict[str, Case] = (
    {f"chat: {name}": case for name, case in CHAT.items()}
    | WIRES
    | {f"responses: {name}": case for name, case in RESPONSES.items()}
    | {f"messages: {name}": case for name, case in MESSAGES.items()}
    | {f"plain: {name}": case for name, case in PLAIN.items()}
)
