"""Answers to the first requests of a client from the last run, before the libraries that answer requests are loaded.

A host asks the same at each start: ``initialize``, and then for the lists of tools, prompts and resources. To load the
SDK takes longer than everything else until then. So the answers of the last run are kept, with what they depend on, and
a thread gives them while the SDK is being loaded. Then the SDK's server gets the same requests: what it answers is
compared, and not written twice.

`EarlyAnswers` is the thread; `FirstAnswers` compares, and keeps the answers of this run. Nothing here knows more of the
protocol than the names of six requests: an answer is a text that an earlier run has written.
"""

from __future__ import annotations

import hashlib
import json
import os
import select
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dial_client import __version__
from dial_client.gateway.standard_files import StandardFiles, claim_standard_files

# The requests whose answers are kept: those that begin a connection, and the lists, each with the notification of a
# list that is another one than the client was told.
_GREETINGS = ("initialize", "server/discover")
_LISTS = {
    "tools/list": "notifications/tools/list_changed",
    "prompts/list": "notifications/prompts/list_changed",
    "resources/list": "notifications/resources/list_changed",
    "resources/templates/list": "notifications/resources/list_changed",
}
_REVISION = "io.modelcontextprotocol/protocolVersion"
FIRST_REQUESTS = (*_GREETINGS, *_LISTS)
# The most bytes that the thread reads: more than the first requests of any host. The rest stays in the pipe.
_MAX_BYTES = 1024 * 1024
_CHUNK = 65_536
# Bytes that a pipe takes without blocking once it can be written.
_WRITABLE = select.PIPE_BUF if sys.platform != "win32" else _CHUNK
# The most answers that are kept for one command: those of a few client programs.
MAX_KEPT = 20

Stamp = list[int] | None


@dataclass(frozen=True, slots=True)
class EarlyTraffic:
    """What has happened on standard input and output before the SDK's server was there."""

    received: bytes = b""
    """What the client has sent, all of it."""
    unwritten: bytes = b""
    """The rest of an answer that the client has not taken yet."""
    answered: Mapping[str, str] = field(default_factory=dict)
    """The results that the client has got, as JSON, by the ids of its requests, as JSON."""


class AnswerRecord:
    """The answers of earlier runs of one command in one folder.

    Args:
        words: The words of the command.
        folder: The folder of all records; None for that of the user.
    """

    def __init__(self, words: Sequence[str], folder: Path | None = None) -> None:
        if folder is None:
            import platformdirs

            folder = Path(platformdirs.user_cache_dir("dial-client"), "gateway")
        self.folder = folder
        source = json.dumps([__version__, sys.executable, str(Path.cwd()), *words])
        self.name = hashlib.sha256(source.encode(errors="replace")).hexdigest()[:32]
        """The name of the record: 32 hexadecimal digits."""
        # What the file has, as far as this process knows.
        self._stored: dict[str, Any] = {}

    def read(self) -> dict[str, str]:
        """Return the kept answers, as JSON, by their keys; empty if what they depend on is not what it was."""
        try:
            stored = json.loads((self.folder / f"{self.name}.json").read_bytes())
            paths, variables, answers = stored["paths"], stored["variables"], stored["answers"]
            if any(_stamp(path) != stamp for path, stamp in paths.items()):
                return {}
            if _hash_variables(variables["names"]) != variables["hash"]:
                return {}
            self._stored = stored
            return dict(answers)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return {}

    def remove(self) -> None:
        """Remove the answers, as far as possible: one of them was wrong."""
        self._stored = {}
        with suppress(OSError):
            (self.folder / f"{self.name}.json").unlink(missing_ok=True)

    def write(self, answers: Mapping[str, str], paths: Iterable[Path], variables: Iterable[str]) -> None:
        """Store answers.

        Args:
            answers: The answers by their keys, the latest last.
            paths: The files that they depend on, which may be missing.
            variables: The names of the variables of the environment that they depend on.
        """
        from dial_client.servers.server_cache import JsonCache

        names = sorted(set(variables))
        content = {
            "paths": {str(path): _stamp(str(path)) for path in paths},
            "variables": {"names": names, "hash": _hash_variables(names)},
            "answers": dict(list(answers.items())[-MAX_KEPT:]),
        }
        if any(self._stored.get(name) != value for name, value in content.items()):
            JsonCache(self.folder).write(self.name, content)
            self._stored = content


