"""The route for the models that conversations may choose from."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dial_client.client.dial_client import DialClient
from dial_client.messages.model import ModelInfo
from dial_client.messages.token_usage import Usage
from dial_client.serve.http_messages import build_json_response
from dial_client.serve.turn_registry import ServedModel
from dial_client.settings.config_types import ModelProfile
from dial_client.turns.prices import compute_cost, find_context_window

_MILLION = 1_000_000


class ModelRoutes:
    """The route ``/models``.

    Args:
        dial: The client, which has the model profiles.
        model: The model of conversations that choose none.
        locked: Names of the settings that conversations cannot override.
    """

    def __init__(self, dial: DialClient, model: ServedModel, locked: Collection[str]) -> None:
        self._dial = dial
        self._model = model
        self._locked = sorted(locked)

    def build_routes(self) -> list[Route]:
        """Return the routes."""
        return [Route("/models", self._list, methods=["GET"])]

    async def _list(self, request: Request) -> Response:  # noqa: ARG002 - the response is the same for every request
        profiles = [] if "model" in self._locked else list(self._dial.model.profiles.values())
        models = await to_thread.run_sync(lambda: [self._describe(profile) for profile in profiles])
        default = {"name": self._model.name, "profile": self._dial.model.profile_name or None}
        return build_json_response({"models": models, "default": default, "locked": self._locked})

    def _describe(self, profile: ModelProfile) -> dict[str, Any]:
        """Return the properties of a profile that are known without a request to it; unknown values are omitted."""
        model = profile.model or profile.name
        info = ModelInfo(profile.name, model, profile.base_url or "")
        flags = profile.quirks
        known = {
            "name": profile.name,
            "model": model,
            "context_window": profile.context_window or find_context_window(info),
            "input_usd_per_million": compute_cost(Usage(input_tokens=_MILLION), info),
            "output_usd_per_million": compute_cost(Usage(output_tokens=_MILLION), info),
            "tools": "text" if profile.tool_format not in (None, "native") else None,
            "images": flags.get("images"),
            "documents": flags.get("documents"),
            "takes_temperature": flags.get("sampling"),
        }
        return {name: value for name, value in known.items() if value is not None}
