"""The recording of a test: the clients of the test are recorded once, and replayed in later runs."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Unpack

from dial_client.client.client_options import ClientOptions
from dial_client.client.dial_client import DialClient
from dial_client.messages.errors import ConfigError
from dial_client.messages.message import Message, Role
from dial_client.messages.model import Provider
from dial_client.providers.scripted import ScriptedProvider

# The text that replaces a secret in a recording.
_MASK = "[secret]"
# Maximum characters of a prompt in an error message.
_SHOWN = 80
_HINT = "pytest --dial-record records the test again"


class DialRecording:
    """Creates clients that are recorded, or replayed from the recording of an earlier run.

    A replay needs no network, servers or keys, because the model's replies and the results of the servers' tools come
    from the file. Functions that are tools run in both cases. The file has the format of `recordings.recording`; it
    contains no secret of the configuration.

    Args:
        path: The file of the first client, ``NAME.jsonl``. The file of the second client is ``NAME+2.jsonl``, and so
            on; no test's own file has such a name.
        is_recorded: Whether to record instead of replaying.
    """

    def __init__(self, path: Path, *, is_recorded: bool) -> None:
        self._path = path
        self._is_recorded = is_recorded
        # For each client, the file that is written, and the path to which it is moved if the test passes.
        self._recorded: list[tuple[Path, Path]] = []
        self._replayed: list[tuple[Path, ScriptedProvider]] = []

    def client(
        self,
        model: str | Provider | None = None,
        *,
        servers: Mapping[str, Any] = MappingProxyType({}),
        **options: Unpack[ClientOptions],
    ) -> DialClient:
        """Return a client. The arguments are those of `DialClient`; a replay ignores model and servers.

        Raises:
            ConfigError: There is no recording, or an argument is wrong.
        """
        if not self._is_recorded:
            return self._replay(options)
        options["record"] = self._add_file()
        return DialClient(model, servers=servers, **options)

    def from_config(
        self,
        path: str | os.PathLike[str],
        model: str | Provider | None = None,
        profile: str | None = None,
        **options: Unpack[ClientOptions],
    ) -> DialClient:
        """Return a client for a servers.json, which a replay does not read.

        The arguments are those of `DialClient.from_config`.

        Raises:
            ConfigError: There is no recording, or the file or an argument is wrong.
        """
        if not self._is_recorded:
            return self._replay(options)
        options["record"] = self._add_file()
        return DialClient.from_config(path, model, profile, **options)

    def close(self, *, is_passed: bool) -> None:
        """End the test: keep new recordings if the test has passed, and check the replayed ones.

        Raises:
            AssertionError: The test sent other user messages to the model than the recording has, or passed with fewer
                requests.
        """
        for written, path in self._recorded:
            if is_passed and written.exists():
                written.replace(path)
            else:
                written.unlink(missing_ok=True)
        for path, provider in self._replayed:
            _check_prompts(path, provider, is_passed=is_passed)

    def _get_path(self, count: int) -> Path:
        return self._path if count == 0 else self._path.with_name(f"{self._path.stem}+{count + 1}{self._path.suffix}")

    def _add_file(self) -> Path:
        path = self._get_path(len(self._recorded))
        path.parent.mkdir(parents=True, exist_ok=True)
        written = path.with_name(f"{path.name}.new")
        written.unlink(missing_ok=True)
        self._recorded.append((written, path))
        return written

    def _replay(self, options: ClientOptions) -> DialClient:
        path = self._get_path(len(self._replayed))
        if not path.exists():
            raise ConfigError("there is no recording of this test", hint="run pytest --dial-record", path=str(path))
        provider = ScriptedProvider.from_file(path)
        self._replayed.append((path, provider))
        for name in ("base_url", "models", "status_model", "cache_dir", "logins", "record"):
            options.pop(name, None)  # type: ignore[misc]  # each is a key of ClientOptions
        return DialClient(provider, **options)


def _check_prompts(path: Path, provider: ScriptedProvider, *, is_passed: bool) -> None:
    """Compare the user's messages in each request with the recording, and their number if the test has passed.

    Raises:
        AssertionError: The messages differ, or the test made fewer requests.
    """
    recorded = _read_prompts(path)
    sent = [_select_prompts(request.messages) for request in provider.requests]
    for number, (prompts, expected) in enumerate(zip(sent, recorded, strict=False), 1):
        pairs = zip(prompts, expected, strict=False)
        changed = next(
            ((sent_text, text) for sent_text, text in pairs if sent_text != text and _MASK not in text), None
        )
        if changed is not None:
            differs = f"the user says {changed[0][:_SHOWN]!r}, and {changed[1][:_SHOWN]!r} in the recording"
        elif len(prompts) != len(expected):
            differs = f"the user's messages are {len(prompts)}, and {len(expected)} in the recording"
        else:
            continue
        raise AssertionError(f"{path.name}: in request {number} to the model {differs}: {_HINT}")
    problem = f"{path.name} has {len(recorded)} requests to the model"
    if len(sent) > len(recorded):
        raise AssertionError(f"{problem}, the test made more: {_HINT}")
    if is_passed and len(sent) < len(recorded):
        raise AssertionError(f"{problem}, and the test made {len(sent)}: {_HINT}")


def _select_prompts(messages: Sequence[Message]) -> list[str]:
    return [message.text for message in messages if message.role is Role.USER]


def _read_prompts(path: Path) -> list[list[str]]:
    """Return the texts of the user's messages for each request of a recording."""
    messages: list[Message] = []
    prompts = []
    for line in path.read_text(encoding="utf-8").splitlines():
        request = json.loads(line).get("asked")
        if request is not None:
            messages = [*messages[: request["after"]], *map(Message.from_dict, request["messages"])]
            prompts.append(_select_prompts(messages))
    return prompts
