"""A vendor's SDK, used for what it is good at: connections, and asking again when an endpoint is busy.

The body that leaves is the provider's own bytes, and the body that comes back is given as it is. Of the SDK's headers
none leaves: it would add the user's own keys and organisation from the environment, whatever the address.
"""

from __future__ import annotations

import importlib
import threading
import time
from typing import TYPE_CHECKING, Any, Literal

from anyio import to_thread

from dial_client import __version__
from dial_client.logs import get_logger
from dial_client.providers import failures
from dial_client.providers.endpoint import Endpoint

if TYPE_CHECKING:
    import httpx2

log = get_logger(__name__)

CONNECT_TIMEOUT = 10.0
_MAX_RETRIES = 2
_PATIENCE = 30.0
"""Seconds an endpoint may ask to wait before it is asked again; more than that is the caller's to decide."""


class Connection:
    """The way to one endpoint; under asyncio, which is what the SDKs are made for."""

    def __init__(self, endpoint: Endpoint, sdk: Literal["openai", "anthropic"]) -> None:
        self.endpoint = endpoint
        self._sdk_name = sdk
        self._sdk: Any = None
        self._client: Any = None
        self._lock = threading.Lock()

    def preload(self) -> Any:
        """Import the SDK and give its client, which takes a second or two; safe in any thread, and more than once."""
        with self._lock:
            if self._client is None:
                began = time.monotonic()
                self._sdk = importlib.import_module(self._sdk_name)
                self._client = self._make_client()
                log.debug("sdk_loaded", sdk=self._sdk_name, seconds=round(time.monotonic() - began, 3))
            return self._client

    async def post(self, path: str, body: bytes, *, idle_timeout: float) -> httpx2.Response:
        """Send a request, and give the answer with its body unread; whoever gets it closes it.

        Args:
            path: begins with a slash; is put behind the endpoint's address.
            body: JSON.
            idle_timeout: seconds to wait for each next piece of the answer.

        Raises:
            ProviderError: nobody answered, or the answer is a refusal.
        """
        client = self._client or await to_thread.run_sync(self.preload, abandon_on_cancel=True)
        import httpx2

        timeout = httpx2.Timeout(idle_timeout, connect=CONNECT_TIMEOUT)
        try:
            response: httpx2.Response = await client.post(
                path, cast_to=httpx2.Response, content=body, options={"timeout": timeout}, stream=True
            )
        except self._sdk.APIStatusError as error:
            answer = error.response
            raise failures.refused(self.endpoint, answer.status_code, answer.headers, answer.content) from None
        except self._sdk.APIConnectionError as error:
            raise failures.unreachable(self.endpoint, error.__cause__) from None
        except (self._sdk.APIError, httpx2.HTTPError, httpx2.StreamError) as error:
            raise failures.unreachable(self.endpoint, error) from None
        return response

    async def aclose(self) -> None:
        """Close all connections; the next request opens new ones."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    def _make_client(self) -> Any:
        import httpx2

        http = httpx2.AsyncClient(
            verify=self.endpoint.base_url.startswith("https:"),  # else the trust store is read for nothing: 0.1 s
            follow_redirects=False,
            trust_env=not self.endpoint.is_local,  # a proxy cannot know what runs on this machine
            timeout=httpx2.Timeout(60.0, connect=CONNECT_TIMEOUT),
            event_hooks={"request": [self._only_own_headers], "response": [_spare_useless_retries]},
        )
        make = self._sdk.AsyncAnthropic if self._sdk_name == "anthropic" else self._sdk.AsyncOpenAI
        return make(
            api_key="sent by the hook below",
            base_url=self.endpoint.base_url,
            max_retries=_MAX_RETRIES,
            default_query=dict(self.endpoint.query) or None,
            http_client=http,
        )

    async def _only_own_headers(self, request: httpx2.Request) -> None:
        import httpx2

        own = {
            "host": request.url.netloc.decode("ascii"),
            "accept": "text/event-stream, application/json",
            "accept-encoding": "gzip, deflate",
            "user-agent": f"dial-client/{__version__}",
            "content-type": "application/json",
            "content-length": str(len(request.content)),
        }
        request.headers = httpx2.Headers(own | dict(self.endpoint.headers))


async def _spare_useless_retries(response: httpx2.Response) -> None:
    """Tell the SDK not to ask again where that cannot help: the money is used up, or the wait is too long."""
    if response.status_code < 400:
        return
    await response.aread()
    wait = failures.retry_after(response.headers) or 0.0
    if b"insufficient_quota" in response.content or wait > _PATIENCE:
        response.headers["x-should-retry"] = "false"
