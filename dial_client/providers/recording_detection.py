"""Tells whether a model or a server is part of a recording, without the import of the code for replays."""

from __future__ import annotations

import sys

from dial_client.messages.model import Provider


def is_recording(model: str | Provider | None) -> bool:
    """Return True if a model or a model's name is a recording."""
    if isinstance(model, str):
        return is_recording_name(model)
    scripted = sys.modules.get("dial_client.providers.scripted")  # if it is not loaded, no instance can exist
    return scripted is not None and isinstance(model, scripted.ScriptedProvider) and model.servers is not None


def is_recorded_server(target: object) -> bool:
    """Return True if a server is a recorded server of `replay.load_recording`."""
    script = sys.modules.get("dial_client.providers.script")
    return script is not None and isinstance(target, script.RecordedServer)


def is_recording_name(model: str) -> bool:
    """Return True if a model's name names a recording."""
    prefix, _, path = model.partition(":")
    if prefix != "scripted":
        return False
    from dial_client.providers.script_format import is_recording_file

    return is_recording_file(path)