def _stamp(path: str) -> Stamp:
    """Return what changes with each change of a file; None for a missing one."""
    try:
        status = Path(path).stat()
    except OSError:
        return None
    return [status.st_mtime_ns, status.st_size, status.st_ino]


def _hash_variables(names: Sequence[str]) -> str:
    # Their values may be secrets: only a hash of all together is stored.
    values = json.dumps([os.environ.get(name) for name in names])
    return hashlib.sha256(values.encode(errors="replace")).hexdigest()


def _build_key(method: str, params: Any, greeting: str) -> str:
    """Return what is equal for equal requests of equal clients; a progress token is not part of it.

    Args:
        method: The method of the request.
        params: The parameters of the request.
        greeting: The key of the ``initialize`` that the connection has begun with; empty if there was none. Servers
            have other tools for a client that can answer their questions.
    """
    if isinstance(params, dict):
        meta = params.get("_meta")
        if isinstance(meta, dict):
            params = {**params, "_meta": {name: value for name, value in meta.items() if name != "progressToken"}}
        params = {name: value for name, value in params.items() if value not in ({}, None) or name != "_meta"}
    source = json.dumps([method, params or {}, greeting], sort_keys=True)
    return hashlib.sha256(source.encode(errors="replace")).hexdigest()


def _names_revision(params: Any) -> bool:
    """Return whether a request names its revision, and so needs no greeting before it (since 2026-07-28)."""
    meta = params.get("_meta") if isinstance(params, dict) else None
    return isinstance(meta, dict) and _REVISION in meta


class EarlyAnswers:
    """A thread that answers the first requests of the client, until it is stopped.

    Args:
        files: The descriptors of standard input and output.
        record: The answers of the last run.
    """

    def __init__(self, files: StandardFiles, record: AnswerRecord) -> None:
        self.files, self.record = files, record
        self._answers: dict[str, str] = record.read() if sys.platform != "win32" else {}  # pipes cannot be waited for
        self.kept: Mapping[str, str] = dict(self._answers)
        """The answers of earlier runs that still hold."""
        self._received, self._unwritten = bytearray(), bytearray()
        self._line_start = 0
        self._answered: dict[str, str] = {}
        self._is_greeted = False
        self._greeting = ""
        self._thread: threading.Thread | None = None
        if self._answers:
            self._stopped, self._stop = os.pipe()
            self._thread = threading.Thread(target=self._run, name="early answers", daemon=True)
            self._thread.start()

    def stop(self) -> EarlyTraffic:
        """End the thread, and return what has happened."""
        if self._thread is not None:
            os.close(self._stop)
            self._thread.join()
            os.close(self._stopped)
            self._thread = None
        return EarlyTraffic(bytes(self._received), bytes(self._unwritten), dict(self._answered))

    def _run(self) -> None:
        source, target = self.files.input, self.files.output
        is_reading = True
        while is_reading or self._unwritten:
            inputs = [self._stopped, source] if is_reading else [self._stopped]
            try:
                readable, writable, _ = select.select(inputs, [target] if self._unwritten else [], [])
                if self._stopped in readable:
                    return
                if writable:
                    del self._unwritten[: os.write(target, self._unwritten[:_WRITABLE])]
                if source in readable:
                    is_reading = self._read(os.read(source, _CHUNK))
            except (OSError, ValueError):  # the client is gone: the SDK's server will meet the same error
                return

    def _read(self, chunk: bytes) -> bool:
        """Answer the requests that are complete now; return False if no more can be answered."""
        self._received += chunk
        while (end := self._received.find(b"\n", self._line_start)) >= 0:
            line, self._line_start = self._received[self._line_start : end], end + 1
            if not self._answer(line):
                return False
        return bool(chunk) and len(self._received) < _MAX_BYTES

    def _answer(self, line: bytearray) -> bool:
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            return False
        if not isinstance(message, dict):
            return False
        method, id_ = message.get("method"), message.get("id")
        if method not in FIRST_REQUESTS or not isinstance(id_, int | str):
            return True
        params = message.get("params")
        key = _build_key(method, params, self._greeting)
        text = self._answers.get(key)
        if method in _GREETINGS:
            # Of a client that is not known, or that greets twice: nothing more is answered here.
            if text is None or self._is_greeted:
                return False
        elif text is None or not (self._is_greeted or _names_revision(params)):
            return self._is_greeted
        self._is_greeted = True
        if method == "initialize":
            self._greeting = key
        known = json.dumps(id_)
        self._answered[known] = text
        self._unwritten += f'{{"jsonrpc":"2.0","id":{known},"result":{text}}}\n'.encode()
        return True


