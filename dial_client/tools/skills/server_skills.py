"""Skills of MCP servers: the extension ``io.modelcontextprotocol/skills`` (SEP-2640), on the side of the host.

A server lists its skills, each with its front matter and a manifest: the SHA-256 and the size of every file. A file is
read when it is needed, not before, and its bytes are used only if they fit the manifest. The manifest is pinned when
the skill is first read: a skill whose manifest has changed since is withheld until the user trusts it again.

The digests come from the server that has the files, so they say nothing about who wrote them: all texts are untrusted.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from contextlib import suppress
from shlex import quote
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import anyio

from dial_client.messages.errors import ConfigError, ServerError
from dial_client.runtime.safe_text import to_one_line
from dial_client.servers.connection import Connection
from dial_client.servers.notifications import CACHE_SECONDS, LIST_SECONDS, Listing, read_all_pages
from dial_client.servers.resources import ask_server
from dial_client.servers.server_cache import compare_definitions
from dial_client.servers.status import ServerState
from dial_client.tools.skills.skill_document import FILE_NAME, is_same, parse_skill
from dial_client.tools.skills.skill_folders import MAX_BYTES, MAX_DOCUMENT, compute_digest
from dial_client.tools.skills.skill_manifest import ServerSkill, SkillProblem
from dial_client.tools.skills.skill_pins import SkillPins

if TYPE_CHECKING:
    from mcp import Client

# The most skills of one server that are kept.
MAX_SKILLS = 500
# The states in which the skills of a server can be read, if need be after its start.
_OFFERED = (ServerState.READY, ServerState.RESTARTING, ServerState.SLEEPING)


class ServerSkills:
    """The skills of all servers: lists, files that fit their manifests, and changes since they were pinned.

    Args:
        connections: The servers by name.
        pins: The manifests that are pinned.
    """

    def __init__(self, connections: Mapping[str, Connection], pins: SkillPins) -> None:
        self._connections, self._pins = connections, pins
        # The lists by connection, not by name: another server may get the same name. Each with the time until which it
        # is valid, and the revision of the server's resources, or -1 if it was not read for the present one.
        self._lists: WeakKeyDictionary[Connection, tuple[tuple[ServerSkill, ...], float, int]] = WeakKeyDictionary()

    def find(self) -> tuple[ServerSkill, ...]:
        """Return the skills that were listed last, without those of servers that are gone."""
        used = [server for server in self._connections.values() if server.has_skills and server.state in _OFFERED]
        return tuple(skill for server in used for skill in self._lists.get(server, ((),))[0])

    async def refresh(self, seconds: float) -> None:
        """Read the lists that may have changed, of servers that declare skills; a slow server is left out."""

        async def read(connection: Connection) -> None:
            # A server that does not answer, or is given up below, must not delay the next turns, too.
            skills, _, _ = self._lists.get(connection, ((), 0.0, -1))
            self._lists[connection] = skills, anyio.current_time() + CACHE_SECONDS, -1
            try:
                await self._read_list(connection)
            except ServerError as error:
                connection.add_note(f"its skills cannot be listed: {to_one_line(error.problem, 200)}")

        with anyio.move_on_after(seconds):
            async with anyio.create_task_group() as group:
                for connection in tuple(self._connections.values()):
                    is_open = connection.state in (ServerState.READY, ServerState.RESTARTING)
                    if connection.has_skills and is_open and not self._is_fresh(connection):
                        group.start_soon(read, connection)

    def _is_fresh(self, connection: Connection) -> bool:
        _, until, revision = self._lists.get(connection, ((), -1.0, -1))
        is_same = revision in (-1, connection.notifications.revisions[Listing.RESOURCES])
        return is_same and anyio.current_time() < until

    async def _read_list(self, connection: Connection) -> None:
        revision = connection.notifications.revisions[Listing.RESOURCES]

        async def request(client: Client) -> tuple[tuple[ServerSkill, ...], float]:
            from dial_client.tools.skills.skill_requests import SkillPages

            pages: Any = SkillPages(client, connection.name, connection.add_note)
            listed = await read_all_pages(pages, "skills", "uri", connection.add_note)
            if len(listed.items) > MAX_SKILLS:
                connection.add_note(f"only the first {MAX_SKILLS} of its skills are used")
            return listed.items[:MAX_SKILLS], listed.seconds or CACHE_SECONDS

        skills, seconds = await connection.ask(request, LIST_SECONDS)
        self._lists[connection] = skills, anyio.current_time() + seconds, revision

    async def get(self, server: str, uri: str) -> ServerSkill:
        """Return a skill by its URI, whether or not the server lists it, as it is now.

        Raises:
            ServerError: There is no such server or skill, it is invalid, or the server did not answer in time.
        """
        connection = self._connections.get(server)
        if connection is None or not connection.has_skills:
            raise ServerError(server, "there is no server of this name that has skills")

        async def request(client: Client) -> ServerSkill:
            from dial_client.tools.skills.skill_requests import request_skill

            return await request_skill(client, server, uri)

        skill = await ask_server(self._connections, server, request)
        skills, until, revision = self._lists.get(connection, ((), -1.0, -1))
        self._lists[connection] = (*(known for known in skills if known.uri != uri), skill), until, revision
        return skill

    def is_changed(self, skill: ServerSkill) -> bool:
        """Return True if the skill is withheld, because it has changed since it was pinned."""
        return self._pins.is_changed(skill)

    async def load(self, skill: ServerSkill) -> tuple[ServerSkill, str]:
        """Return the skill as it is now, and the text of its ``SKILL.md``; the first load pins its manifest.

        A skill that its server generates has none: it is loaded as it is, and whoever loads it asks the user first.

        Raises:
            SkillProblem: The skill has changed since it was pinned, or its files are not those of its manifest.
            ServerError: The server did not answer.
        """
        try:
            self.require_unchanged(skill)
            text = await self._read_document(skill)
        except SkillProblem:
            # The list may be out of date. What the server says now is held against the pin all the same.
            was_dynamic = skill.is_dynamic
            skill = await self.get(skill.server, skill.uri)
            self.require_unchanged(skill)
            self.require_consent(skill, is_asked=was_dynamic)
            text = await self._read_document(skill)
        if not skill.is_dynamic:
            self._pins.save(skill, text)
        return skill, text

    def require_consent(self, skill: ServerSkill, *, is_asked: bool) -> None:
        """Raise `SkillProblem` for a skill that its server generates, if the user was not asked, as nobody knew it."""
        if skill.is_dynamic and not is_asked:
            why = "is generated by its server, so that the user is asked first: read it again"
            raise SkillProblem(skill.server, f"the skill {skill.name} {why}")

    def require_unchanged(self, skill: ServerSkill) -> None:
        """Raise `SkillProblem` for a skill that is withheld."""
        if self.is_changed(skill):
            # The server has chosen the path, and the user may paste the command.
            shown = quote(f"{skill.server}/{skill.path}")
            way_out = (
                f"`dial-chat skills show {shown}` shows the change, and `dial-chat skills trust {shown}` accepts it"
            )
            raise SkillProblem(
                skill.server, f"the skill {skill.name} has changed since it was first used, and is withheld: {way_out}"
            )

    async def read_file(self, skill: ServerSkill, name: str) -> bytes:
        """Return a file of a skill, if its bytes fit the manifest; if there is none, as the server has it now.

        Raises:
            SkillProblem: The manifest has no such file, the bytes do not fit it, or they are too many.
            ServerError: The server did not answer.
        """
        # Only ever the server that the skill is of, and its folder: its text cannot make another server read for it.
        if name not in skill.digests and not (skill.is_dynamic and _is_path(name)):
            raise SkillProblem(skill.server, f"the skill {skill.name} has no file {to_one_line(name, 120)}")
        uri = f"{skill.root}{name}"
        result = await ask_server(self._connections, skill.server, lambda client: client.read_resource(uri))
        parts = [part for part in result.contents if part.uri == uri]
        data = _read_bytes(parts[0]) if len(parts) == 1 else None
        if data is None or not (skill.is_dynamic or (compute_digest(data), len(data)) == skill.digests[name]):
            raise SkillProblem(
                skill.server, f"{to_one_line(uri, 120)} is not the file that the server's list describes"
            )
        if len(data) > MAX_BYTES:
            raise SkillProblem(skill.server, f"{to_one_line(uri, 120)} has more than {MAX_BYTES:,} bytes")
        return data

    async def list_folder(self, skill: ServerSkill, path: str) -> tuple[str, ...]:
        """Return the files in a folder of a skill, by its manifest; empty if the manifest has no such folder.

        The folder of a skill without a manifest is as the server lists it now; empty if it lists no such folder.

        If the server lists directories (``resources/directory/read``), the manifest is compared with the folder as the
        server has it now. What only the directory has is never a file of the skill, but a change of it.

        Raises:
            SkillProblem: The folder shows that the skill has changed.
            ServerError: The server did not answer.
        """
        folder = f"{skill.root}{'' if path in ('', '.') else path.rstrip('/') + '/'}"
        uris = sorted(f"{skill.root}{name}" for name in skill.digests)
        inside = tuple(uri for uri in uris if uri.startswith(folder))
        connection = self._connections.get(skill.server)
        if skill.is_dynamic and connection is not None and connection.declares_directories:
            with suppress(ServerError):  # it is a file
                found = await self._read_directory(connection, folder.rstrip("/"))
                return tuple(f"{folder}{name}".removeprefix(skill.root) for name in sorted(filter(_is_path, found)))
        if inside and connection is not None and connection.declares_directories:
            children = {uri.removeprefix(folder).split("/", 1)[0] for uri in inside}
            try:
                has_changed = await self._read_directory(connection, folder.rstrip("/")) != children
            except ServerError as error:
                problem = to_one_line(error.problem, 200)
                connection.add_note(f"the directory {to_one_line(folder[:-1], 120)} cannot be read: {problem}")
                has_changed = False
            if has_changed:
                self.require_unchanged(await self.get(skill.server, skill.uri))
        return tuple(uri.removeprefix(skill.root) for uri in inside)

    async def _read_directory(self, connection: Connection, uri: str) -> set[str]:
        """Return the names of a directory's direct children. Raises `ServerError` if it cannot be read."""

        async def request(client: Client) -> set[str]:
            from dial_client.tools.skills.skill_requests import DirectoryPages

            pages: Any = DirectoryPages(client, uri)
            listed = await read_all_pages(pages, "resources", "uri", connection.add_note)
            return {item.uri.removeprefix(f"{uri}/").rstrip("/") for item in listed.items}

        return await connection.ask(request, LIST_SECONDS)

    async def _read_document(self, skill: ServerSkill) -> str:
        """Return the text of a ``SKILL.md`` whose bytes and front matter are those of the list."""
        size = 0 if skill.is_dynamic else skill.digests[FILE_NAME][1]
        data = await self.read_file(skill, FILE_NAME) if size <= MAX_DOCUMENT else b""
        if max(size, len(data)) > MAX_DOCUMENT:
            raise SkillProblem(skill.server, f"{to_one_line(skill.uri, 120)} has more than {MAX_DOCUMENT:,} bytes")
        try:
            document = parse_skill(data, to_one_line(skill.uri, 120))
        except ConfigError as error:
            raise SkillProblem(skill.server, to_one_line(str(error), 300)) from None
        if not is_same(document.front_matter, dict(skill.front_matter)):
            raise SkillProblem(
                skill.server, f"the front matter of {to_one_line(skill.uri, 120)} is not that of the list"
            )
        return data.decode("utf-8-sig")

    async def review(self, skill: ServerSkill) -> tuple[ServerSkill, str, str]:
        """Return the skill as the server has it now, the text of its ``SKILL.md``, and the change since it was pinned.

        The change is a diff of the text, and of the list of files; it is empty without one.

        Raises:
            ServerError: As `load`, also of a skill that is withheld.
        """
        skill = await self.get(skill.server, skill.uri)
        text, pin = await self._read_document(skill), self._pins.find(skill)
        if not self.is_changed(skill):
            return skill, text, ""
        before = pin.get("text") or "the text that was pinned was too long to be kept"
        changes = compare_definitions(before, text), compare_definitions(pin.get("manifest", ""), skill.manifest)
        return skill, text, "\n".join(filter(None, changes))

    def trust(self, skill: ServerSkill, text: str) -> None:
        """Pin a skill as it was reviewed."""
        self._pins.save(skill, text)


def _is_path(name: str) -> bool:
    """Return True for a path of a file within its folder, of characters that a URI has."""
    is_plain = name.isprintable() and not any(char in name for char in " ?#%:\\")
    return is_plain and all(part not in ("", ".", "..") for part in name.split("/"))


def _read_bytes(part: Any) -> bytes | None:
    """Return the bytes of a resource; None if its base64 is invalid."""
    if (text := getattr(part, "text", None)) is not None:
        return str(text).encode("utf-8", "surrogatepass")
    try:
        return base64.b64decode(part.blob, validate=True)
    except (binascii.Error, ValueError):
        return None
