"""The embedded model: no key, and no network once its weights are there.

It runs in a process of its own that speaks chat completions on a loopback port. What is left to do here is to have it
there: weights, process, readiness; and once more when it has died.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import anyio
from anyio import to_thread

from dial_client.errors import ConfigError, ProviderError
from dial_client.local import TEMPLATE, hub
from dial_client.local.call_score import UNKNOWN_DISCOUNT
from dial_client.local.chat_template import has_chat_template
from dial_client.local.process import CONTEXT_TOKENS, ModelProcess
from dial_client.local.weight_downloads import OnProgress
from dial_client.local.weights import QWEN, cache_folder, ensure
from dial_client.model import Delta, ModelInfo, ModelRequest, Provider, StructuredOutput, ToolFormat
from dial_client.providers.chat_api import ChatProvider
from dial_client.providers.endpoint_profile import EndpointProfile
from dial_client.providers.grammar_tool_calling import GrammarToolCallingProvider
from dial_client.providers.http.endpoint import Endpoint
from dial_client.providers.local_decision import LOGPROBS, DecisionProvider

VARIABLE = "DIAL_LOCAL_MODEL"
"""The environment variable that names another GGUF file."""
MAX_TOKENS = 1024
"""Tokens of a reply where a request does not say: a small model that repeats itself would go on to the window's end."""

_HUB = "hf:"
_PARTS = ("xllamacpp", "huggingface_hub", "filelock")
ANSWER_BIAS = -4.5
"""Is added to the logit of an answer where a decision is made: the call that might be made is wanted as well, so that
`local.call_score` can tell how likely it is. On the tuning half one right call needs 4.2, and one more than 5.5."""
UNKNOWN_BIAS = ANSWER_BIAS - UNKNOWN_DISCOUNT
"""The same for "unknown"."""
_PROFILE = EndpointProfile(
    images=False,
    tool_choice=False,
    idle_timeout=600.0,
    max_tokens=MAX_TOKENS,
    constrain="grammar",
    structured_output="without_tools",
)
_DECISION_FIELDS = {"logit_bias": [["answer", ANSWER_BIAS], ["unknown", UNKNOWN_BIAS]], **LOGPROBS}
_DECISIONS = replace(_PROFILE, extra_body=_DECISION_FIELDS)
_DRY = {
    "dry_multiplier": 0.8,
    "dry_allowed_length": 6,
    "dry_penalty_last_n": 1024,
    "dry_sequence_breakers": ["<|im_end|>"],
}
"""Makes what was written before less likely, from six tokens on: without it a poem repeats its last verse to the limit
of tokens, and a penalty on single tokens only puts that off. Results are copied, so answers from them go without."""
_WRITING = replace(_PROFILE, extra_body=_DRY)
_LAST_WORDS = 1.0
"""Seconds a process whose connection broke has to end."""


