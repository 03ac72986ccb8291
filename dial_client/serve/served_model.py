"""The model's name in the API."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class ServedModel:
    """The name of the model for clients of the API. The name changes when the configuration changes."""

    name: str
