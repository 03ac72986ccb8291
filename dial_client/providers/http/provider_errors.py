"""Builders of `ProviderError`s for refusals, broken connections and invalid responses, with one-line messages."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import jiter

from dial_client.messages.errors import (
    CONTEXT_LENGTH_EXCEEDED,
    IMAGE_UNREADABLE,
    IMAGES_UNSUPPORTED,
    TOOLS_UNSUPPORTED,
    ProviderError,
)
from dial_client.providers.http.endpoint import Endpoint
from dial_client.runtime.json_fields import to_text
from dial_client.runtime.lazy_pattern import compile_lazily
from dial_client.runtime.network_environment import remark_on_network
from dial_client.runtime.text import replace_surrogates

RETRY_NOTE = "the endpoint could not parse the model's tool call: the request is sent again"

_NO_TOOLS = compile_lazily(
    r"(?:not|n't) support(?:ed)?\b[^.]{0,40}\b(?:tools?|functions?)\b|\btools?\b[^.]{0,60}\b(?:not|n't) supported"
    r"|support tool use|enable-auto-tool-choice|tools param requires|\btool calling\b[^.]{0,40}\bnot supported",
    re.IGNORECASE,
)
# Matches a refusal of one image: its form, its size or its content.
_BAD_IMAGE = compile_lazily(
    r"\bimages?[ _-]?(?:data |file )?(?:format|dimensions?|size|resolution|width|height|length|aspect|mime)\b"
    r"|\b(?:process|load|decod\w*|parse|read|download|identify|open)\b[^.]{0,20}\bimage\b"
    r"|image[^.]{0,20}: unknown format"
    r"|valid[ _](?:\w+[ _])?(?:image|base64)|\bunsupported image\b|image.{0,40}media_type|mime.?type\W{0,3}image"
    r"|\bimage[^.]{0,40}(?:truncated|corrupt|damaged|not valid|exceeds?|larger than|smaller than"
    r"|too (?:large|big|small|long|tall|wide|many pixels))",
    re.IGNORECASE,
)
_IMAGE_WORDS = r"\b(?:images?|image_url|vision|multi-?modal(?:ity)?)\b"
_NOT = r"(?:not|n't|no|only|unsupported)"
_TAKEN = r"(?:be )?(?:support|accept|allow|enable|available)\w*"
# Matches a refusal of images as such.
_NO_IMAGES = compile_lazily(
    rf"{_NOT} {_TAKEN}[^.]{{0,60}}{_IMAGE_WORDS}|{_IMAGE_WORDS}[^.]{{0,60}}\b{_NOT} {_TAKEN}"
    r"|\b(?:support|required for|capable of) (?:image|vision|multimodal)\b|\bnot an? (?:multi-?modal|vision)\b"
    r"|at most 0 image|unknown variant \W?image|\btag 'image' found|text.only.{0,40}\bimage"
    r"|text is supported.{0,9}image|(?:value|illegal|content type)\W{1,3}image_url\b"
    r"|content\W{1,6}(?:value )?must be a string",
    re.IGNORECASE,
)
# Statuses that do not depend on what the request asks: the key, the account, the load.
_UNRELATED_STATUSES = frozenset({401, 402, 403, 407, 408, 409, 429})
_TOO_LONG = compile_lazily(
    r"context.?(?:length|window|size)|prompt is too long|maximum context|input is too long"
    r"|too many (?:input )?tokens|\btoo_many_prompt_tokens\b",
    re.IGNORECASE,
)
_MAX_MESSAGE = 500
# The characters of the shortest key that is masked within words too.
_MIN_KEY = 8
# What programs put in place of a key, for endpoints that require none.
_DUMMY_KEYS = frozenset({"dummy", "empty", "fake", "key", "local", "no-key", "none", "null", "ollama", "test", "token"})


def build_refusal_error(endpoint: Endpoint, status: int, headers: Mapping[str, str], body: bytes) -> ProviderError:
    """Return the error for a response whose status is not 2xx."""
    if 300 <= status < 400:
        location = _to_line(headers.get("location", "another address"), endpoint)
        return ProviderError(
            f"{endpoint.host} redirects to {location}: redirects are not followed; set that address if it is right",
            status=status,
            code="redirect",
        )
    return build_reported_error(
        endpoint, parse_json(body), status=status, text=body, retry_after=parse_retry_after(headers)
    )


def build_reported_error(
    endpoint: Endpoint, value: Any, *, status: int | None = None, text: bytes = b"", retry_after: float | None = None
) -> ProviderError:
    """Return the error that an endpoint reports in a response body or in a stream event.

    Args:
        endpoint: The endpoint.
        value: The parsed JSON of the body or event; None if the body is not JSON.
        status: The HTTP status, if it is an error status.
        text: The body as bytes, for an error message if it is not JSON.
        retry_after: Seconds that the endpoint asks the client to wait.
    """
    message, code, param, kind = _parse_error(value)
    retry_after = retry_after or _find_wait(status, message, value)
    if status is None and code is not None and code.isdecimal() and 400 <= int(code) < 600:
        status = int(code)
    message = _to_line(message or _to_text(text), endpoint)
    if param and param not in message:
        message = f"{message} (param: {_to_line(param, endpoint)})"
    answered = f"{endpoint.host} answered {status}" if status else f"{endpoint.host} reports an error"
    hint = f"; {endpoint.hint}" if status in (401, 403) and endpoint.hint else ""
    hint = f"; is {endpoint.base_url} the right address, and the model's name right?" if status == 404 else hint
    hint = f"; it asks the client to wait {retry_after:,.0f} s" if retry_after and retry_after >= 1 else hint
    reason = message.removesuffix(".") if hint else message
    return ProviderError(
        f"{answered}: {reason}{hint}" if message else f"{answered}{hint}",
        status=status,
        code=_find_code(status, code, f"{message}\n{kind}"),
        retry_after=retry_after,
    )


def build_connection_error(endpoint: Endpoint, error: BaseException | None) -> ProviderError:
    """Return the error for a connection that could not be opened, or that broke or timed out."""
    import httpx2

    if isinstance(error, httpx2.ConnectTimeout):
        return ProviderError(f"{endpoint.host} could not be reached in time", code="timeout")
    if isinstance(error, httpx2.TimeoutException | TimeoutError):
        return ProviderError(f"{endpoint.host} did not answer in time", code="timeout")
    why = _to_line(str(error or ""), endpoint) or type(error).__name__
    if isinstance(error, httpx2.ConnectError):
        hint = "; is the server running?" if endpoint.is_local else ""
        hint = remark_on_network(why, endpoint.base_url) or hint
        return ProviderError(f"{endpoint.host} cannot be reached: {why}{hint}", code="connection")
    hint = remark_on_network(why, endpoint.base_url) if isinstance(error, httpx2.ProxyError) else ""
    return ProviderError(f"the connection to {endpoint.host} broke: {why}{hint}", code="connection")


def build_client_error(endpoint: Endpoint, error: Exception) -> ProviderError:
    """Return the error for a vendor's client that could not authenticate or could not build a request."""
    first_line = next(iter(str(error).strip().splitlines()), type(error).__name__).rstrip(".")
    why = f"the client for {endpoint.host} could not send the request: {_to_line(first_line, endpoint)}"
    return ProviderError(f"{why}; {endpoint.sign_in}" if endpoint.sign_in else why, code="client")


