"""Fetches the images that a request names by ``https:`` URLs, and puts them into the request as ``data:`` URLs.

The client chooses the URL, and this server sends the request: it must not reach what only this server can reach, such
as the home or company network, or the metadata service of a cloud (SSRF). Only public addresses are allowed, each
redirect is checked anew, and the connection goes to the very address that was checked (DNS rebinding).
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

import anyio

from dial_client.runtime.media_types import IMAGE_TYPES
from dial_client.serve.http_messages import HttpError
from dial_client.serve.model_api.answer_request import build_error
from dial_client.servers.oauth.oauth_http_client import NetworkScope, find_scope, pin_request, read_body, resolve

MAX_IMAGES = 16
"""Images of one request that are fetched."""
# Bytes of one image.
MAX_IMAGE = 10 * 1024 * 1024
# Seconds for all images of a request.
FETCH_SECONDS = 20.0
_MAX_REDIRECTS = 3


class ImageFetcher:
    """Fetches images.

    Args:
        scope: The most private network that URLs may lead to. Within a private network ``http:`` is allowed too.
    """

    def __init__(self, scope: NetworkScope = NetworkScope.PUBLIC) -> None:
        self._scope = scope

    async def embed(self, messages: Any, path: str = "messages") -> None:
        """Replace the URLs of images in the messages of a request, in place, by ``data:`` URLs.

        Args:
            messages: The messages, in the form of any API: an object with the key ``image_url`` or ``url`` whose value
                is a URL is an image.
            path: The place of the messages in the request, for error messages.

        Raises:
            HttpError: A URL is not allowed, or is not an image, or there are too many.
        """
        places = list(_find_places(messages, path))
        if len(places) > MAX_IMAGES:
            raise build_error(
                places[MAX_IMAGES][2], f"is one of more than {MAX_IMAGES} images that are not in the request"
            )
        try:
            with anyio.fail_after(FETCH_SECONDS):
                for holder, key, place in places:
                    holder[key] = await self._fetch(holder[key], place)
        except TimeoutError:
            raise build_error(path, f"has images that did not arrive within {FETCH_SECONDS:g} s") from None

    async def _fetch(self, url: str, path: str) -> str:
        import httpx2

        async with httpx2.AsyncClient(timeout=FETCH_SECONDS) as client:
            for _ in range(_MAX_REDIRECTS + 1):
                request = await self._pin(httpx2.Request("GET", url, headers={"accept": "image/*"}), path)
                try:
                    response = await client.send(request, stream=True, follow_redirects=False)
                    try:
                        if not response.has_redirect_location:
                            return await _read_image(response, path)
                        url = urljoin(url, response.headers["location"])
                    finally:
                        await response.aclose()
                except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
                    raise build_error(path, f"cannot be fetched: {type(error).__name__}") from None
        raise build_error(path, "redirects too often")

    async def _pin(self, request: Any, path: str) -> Any:
        """Return the request for the address that was checked.

        Raises:
            HttpError: The URL leads where it must not.
        """
        parts = urlsplit(str(request.url))
        is_encrypted = parts.scheme == "https"
        if not is_encrypted and not (parts.scheme == "http" and self._scope > NetworkScope.PUBLIC):
            raise build_error(path, "is fetched over https only; send the image as a data: URL")
        if not parts.hostname or parts.username or parts.password:
            raise build_error(path, "is not a plain web address")
        addresses = await resolve(parts.hostname)
        # All addresses count, because the name may lead to any of them.
        if find_scope(addresses) > self._scope:
            raise build_error(path, "leads into a private network, and is not fetched; send the image as a data: URL")
        proxies = getproxies()
        if (proxies.get(parts.scheme) or proxies.get("all")) and not proxy_bypass(parts.hostname):
            return request  # the proxy connects; the name may be resolvable only there
        if not addresses:
            raise build_error(path, "cannot be fetched: its name is unknown")
        return pin_request(request, addresses[0])


def _find_places(value: Any, path: str) -> Iterator[tuple[dict[str, Any], str, str]]:
    """Yield the place of each URL of an image: the object, the key, and the path for messages."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _find_places(item, f"{path}[{index}]")
    elif isinstance(value, dict):
        for key in ("image_url", "url"):
            if isinstance(url := value.get(key), str) and url[:8].lower().startswith(("http://", "https://")):
                yield value, key, f"{path}.{key}"
        for key in ("content", "image_url", "source", "output"):
            if isinstance(value.get(key), Mapping | list):
                yield from _find_places(value[key], f"{path}.{key}")


async def _read_image(response: Any, path: str) -> str:
    """Return the image of a response as a ``data:`` URL."""
    if response.status_code != 200:
        raise build_error(path, f"cannot be fetched: status {response.status_code}")
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in IMAGE_TYPES:
        raise build_error(path, f"is not an image of a supported type ({', '.join(sorted(IMAGE_TYPES))})")
    body = await read_body(response, MAX_IMAGE)
    if body is None:
        raise HttpError(413, f"{path} is larger than {MAX_IMAGE // (1024 * 1024)} MiB", "image_too_large", param=path)
    return f"data:{kind};base64,{base64.b64encode(body).decode()}"
