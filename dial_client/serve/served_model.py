"""The model's name in the API."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class ServedModel:
    """The model that answers: what clients call it. The name changes with the configuration."""

    name: str