class LocalProvider:
    """Asks the embedded model. Getting and starting it waits for the first request, or for `prepare`.

    Args:
        path: a GGUF file in place of our own, or ``hf:REPO[/FILE]`` for one of the model hub; None for the one
            ``DIAL_LOCAL_MODEL`` names in either way, if any.
        on_progress: called while the weights are fetched: bytes done, bytes in all, and what is being done.

    Raises:
        ConfigError: the extra is not installed, or the file is not there or no GGUF, or the name is none of the hub's.
    """

    # Its own words on tools are part of how it is asked; more of them do it no good.
    info = ModelInfo("local", context_window=CONTEXT_TOKENS, guidance="", structured_output=StructuredOutput.WITH_TOOLS)

    def __init__(self, path: str | None = None, on_progress: OnProgress | None = None) -> None:
        if any(importlib.util.find_spec(part) is None for part in _PARTS):
            raise ConfigError("the embedded model needs the extra: pip install 'dial-client[local]'")
        named = path or os.environ.get(VARIABLE) or ""
        if named:  # another model has no decision before its answer: it is asked as llama.cpp's server is
            self.info = replace(self.info, structured_output=StructuredOutput.WITHOUT_TOOLS)
        self._hub_name = named.removeprefix(_HUB) if named.startswith(_HUB) else ""
        if self._hub_name:
            hub.parse_name(self._hub_name)
        self._file = None if self._hub_name else _named(path)
        if self._file is not None:
            self.info = _with_tool_format(self.info, self._file)
        self._on_progress = on_progress
        self.endpoint: Endpoint | None = None
        """Where the model can be asked without this host; None before it was started."""
        self._process: ModelProcess | None = None
        self._chat: Provider | None = None
        self._starting = anyio.Lock()
        self._start_scope: anyio.CancelScope | None = None
        self._closed = False

    async def prepare(self, request: ModelRequest | None = None) -> None:
        """Get the weights and start the model, if it is not running.

        Args:
            request: what a conversation will begin with, tools and instructions. The model reads it now, so that it
                has only the rest to read when it is asked: a dozen tools take it ten seconds on a small machine.

        Raises:
            ProviderError: the weights could not be had, or the model did not start.
        """
        chat = await self._running()
        if request is not None:
            async with aclosing(chat.generate(replace(request, max_tokens=1, stream=False))) as deltas:
                async for _ in deltas:
                    pass

    async def generate(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        """Ask the model, and give its reply as it comes, a `Completion` last.

        Raises:
            ProviderError: the model could not be had or started, or failed twice before it said anything.
        """
        for is_last in (False, True):
            chat = await self._running()
            has_begun = False
            try:
                async with aclosing(chat.generate(request)) as deltas:
                    async for delta in deltas:
                        has_begun = True
                        yield delta
            except ProviderError as error:
                failure = await self._explained(error)
                if has_begun or is_last or not _may_pass(failure):
                    raise failure from None
            else:
                return

    async def aclose(self) -> None:
        """Stop the model and whatever is under way to have it; may be called twice, from any task."""
        self._closed = True
        if self._start_scope is not None:
            self._start_scope.cancel()
        await self._stop()

    async def _running(self) -> Provider:
        """Return the provider of the running model. One task starts the model if necessary, and the others wait."""
        async with self._starting:
            if self._closed:
                raise ProviderError("the embedded model is closed")
            if self._chat is not None and self._process is not None and self._process.is_alive:
                return self._chat
            await self._stop()
            with anyio.CancelScope() as self._start_scope:
                self._chat = await self._start()
                return self._chat
            raise ProviderError("the embedded model was closed while it started")

    async def _start(self) -> Provider:
        file = self._file or await self._fetch()
        is_ours = await to_thread.run_sync(_size, file) == QWEN.size  # a copy of it elsewhere is ours as well
        self.info = _with_tool_format(self.info, file)
        self._process = await ModelProcess.start(file, TEMPLATE if is_ours else None)
        key = self._process.key
        self.endpoint = endpoint = Endpoint(f"{self._process.address}/v1", {"authorization": f"Bearer {key}"}, key=key)
        name = self.info.name  # without the port, which changes from start to start
        chat = ChatProvider("local", endpoint, _PROFILE, temperature=0.0, name=name)
        await chat.prepare()
        if not is_ours:
            return chat
        decider = DecisionProvider("local", endpoint, _DECISIONS, temperature=0.0, name=name)
        writer = ChatProvider("local", endpoint, _WRITING, temperature=0.0, name=name)
        return GrammarToolCallingProvider(decider, chat, writer)

    async def _fetch(self) -> Path:
        if self._hub_name:
            return await hub.fetch(self._hub_name, cache_folder(), self._report)
        return await ensure(QWEN, cache_folder(), self._report)

    async def _stop(self) -> None:
        process, self._process = self._process, None
        chat, self._chat = self._chat, None
        if chat is not None:
            await chat.aclose()
        if process is not None:
            await process.stop()

    async def _explained(self, error: ProviderError) -> ProviderError:
        """Return the error; for a model that has died, with the last lines of its log."""
        process = self._process
        if error.code != "connection" or process is None or not await process.ended(_LAST_WORDS):
            return error
        return ProviderError(f"the embedded model ended: {process.last_words()}", code="connection")

    def _report(self, done: int, total: int, what: str) -> None:
        if self._on_progress is not None:
            self._on_progress(done, total, what)


def _named(path: str | None) -> Path | None:
    """Return the named file, or None."""
    named = path or os.environ.get(VARIABLE)
    if not named:
        return None
    where = "local:PATH" if path else VARIABLE
    file = Path(named).expanduser()
    try:
        with file.open("rb") as opened:
            magic = opened.read(4)
    except OSError as error:
        raise ConfigError(f"{where}: {file} cannot be read: {error.strerror}") from error
    if magic != b"GGUF":
        raise ConfigError(f"{where}: {file} is not a GGUF file", hint="the model must be in llama.cpp's format")
    return file


def _with_tool_format(info: ModelInfo, file: Path) -> ModelInfo:
    """Return what is known of a model: without a chat template its calls ride as text, held to a grammar."""
    if _size(file) == QWEN.size or has_chat_template(file):
        return info
    return replace(info, tool_format=ToolFormat.REACT, guidance=None)


def _size(file: Path) -> int:
    return file.stat().st_size


def _may_pass(error: ProviderError) -> bool:
    """Return whether a second request may help: the process has died. Refusals were retried before."""
    return error.code == "connection"
