"""The provider for the embedded model, which needs no key, and no network once its weights are downloaded.

The model runs in a child process that serves the Chat Completions API on a loopback port. This module downloads the
weights, starts the process, waits until it is ready, and starts it again if it has died.

The default model has no API for tool calls. It is asked in two steps: first it decides under a grammar, for a call or
an answer (`decisions`), and `call_policy` determines which call is made. For an answer, it is asked again in plain
text, without a grammar (`answers`).
"""

from __future__ import annotations

import importlib.util
import mmap
import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
from anyio import to_thread

from dial_client.messages.errors import ConfigError, ProviderError
from dial_client.messages.message import Role, ToolCallRequest
from dial_client.messages.model import (
    CallChunk,
    Completion,
    Delta,
    FinishReason,
    ModelInfo,
    ModelRequest,
    ModelSettings,
    OnDownload,
    Provider,
    StructuredOutput,
    TextChunk,
    ToolFormat,
)
from dial_client.messages.token_usage import Usage
from dial_client.providers.chat_api import ChatProvider
from dial_client.providers.embedded import TEMPLATE
from dial_client.providers.embedded.answers import Repetition, build_answer_request
from dial_client.providers.embedded.call_policy import CallPolicy
from dial_client.providers.embedded.decisions import (
    LOGPROBS,
    UNKNOWN_DISCOUNT,
    DecisionProvider,
    ToolDecision,
    read_decision,
)
from dial_client.providers.embedded.process import CONTEXT_TOKENS, ModelProcess
from dial_client.providers.embedded.weights import (
    QWEN,
    ensure,
    ensure_from_hub,
    find_cache_folder,
    is_downloaded,
    parse_name,
)
from dial_client.providers.http.endpoint import Endpoint
from dial_client.settings.endpoint_profile import EndpointProfile

# The environment variable that names another model: a GGUF file, or ``hf:REPO[/FILE]``.
VARIABLE = "DIAL_LOCAL_MODEL"
# The default limit of a reply, in tokens. Without a limit, a repetitive reply would fill the context window.
MAX_TOKENS = 1024

# Bytes to search from the start of a file for its chat template: the metadata, including the vocabulary.
METADATA_BYTES = 64 << 20

# The note on an answer that was stopped because it repeated itself.
REPEATED = "the answer was stopped, because the embedded model repeated itself"

_HUB = "hf:"
_PACKAGES = ("xllamacpp", "huggingface_hub", "filelock")
# The logit bias of the token "answer" in decisions. It makes the model write the most likely call even if an answer is
# more likely, so that `decisions` can compute the probability of the call. In the tuning half of the evaluation,
# one right call needs a bias of -4.2 or less, and another one a bias below -5.5.
ANSWER_BIAS = -4.5
# The logit bias of the token "unknown" in decisions.
UNKNOWN_BIAS = ANSWER_BIAS - UNKNOWN_DISCOUNT
_PROFILE = EndpointProfile(
    images=False,
    tool_choice=False,
    idle_timeout=600.0,
    max_tokens=MAX_TOKENS,
    constrain="grammar",
    structured_output="without_tools",
)
_DECISION_FIELDS = {"logit_bias": [["answer", ANSWER_BIAS], ["unknown", UNKNOWN_BIAS]], **LOGPROBS}
# DRY sampling, which makes repetitions of six or more tokens less likely. Without it, a poem repeats its last verse up
# to the token limit, and a penalty on single tokens only delays that. Answers from tool results are generated without
# DRY, because they copy text of the results.
_DRY = {
    "dry_multiplier": 0.8,
    "dry_allowed_length": 6,
    "dry_penalty_last_n": 1024,
    "dry_sequence_breakers": ["<|im_end|>"],
}
# Seconds to wait for the end of a process after its connection broke.
_EXIT_TIMEOUT = 1.0


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
        self._file, self._hub_name, model_name = None, "", path or os.environ.get(VARIABLE) or ""
        if model_name:  # any other model makes no decision before its answer, and has the flags of llama.cpp's server
            self.info = replace(self.info, structured_output=StructuredOutput.WITHOUT_TOOLS)
        if model_name.startswith(_HUB):
            self._hub_name = model_name.removeprefix(_HUB)
            parse_name(self._hub_name)
        elif model_name:
            self._file = _find_file(model_name, "local:PATH" if path else VARIABLE)
            self.info = _with_tool_format(self.info, self._file)
        self._on_progress = on_progress or (lambda *_: None)
        self.endpoint: Endpoint | None = None
        """The address of the model's server, for other clients too; None before the model was started."""
        self._process: ModelProcess | None = None
        self._chat: Provider | None = None
        self._starting = anyio.Lock()
        self._start_scope: anyio.CancelScope | None = None
        self._closed = False

    @property
    def needs_download(self) -> bool:
        """Whether the weights are not on this machine yet."""
        if self._hub_name:
            return not is_downloaded(self._hub_name, find_cache_folder())
        return self._file is None and not (find_cache_folder() / QWEN.file).is_file()

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
                # A second attempt may help if the process has died. The transport retries refusals itself.
                if has_begun or is_last or failure.code != "connection":
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
        folder = find_cache_folder()
        if self._hub_name:
            file = await ensure_from_hub(self._hub_name, folder, self._on_progress)
        else:
            file = self._file or await ensure(QWEN, folder, self._on_progress)
        # A copy of the default model is recognized by its size, whatever its name.
        is_default_model = (await to_thread.run_sync(file.stat)).st_size == QWEN.size
        self.info = _with_tool_format(self.info, file)
        self._process = await ModelProcess.start(file, TEMPLATE if is_default_model else None)
        key = self._process.key
        self.endpoint = Endpoint(f"{self._process.address}/v1", {"authorization": f"Bearer {key}"}, key=key)
        chat = self._build_chat(ChatProvider, {})
        await chat.prepare()
        if not is_default_model:
            return chat
        decider = self._build_chat(DecisionProvider, _DECISION_FIELDS)
        return GrammarToolCallingProvider(decider, self._build_chat(ChatProvider, _DRY), chat)

    def _build_chat(self, kind: type[ChatProvider], fields: Mapping[str, Any]) -> ChatProvider:
        assert self.endpoint is not None
        profile = replace(_PROFILE, extra_body=fields)
        # The name has no port, which is different after each start.
        return kind("local", self.endpoint, profile, settings=ModelSettings(temperature=0.0), name=self.info.name)

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


