"""The certificates of authorities for connections to servers, which are read once in a process.

To read them takes 40 ms of processor time, which each connection to a server would spend.
"""

from __future__ import annotations

import os
import ssl
from functools import lru_cache
from typing import Any

import httpx2


@lru_cache(maxsize=4)
def _read_context(file: str, folder: str) -> ssl.SSLContext:
    """Return the context of these values of ``SSL_CERT_FILE`` and ``SSL_CERT_DIR``, which httpx2 reads by itself."""
    del file, folder
    return httpx2.create_ssl_context()


def _find_context() -> ssl.SSLContext:
    return _read_context(os.environ.get("SSL_CERT_FILE", ""), os.environ.get("SSL_CERT_DIR", ""))


class _ContextForRedirects(ssl.SSLContext):
    """The context of a client for plain HTTP: a redirect to HTTPS is verified like any other connection.

    Both methods are those by which event loops begin TLS.
    """

    def wrap_bio(self, *arguments: Any, **options: Any) -> ssl.SSLObject:
        return _find_context().wrap_bio(*arguments, **options)

    def wrap_socket(self, *arguments: Any, **options: Any) -> ssl.SSLSocket:
        return _find_context().wrap_socket(*arguments, **options)


def find_tls_context(url: str) -> ssl.SSLContext:
    """Return the context for a client of a URL; the certificates are read only when there is TLS.

    Raises:
        OSError: The environment names certificates that cannot be read.
    """
    return _find_context() if url.lower().startswith("https:") else _ContextForRedirects(ssl.PROTOCOL_TLS_CLIENT)
