"""The JSON Schema of ``--schema``, and the answer that satisfies it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from dial_client.messages.errors import ConfigError, describe_system_error
from dial_client.messages.limits import StopReason
from dial_client.messages.turn_result import Turn, output_to_json
from dial_client.runtime.safe_text import to_one_line

_MAX_SHOWN = 2_000
"""The maximum number of characters of an invalid answer that are printed."""


def read_schema(path: Path) -> dict[str, Any]:
    """Return the JSON Schema in a file.

    Raises:
        ConfigError: The file cannot be read, is not JSON, or is not a valid JSON Schema for an answer.
    """
    from dial_client.turns.output_type import build_output_type

    try:
        schema = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ConfigError(f"the schema cannot be read: {describe_system_error(error)}", path=str(path)) from error
    except json.JSONDecodeError as error:
        raise ConfigError(
            f"this is not JSON: {error.msg}", path=str(path), line=error.lineno, column=error.colno
        ) from None
    except ValueError as error:
        raise ConfigError(f"this is not JSON: {error}", path=str(path)) from None
    if not isinstance(schema, dict):
        raise ConfigError(
            "expected a JSON Schema, which is an object", hint='such as {"type": "array"}', path=str(path)
        )
    try:
        build_output_type(schema)
    except (ConfigError, TypeError) as error:
        raise ConfigError("this is not a valid JSON Schema for an answer", hint=str(error), path=str(path)) from None
    return schema


def print_output(turn: Turn) -> None:
    """Print the typed answer to standard output; if there is none, print the model's text to standard error."""
    if turn.output is not None or turn.text == "null":
        print(json.dumps(output_to_json(turn.output)), flush=True)
    elif turn.stop_reason is StopReason.INVALID_OUTPUT:
        print(f"dial-chat: the model answered: {to_one_line(turn.text, _MAX_SHOWN)}", file=sys.stderr, flush=True)
    else:
        reason = f"no answer that fits the schema: {turn.stop_reason.sentence}"
        print(f"dial-chat: {reason}: {to_one_line(turn.text, _MAX_SHOWN)}", file=sys.stderr, flush=True)