def build_invalid_response_error(endpoint: Endpoint, text: str) -> ProviderError:
    """Return the error for a body that is neither JSON nor an event stream, such as a web page."""
    excerpt = _to_line(_to_text(text.encode()), endpoint)
    what = "a web page" if text.lstrip()[:1] == "<" else "text that is not JSON"
    return ProviderError(
        f"{endpoint.host} sent {what} instead of a model's reply: {excerpt}; is the address right?", code="cut"
    )


def parse_json_response(endpoint: Endpoint, body: bytes, max_length: int) -> Any:
    """Return the value of a JSON body.

    Raises:
        ProviderError: The body is not JSON, or longer than `max_length` bytes.
    """
    if len(body) > max_length:
        raise ProviderError(f"{endpoint.host} sent more than {max_length} bytes", code="cut")
    try:
        return jiter.from_json(body)
    except ValueError:
        raise build_invalid_response_error(endpoint, body[:4000].decode("utf-8", "replace")) from None


class StreamedError(Exception):
    """A response with status 2xx reports an error, which is in `value`. This exception never leaves the package."""

    def __init__(self, value: Any) -> None:
        super().__init__("the response reports an error")
        self.value = value


def require_object(value: Any) -> dict[str, Any]:
    """Return the JSON object of a response or an event.

    Raises:
        StreamedError: The value is not an object, or it reports an error (it has ``error``, or its ``object`` or
            ``type`` is ``"error"``).
    """
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if not isinstance(value, dict):
        raise StreamedError(value if isinstance(value, str) else "the response is not a JSON object")
    if value.get("error") or value.get("object") == "error" or value.get("type") == "error":
        raise StreamedError(value)
    return value


