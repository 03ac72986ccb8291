"""Tool calls as an editor shows them: a title, the kind, the files, the changes of files, and the result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
from acp.helpers import ToolCallContentVariant, text_block, tool_content, tool_diff_content
from acp.schema import ToolCallLocation, ToolCallProgress, ToolCallStart, ToolCallUpdate, ToolKind

from dial_client.acp.prompt_content import to_blocks
from dial_client.messages.message import Message, Role, ToolCallRequest, ToolCallResult, ToolSpec
from dial_client.runtime.safe_text import escape_unseen, sanitize
from dial_client.settings.config_types import ServerSettings
from dial_client.sinks.turn_display import describe
from dial_client.sinks.turn_frames import CallPath
from dial_client.tools.file_changes import find_file_texts, find_path

# Maximum seconds for which a question about a call waits until the call is shown.
PATIENCE = 1.0


class CallIds:
    """The calls that an editor shows, by ids that are unique in a session, as those of models need not be.

    A call is named by the ids of the calls of the agents that lead to it, and its own.
    """

    def __init__(self) -> None:
        self._count = 0
        self._shown: dict[CallPath, str] = {}
        self._events: dict[CallPath, anyio.Event] = {}

    def begin(self, *path: str) -> str:
        """Return the id for the editor of a call that begins."""
        self._count += 1
        self._shown[path] = f"{self._count}-{path[-1]}"
        return self._shown[path]

    def note_shown(self, *path: str) -> None:
        """Let questions about a call be asked: the editor has it."""
        self._events.setdefault(path, anyio.Event()).set()

    async def wait_for(self, *path: str) -> str:
        """Return the id for the editor of a call, once it is shown; a request that is no call is never shown."""
        with anyio.move_on_after(PATIENCE):
            await self._events.setdefault(path, anyio.Event()).wait()
        return self._shown.get(path) or self.begin(*path)

    def find(self, *path: str) -> str:
        """Return the id for the editor of a call that is shown."""
        return self._shown.get(path, path[-1])

    def end(self, *path: str) -> str:
        """Return the id for the editor of a call that has ended."""
        self._events.pop(path, None)
        return self._shown.pop(path, path[-1])


@dataclass(frozen=True, slots=True)
class CallView:
    """What an editor shows of a call before its result."""

    title: str
    kind: ToolKind
    content: tuple[ToolCallContentVariant, ...]
    locations: tuple[ToolCallLocation, ...]
    arguments: Mapping[str, Any]

    def start(self, id_: str) -> ToolCallStart:
        """Return the update that shows the call."""
        return ToolCallStart(session_update="tool_call", tool_call_id=id_, status="in_progress", **self._to_fields())

    def ask(self, id_: str, notes: tuple[str, ...]) -> ToolCallUpdate:
        """Return the call of a request for permission, with notes above what it shows."""
        fields = self._to_fields()
        fields["content"] = [*(tool_content(text_block(note)) for note in notes), *self.content]
        return ToolCallUpdate(tool_call_id=id_, status="pending", **fields)

    def _to_fields(self) -> dict[str, Any]:
        return {
            "title": self.title,
            "kind": self.kind,
            "content": list(self.content),
            "locations": list(self.locations),
            "raw_input": dict(self.arguments),
        }


def show_call(
    call: ToolCallRequest, server: str, spec: ToolSpec | None, settings: ServerSettings | None, agent: str = ""
) -> CallView:
    """Return what an editor shows of a call; reads the file that a call would replace.

    Args:
        call: The call.
        server: The server that it reaches.
        spec: The tool; None if it is not known.
        settings: The entry of the server, whose folders may be read.
        agent: The path of the agent that makes the call; empty for the turn itself.
    """
    name, arguments = describe(call, server, spec.tool if spec is not None else call.name)
    changes = find_file_texts(call.arguments, settings)
    # What cannot be seen in an editor is written out, as in every other question about a call.
    diffs = tuple(
        tool_diff_content(change.path, escape_unseen(change.new), change.old and escape_unseen(change.old))
        for change in changes
    )
    path = find_path(call.arguments, settings)
    is_file = path is not None and (bool(diffs) or Path(path).exists())
    kind: ToolKind = "edit" if diffs else "read" if spec is not None and spec.read_only else "other"
    locations = (ToolCallLocation(path=path),) if path is not None and is_file else ()
    title = f"{agent} > {name} {arguments}" if agent else f"{name} {arguments}"
    return CallView(title.strip(), kind, diffs, locations, call.arguments)


def show_result(id_: str, result: ToolCallResult) -> ToolCallProgress:
    """Return the update with the result of a call. Diffs stay as they are shown if there is no text."""
    message = Message(Role.TOOL, result.content)
    blocks = to_blocks(message) or [text_block(sanitize(result.error or "(no output)"))]
    return ToolCallProgress(
        session_update="tool_call_update",
        tool_call_id=id_,
        status="completed" if result.success else "failed",
        content=[tool_content(block) for block in blocks],
        raw_output=sanitize(message.text),
    )