def _find_file(name: str, where: str) -> Path:
    """Return the path of a GGUF file; `where` is the setting that names it.

    Raises:
        ConfigError: The file cannot be read, or is not a GGUF file.
    """
    file = Path(name).expanduser()
    try:
        with file.open("rb") as opened:
            if opened.read(4) == b"GGUF":
                return file
    except OSError as error:
        raise ConfigError(f"{where}: {file} cannot be read: {error.strerror}") from error
    raise ConfigError(f"{where}: {file} is not a GGUF file", hint="the model must be in llama.cpp's format")


def _with_tool_format(info: ModelInfo, file: Path) -> ModelInfo:
    """Return the info of a model, which uses tool calls as text under a grammar if its file has no chat template.

    Without a template, the model's server leaves tools out of the prompt.
    """
    if file.stat().st_size == QWEN.size:
        return info
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as content:
        has_template = content.find(b"tokenizer.chat_template", 0, METADATA_BYTES) >= 0
    return info if has_template else replace(info, tool_format=ToolFormat.REACT, guidance=None)


class GrammarToolCallingProvider:
    """Asks a model for a decision, and then for an answer, and yields the deltas of an ordinary reply.

    The providers ask the same model. They are closed with this provider.

    Args:
        decider: The provider for decisions, which must support a grammar.
        writer: The provider for answers; None for `decider`.
        formatter: The provider for requests that have their own constraints; None for `decider`.
    """

    def __init__(self, decider: Provider, writer: Provider | None = None, formatter: Provider | None = None) -> None:
        self.info = decider.info
        self._decider = decider
        self._writer = writer or decider
        self._formatter = formatter or decider

    def generate(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        """Ask the model for decisions until a call or an answer is chosen, and yield the reply as it arrives.

        Raises:
            ProviderError: One of the inner providers raised it.
        """
        return self._formatter.generate(request) if _needs_no_decision(request) else self._decide_first(request)

    async def _decide_first(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        usage = Usage()

        async def decide(asked: ModelRequest) -> ToolDecision:
            nonlocal usage
            text, completion = "", Completion(FinishReason.CUT)
            async with aclosing(self._decider.generate(asked)) as deltas:
                async for delta in deltas:
                    if isinstance(delta, Completion):
                        completion = delta
                    elif isinstance(delta, TextChunk):
                        text += delta.text
            usage += completion.usage
            return read_decision(text, completion)

        policy, form = CallPolicy(request, decide), request.output_format
        # Without a tool that can be called, a decision would often misjudge a text for extraction as live data.
        is_extraction = form is not None and not (request.tools and request.allows_calls)
        chosen = "" if is_extraction else await policy.choose()
        if isinstance(chosen, ToolCallRequest):
            yield CallChunk(chosen)
            yield Completion(FinishReason.TOOL_CALLS, usage)
        elif chosen and (form is None or not policy.has_answer):
            yield TextChunk(chosen)
            # A structured answer counts as refused: under its grammar the model would invent unknown facts.
            yield Completion(FinishReason.STOP if form is None else FinishReason.REFUSED, usage)
        else:
            async with aclosing(self._answer(build_answer_request(request, policy.results), usage)) as deltas:
                async for delta in deltas:
                    yield delta

    async def _answer(self, request: ModelRequest, usage: Usage) -> AsyncGenerator[Delta, None]:
        repetition = Repetition()
        writer = self._formatter if request.output_format is not None else self._writer
        async with aclosing(writer.generate(request)) as deltas:
            async for delta in deltas:
                yield replace(delta, usage=usage + delta.usage) if isinstance(delta, Completion) else delta
                if isinstance(delta, TextChunk) and request.output_format is None and repetition.feed(delta.text):
                    yield Completion(FinishReason.LENGTH, usage, notes=(REPEATED,))
                    return

    async def aclose(self) -> None:
        """Close the inner providers."""
        for model in dict.fromkeys((self._decider, self._writer, self._formatter)):
            await model.aclose()


def _needs_no_decision(request: ModelRequest) -> bool:
    """Return True if the host uses a text tool format, or if there is no question to decide about."""
    if request.tools:
        return False
    is_question = bool(request.messages) and request.messages[-1].role is Role.USER
    return not is_question or bool(request.grammar or request.schema or request.stop)
