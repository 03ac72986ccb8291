"""Repairs the JSON documents of authorization servers: the SDK refuses a whole document for one odd member.

Optional members that are empty or invalid count as missing. What a document says about security stays as it is: an
unknown type of token, for example, is refused.
"""

from __future__ import annotations

import json
import math
from contextlib import suppress
from typing import Any

import httpx2
from mcp.client.auth.utils import issuers_match
from mcp.shared.auth import OAuthClientInformationFull, OAuthMetadata, OAuthToken, ProtectedResourceMetadata
from pydantic import BaseModel, ValidationError

# The most seconds until a token expires; more would be no time.
_MAX_SECONDS = 10**9


def repair_response(request: httpx2.Request, response: httpx2.Response, issuer: str) -> httpx2.Response:
    """Return a successful response with its document repaired; other responses unchanged.

    Args:
        request: The request, to which another document belongs: metadata, a registration or a token.
        response: The response.
        issuer: The issuer that metadata have to name. One that differs by the slash of an empty path is the same.
    """
    try:
        document: Any = json.loads(response.content) if response.status_code in (200, 201) else None
    except (ValueError, RecursionError):
        return response
    if not isinstance(document, dict):
        return response
    if request.method == "POST":
        is_token = request.headers.get("content-type") == "application/x-www-form-urlencoded"
        kind: type[BaseModel] = OAuthToken if is_token else OAuthClientInformationFull
    else:
        kind = OAuthMetadata if "token_endpoint" in document else ProtectedResourceMetadata
    document = _repair(document, kind)
    if kind is OAuthMetadata:
        with suppress(ValidationError):
            if issuers_match(str(OAuthMetadata.model_validate(document).issuer), issuer):
                document["issuer"] = issuer
    headers = {"content-type": "application/json"}
    return httpx2.Response(response.status_code, headers=headers, content=json.dumps(document), request=request)


def read_issuer(response: httpx2.Response) -> str:
    """Return the issuer as the metadata in a response name it; empty if the response has no metadata."""
    try:
        document: Any = json.loads(response.content) if response.status_code == 200 else None
    except (ValueError, RecursionError):
        return ""
    is_metadata = isinstance(document, dict) and "token_endpoint" in document
    return str(document.get("issuer", "")) if is_metadata else ""


def _repair(document: dict[str, Any], kind: type[BaseModel]) -> dict[str, Any]:
    document = {name: value for name, value in document.items() if value is not None and value != ""}
    scope = document.get("scope")
    if isinstance(scope, list):
        document["scope"] = " ".join(map(str, scope))
    if "expires_in" in document:
        document["expires_in"] = _read_seconds(document["expires_in"])
    try:
        kind.model_validate(document)
    except ValidationError as error:
        invalid = {problem["loc"][0] for problem in error.errors() if problem["loc"]} - {"token_type"}
        optional = {name for name, field in kind.model_fields.items() if not field.is_required()}
        return {name: value for name, value in document.items() if name not in invalid & optional}
    return document


def _read_seconds(value: Any) -> int | None:
    """Return in how many seconds a token expires; None if it is not known, as for numbers that are not positive."""
    try:
        seconds = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return min(int(seconds), _MAX_SECONDS) if math.isfinite(seconds) and seconds >= 1 else None
