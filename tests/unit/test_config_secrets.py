"""Secrets of a configuration are in no repr, no error and no warning."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.inner import ConfigError, ServerSettings, parse

SECRET = "s3cr3t-7Fq9"
WITH_SECRETS: dict[str, Any] = {
    "mcpServers": {
        "a": {
            "command": "x",
            "args": ["--key", SECRET, "${TOKEN}"],
            "env": {"KEY": SECRET, "OTHER": "${TOKEN}"},
            "envFile": "a.env",
        },
        "b": {"url": f"https://u:{SECRET}@h/mcp?key=${{TOKEN}}", "headers": {"Authorization": f"Bearer {SECRET}"}},
    },
    "models": {
        "m": {
            "base_url": f"https://{SECRET}@h/v1",
            "api_key": "${TOKEN}",
            "headers": {"X-Key": "${TOKEN}"},
            "extra_body": {"user": SECRET},
            "temperature": 0.5,
            "strict": True,
        }
    },
    "defaultModel": "m",
}


def test_no_secret_is_in_a_repr(tmp_path: Path) -> None:
    (tmp_path / "a.env").write_text(f"FILE_KEY={SECRET}\n")
    read = parse(json.dumps(WITH_SECRETS), folder=tmp_path, environ={"TOKEN": SECRET})
    assert read.servers["a"].env["FILE_KEY"] == SECRET
    assert read.servers["b"].headers["Authorization"] == f"Bearer {SECRET}"
    assert read.models["m"].api_key == SECRET
    assert SECRET not in repr(read)
    for name in ("env", "headers", "args", "url"):
        assert not next(field for field in fields(ServerSettings) if field.name == name).repr


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_no_secret_is_in_an_error_or_a_warning(data: st.DataObject) -> None:
    """Corrupt one value of the configuration, then one position of its text."""
    corrupted = json.loads(json.dumps(WITH_SECRETS))
    del corrupted["mcpServers"]["a"]["envFile"]
    holder, key = data.draw(st.sampled_from(places(corrupted)))
    holder[key] = data.draw(
        st.sampled_from([3, True, None, [SECRET], {"k": SECRET}, f"ftp://{SECRET}\n", "${TOKEN}\0", "${TOKEN", "${NO}"])
    )
    text = json.dumps(corrupted, indent=1)
    at = data.draw(st.integers(0, len(text)))
    text = text[:at] + data.draw(st.sampled_from(["", '"', "\\", "\n", ",", "}", "]", "#", "x"])) + text[at:]
    try:
        warnings = "".join(parse(text, environ={"TOKEN": f"{SECRET}\n"}).warnings)
    except ConfigError as error:
        warnings = f"{error} {error!r} {error.args}"
    assert SECRET not in warnings


def places(value: Any) -> list[tuple[Any, Any]]:
    """Return the container and the key of every value within `value`."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else []
    return [place for key in keys for place in ((value, key), *places(value[key]))]