def parse_retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the wait in seconds from ``retry-after-ms``, or from ``retry-after`` in seconds or as a date."""
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name, "")) / unit
        except ValueError:
            continue
        return max(0.0, seconds) if math.isfinite(seconds) else None
    from email.utils import parsedate_to_datetime

    try:
        date = parsedate_to_datetime(headers.get("retry-after", ""))
        return max(0.0, date.timestamp() - time.time())
    except (ValueError, OverflowError, OSError):
        return None


# A wait in words, such as "try again in 1m26.4s", and Google's `RetryInfo`, which a router may send on as a text.
_WAIT = compile_lazily(
    r"(?:try again|retry|wait)(?: in| after| for)? ((?:\d+(?:\.\d+)?\s?[a-z]+\b\s?){1,3}|(?:[\d.]+[hms]+)+)"
)
_PARTS = compile_lazily(r"(\d+(?:\.\d+)?)\s?(ms|milli|h|m|s)")
_UNITS = {"ms": 0.001, "milli": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_RETRY_DELAY = compile_lazily(r"retryDelay\W{1,9}(\d+(?:\.\d+)?)s")


def _find_wait(status: int | None, message: str, value: Any) -> float | None:
    """Return the wait in seconds that the body of a response names; None if there is none."""
    if status is not None and status < 500 and status not in (408, 409, 429):
        return None
    if delay := _RETRY_DELAY.search(str(value)[:20_000]):
        return float(delay[1])
    words = _WAIT.search(message[:20_000].lower())
    parts = _PARTS.findall(words[1]) if words else ()
    return sum(float(number) * _UNITS[unit] for number, unit in parts) or None


class _Report(NamedTuple):
    """An error as the endpoint reports it."""

    message: str
    code: str | None = None
    param: str = ""
    kind: str = ""
    """The error's ``type``, which is more specific than a numeric code (Perplexity)."""


def _parse_error(value: Any) -> _Report:
    """Return the report of an error, joined with the report of the endpoint behind a router (OpenRouter)."""
    message, code, param, kind = _parse_own_error(value)
    message_behind, code_behind, param_behind, kind_behind = _parse_own_error(_find_routed_error(value))
    if message_behind and message_behind not in message:
        message = f"{message}: {message_behind}" if message else message_behind
    if code_behind and not code_behind.isdecimal() and (code is None or code.isdecimal()):
        code = code_behind
    return _Report(message, code, param or param_behind, f"{kind}\n{kind_behind}")


def _find_routed_error(value: Any) -> Any:
    """Return the report in ``error.metadata.raw``, parsed if it is a JSON text; None if there is none."""
    for name in ("error", "metadata", "raw"):
        value = value.get(name) if isinstance(value, dict) else None
    return (parse_json(value.encode("utf-8", "replace")) or value) if isinstance(value, str) else value


def _parse_own_error(value: Any) -> _Report:
    """Return the report of an error in any of the forms that endpoints use."""
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if not isinstance(value, dict):
        return _Report(value if isinstance(value, str) else "")
    error = value.get("error") or value
    if not isinstance(error, dict):
        return _Report(str(error))
    details = error.get("details")
    code = (details.get("error_code") if isinstance(details, dict) else None) or error.get("code") or error.get("type")
    message = error.get("message") or error.get("detail") or error.get("error") or ""
    return _Report(
        message if isinstance(message, str) else str(message),
        None if code is None else str(code),
        to_text(error.get("param")),
        to_text(error.get("type")),
    )


def _find_code(status: int | None, code: str | None, message: str) -> str | None:
    if status in _UNRELATED_STATUSES:
        return code
    # A server that is overloaded (503, 529) may name the length of its queue.
    is_refusal = status in (None, 400, 404, 413, 422, 500, 501)
    if is_refusal and (code == CONTEXT_LENGTH_EXCEEDED or _TOO_LONG.search(message)):
        return CONTEXT_LENGTH_EXCEEDED
    if _NO_TOOLS.search(message):
        return TOOLS_UNSUPPORTED
    if _BAD_IMAGE.search(message):
        # These statuses are refusals of the request, with the endpoint's own code.
        return code if status in (400, 415, 422) else IMAGE_UNREADABLE
    return IMAGES_UNSUPPORTED if _NO_IMAGES.search(message) else code


def parse_json(body: bytes) -> Any:
    """Return the value of a JSON text; None if it is not JSON."""
    try:
        return jiter.from_json(body)
    except ValueError:
        return None


def _to_text(body: bytes) -> str:
    """Return the text of a body; for a web page, its title, or its text without tags."""
    text = body[:20_000].decode("utf-8", "replace")
    if not text.lstrip().startswith("<"):
        return text
    title = re.search(r"<title[^>]{0,200}>([^<]{1,200})", text, re.IGNORECASE)
    return title[1] if title else re.sub(r"<[^<>]*>", " ", text)


def _to_line(text: str, endpoint: Endpoint) -> str:
    """Return a text as one line of limited length, with the key masked and without control characters."""
    key = endpoint.key
    if len(key) >= _MIN_KEY:
        text = text.replace(key, "[key]")
    elif len(key) > 1 and key.lower() not in _DUMMY_KEYS:
        # A short key is a part of many words.
        text = re.sub(rf"(?<![\w-]){re.escape(key)}(?![\w-])", "[key]", text)
    text = " ".join("".join(char if char.isprintable() else " " for char in replace_surrogates(text[:20_000])).split())
    return text if len(text) <= _MAX_MESSAGE else f"{text[:_MAX_MESSAGE]}…"