def begin_early_answers(words: Sequence[str]) -> EarlyAnswers:
    """Take standard input and output for the protocol, and answer the first requests of the client.

    Args:
        words: The words of the command.
    """
    return EarlyAnswers(claim_standard_files(), AnswerRecord(words))


class FirstAnswers:
    """The answers of this run to the first requests, as the SDK's server gives them.

    Args:
        early: The answers that the client has got before; None for none.
        paths: The files that the answers depend on.
        variables: The names of the variables of the environment that they depend on.
    """

    def __init__(
        self, early: EarlyAnswers | None = None, paths: Iterable[Path] = (), variables: Iterable[str] = ()
    ) -> None:
        self._early, self._paths, self._variables = early, tuple(paths), tuple(variables)
        self._answers = dict(early.kept) if early is not None else {}
        self._answered: dict[str, str] = {}
        # The requests that wait for their answers: method and key, by their ids as JSON.
        self._requests: dict[str, tuple[str, str]] = {}
        self._greeting = ""
        self.on_list: Callable[[], None] = lambda: None
        """Called when the SDK's server has answered a request for a list."""

    def begin(self) -> EarlyTraffic:
        """End the early answers, and return what has happened."""
        beginning = self._early.stop() if self._early is not None else EarlyTraffic()
        self._answered = dict(beginning.answered)
        return beginning

    def receive(self, id_: int | str, method: str, params: Any) -> None:
        """Learn that the SDK's server gets a request."""
        if method not in FIRST_REQUESTS:
            return
        key = _build_key(method, params, "" if method == "initialize" else self._greeting)
        if method == "initialize":
            self._greeting = key
        self._requests[json.dumps(id_)] = method, key

    def answer(self, id_: int | str | None, result: dict[str, Any] | None) -> bytes | None:
        """Return what is written in place of an answer that the client has already; None to write the answer.

        It is empty if the answer is the same, or if the client cannot be told about the difference.

        Args:
            id_: The id of the request.
            result: The result; None for an error.
        """
        if not self._requests:
            return None
        known = json.dumps(id_)
        method, key = self._requests.pop(known, ("", ""))
        early = self._answered.pop(known, None)
        if result is not None and key:
            self._answers.pop(key, None)
            self._answers[key] = json.dumps(result)
        if method in _LISTS:
            self.on_list()
        if early is None:
            return None
        if result == json.loads(early):
            return b""
        # Prompts and resources depend on more than files. Of everything else, a record that was wrong is of no use.
        if self._early is not None and method in (*_GREETINGS, "tools/list"):
            self._early.record.remove()
        changed = {"jsonrpc": "2.0", "method": _LISTS[method]} if method in _LISTS else None
        return b"" if changed is None else json.dumps(changed).encode() + b"\n"

    def keep(self) -> None:
        """Store the answers for the next start."""
        if self._early is not None:
            self._early.record.write(self._answers, self._paths, self._variables)
