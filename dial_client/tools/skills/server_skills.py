"""Skills of MCP servers: the extension ``io.modelcontextprotocol/skills`` (SEP-2640), on the side of the host.

A server lists its skills, each with its front matter and a manifest: the SHA-256 and the size of every file. A file is
read when it is needed, not before, and its bytes are used only if they fit the manifest. The manifest is pinned when
the skill is first read: a skill whose manifest has changed since is withheld until the user trusts it again.

The digests come from the server that has the files, so they say nothing about who wrote them: all texts are untrusted.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal
from weakref import WeakKeyDictionary

import anyio
from mcp_types import CacheableResult, PaginatedResult, Request, RequestParams
from pydantic import BaseModel, Field, ValidationError

from dial_client.messages.errors import ConfigError, ServerError
from dial_client.runtime.logs import get_logger
from dial_client.runtime.safe_text import sanitize, to_one_line
from dial_client.servers.connection import Connection
from dial_client.servers.notifications import CACHE_SECONDS, LIST_SECONDS, Listing, read_all_pages
from dial_client.servers.resources import ask_server
from dial_client.servers.server_cache import MAX_TEXT, JsonCache, compare_definitions, compute_identity
from dial_client.settings.config_types import ServerSettings
from dial_client.tools.skills.skill_document import FILE_NAME, MAX_DESCRIPTION, is_name, is_same, parse_skill
from dial_client.tools.skills.skill_folders import MAX_BYTES, MAX_FILES, compute_digest

if TYPE_CHECKING:
    from mcp import Client

log = get_logger(__name__)

# The most skills of one server that are kept.
MAX_SKILLS = 500
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")


class ListedFile(BaseModel):
    """A file in the manifest of a skill."""

    uri: str
    digest: str
    size: int = Field(ge=0)


class ListedSkill(BaseModel):
    """A skill as a server lists it."""

    uri: str
    frontmatter: dict[str, Any]
    resources: Sequence[ListedFile] | Literal["dynamic"]


class SkillsPage(PaginatedResult, CacheableResult):
    """The result of ``skills/list``, whose entries are checked one by one."""

    skills: list[Any]


class FoundSkill(CacheableResult):
    """The result of ``skills/get``."""

    skill: Any


class SkillParams(RequestParams):
    """The parameters of ``skills/list`` and ``skills/get``."""

    uri: str | None = None
    cursor: str | None = None


class SkillRequest(Request[SkillParams, str]):
    """A request about skills."""


@dataclass(frozen=True, slots=True)
class ServerSkill:
    """A skill of a server, with its manifest; none of its files is read yet."""

    server: str
    """The server's name in the configuration: a skill is identified by it and by its URI, never by its name."""
    uri: str
    """The URI of its ``SKILL.md``, unchanged."""
    name: str
    description: str
    front_matter: Mapping[str, Any] = field(repr=False)
    digests: Mapping[str, tuple[str, int]] = field(repr=False)
    """The SHA-256 and the size of each file, by its path in the skill with ``/``."""

    @property
    def root(self) -> str:
        """The URI of the skill's folder, with a slash at its end."""
        return self.uri.removesuffix(FILE_NAME)

    @property
    def path(self) -> str:
        """The path of the skill at its server: ``acme/billing/refunds``."""
        return re.sub(r"^[a-zA-Z][a-zA-Z0-9+.-]*://", "", self.root).strip("/")

    @property
    def allowed_tools(self) -> str:
        """What the skill says of tools, for the user; it allows nothing."""
        return to_one_line(str(self.front_matter.get("allowed-tools") or ""), 400)

    @property
    def manifest(self) -> str:
        """The files with their digests, one a line: what a user's trust is bound to."""
        return "\n".join(f"{name} sha256:{digest}" for name, (digest, _) in sorted(self.digests.items()))


class SkillProblem(ServerError):
    """A skill of a server cannot be used: it is invalid, or its files are not those of its manifest."""


def parse_entry(server: str, value: Any) -> ServerSkill:
    """Read an entry of ``skills/list`` or ``skills/get``.

    Raises:
        SkillProblem: The entry is invalid, exceeds the limits, or has no digests (``"dynamic"``).
    """
    try:
        entry = ListedSkill.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"][:4])
        raise SkillProblem(server, to_one_line(f"an invalid skill: {place}: {first['msg']}", 200)) from None
    shown, name, about = to_one_line(entry.uri, 120), *map(entry.frontmatter.get, ("name", "description"))
    if not is_name(name) or not entry.uri.endswith(f"/{name}/{FILE_NAME}"):
        raise SkillProblem(server, f"the URI {shown} does not end with the skill's name and {FILE_NAME}")
    if not isinstance(about, str) or not about.strip() or len(about) > MAX_DESCRIPTION:
        raise SkillProblem(server, f"{shown} has no description of at most {MAX_DESCRIPTION:,} characters")
    if isinstance(entry.resources, str):
        raise SkillProblem(server, f"{shown} has no digests of its files (dynamic), so that nothing could be pinned")
    digests = _read_manifest(server, entry, entry.resources)
    description = " ".join(sanitize(about).split())
    return ServerSkill(server, entry.uri, str(name), description, entry.frontmatter, digests)


def _read_manifest(server: str, entry: ListedSkill, files: Sequence[ListedFile]) -> dict[str, tuple[str, int]]:
    root, shown = entry.uri.removesuffix(FILE_NAME), to_one_line(entry.uri, 120)
    if len(files) > MAX_FILES or sum(file.size for file in files) > MAX_BYTES:
        raise SkillProblem(server, f"{shown} has more than {MAX_FILES} files or {MAX_BYTES:,} bytes")
    digests: dict[str, tuple[str, int]] = {}
    for file in files:
        name, digest = file.uri.removeprefix(root), _DIGEST.fullmatch(file.digest)
        is_inside = file.uri.startswith(root) and all(part not in ("", ".", "..") for part in name.split("/"))
        if not is_inside or digest is None or name in digests:
            raise SkillProblem(server, f"the manifest of {shown} is invalid at {to_one_line(file.uri, 120)}")
        digests[name] = (digest[1], file.size)
    if FILE_NAME not in digests:
        raise SkillProblem(server, f"the manifest of {shown} lacks its {FILE_NAME}")
    return digests


class SkillPins:
    """The manifests of the skills that were read, or that the user trusts, stored from run to run.

    Args:
        cache: The folder to store them in; None to keep them in memory only.
        connections: The servers by name. A server object in this process is kept in memory only.
    """

    def __init__(self, cache: JsonCache | None, connections: Mapping[str, Connection]) -> None:
        self._cache, self._connections = cache, connections
        # The pins of this run, by server and URI: they hold also if the file cannot be written.
        self._known: dict[tuple[str, str], dict[str, str]] = {}

    def find(self, skill: ServerSkill) -> dict[str, str]:
        """Return the pinned ``manifest`` and ``text`` of a skill; empty if it was never read."""
        key = self._find_key(skill.server)
        stored = self._read(key).get(skill.uri) if key else None
        # The file comes first: another program may have been told that a newer manifest is trusted.
        return stored or self._known.get((skill.server, skill.uri)) or {}

    def is_changed(self, skill: ServerSkill) -> bool:
        """Return True if the skill has another manifest than the pinned one."""
        pin = self.find(skill)
        return bool(pin) and pin.get("manifest") != skill.manifest

    def save(self, skill: ServerSkill, text: str) -> None:
        """Pin the manifest of a skill, with the text of its ``SKILL.md`` to show a later change."""
        pin = {"manifest": skill.manifest, "text": text if len(text) <= MAX_TEXT else ""}
        self._known[skill.server, skill.uri] = pin
        key = self._find_key(skill.server)
        if key and self._cache is not None and self._read(key).get(skill.uri) != pin:
            pins = self._read(key) | {skill.uri: pin}
            # Texts are only for showing a change: without them, the manifests still find every change.
            if not self._cache.write(key, {"skills": pins}):
                self._cache.write(key, {"skills": {uri: {**old, "text": ""} for uri, old in pins.items()}})

    def _read(self, key: str) -> dict[str, dict[str, str]]:
        found = self._cache.read(key).get("skills") if self._cache is not None else None
        return {uri: pin for uri, pin in found.items() if isinstance(pin, dict)} if isinstance(found, dict) else {}

    def _find_key(self, server: str) -> str:
        """Return the name of the server's file; empty for a server object in this process."""
        connection = self._connections.get(server)
        settings = connection.settings if connection is not None else None
        if not isinstance(settings, ServerSettings):
            return ""
        return hashlib.sha256(f"skills of {compute_identity(settings)}".encode()).hexdigest()[:32]


class ServerSkills:
    """The skills of all servers: lists, files that fit their manifests, and changes since they were pinned.

    Args:
        connections: The servers by name.
        pins: The manifests that are pinned.
    """

    def __init__(self, connections: Mapping[str, Connection], pins: SkillPins) -> None:
        self._connections, self._pins = connections, pins
        # The lists by connection, not by name: another server may get the same name. Each with the time until which it
        # is valid, and the revision of the server's resources.
        self._lists: WeakKeyDictionary[Connection, tuple[tuple[ServerSkill, ...], float, int]] = WeakKeyDictionary()

    def find(self) -> tuple[ServerSkill, ...]:
        """Return the skills that were listed last, those of servers that are gone left out."""
        return tuple(skill for server in self._connections.values() for skill in self._lists.get(server, ((),))[0])

    async def refresh(self, seconds: float) -> None:
        """Read the lists that may have changed, of servers that declare skills; a slow server is left out."""

        async def read(connection: Connection) -> None:
            try:
                await self._read_list(connection)
            except ServerError as error:
                connection.add_note(f"its skills cannot be listed: {to_one_line(error.problem, 200)}")

        with anyio.move_on_after(seconds):
            async with anyio.create_task_group() as group:
                for connection in tuple(self._connections.values()):
                    if connection.has_skills and not self._is_fresh(connection):
                        group.start_soon(read, connection)

    def _is_fresh(self, connection: Connection) -> bool:
        _, until, revision = self._lists.get(connection, ((), -1.0, -1))
        return revision == connection.notifications.revisions[Listing.RESOURCES] and anyio.current_time() < until

    async def _read_list(self, connection: Connection) -> None:
        revision = connection.notifications.revisions[Listing.RESOURCES]

        async def request(client: Client) -> tuple[tuple[ServerSkill, ...], float]:
            listed = await read_all_pages(_Pages(client, connection), "skills", "uri", connection.add_note)  # type: ignore[arg-type]
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

        async def request(client: Client) -> Any:
            params = SkillParams(uri=uri)
            return await client.session.send_request(SkillRequest(method="skills/get", params=params), FoundSkill)

        skill = parse_entry(server, (await ask_server(self._connections, server, request)).skill)
        if skill.uri != uri:
            raise SkillProblem(server, f"it returned another skill than {to_one_line(uri, 120)}")
        skills, until, revision = self._lists.get(connection, ((), -1.0, -1))
        self._lists[connection] = (*(known for known in skills if known.uri != uri), skill), until, revision
        return skill

    def is_changed(self, skill: ServerSkill) -> bool:
        """Return True if the skill is withheld, because it has changed since it was pinned."""
        return self._pins.is_changed(skill)

    async def load(self, skill: ServerSkill) -> tuple[ServerSkill, str]:
        """Return the skill as it is now, and the text of its ``SKILL.md``; the first load pins its manifest.

        Raises:
            SkillProblem: The skill has changed since it was pinned, or its files are not those of its manifest.
            ServerError: The server did not answer.
        """
        try:
            self._require_same(skill)
            text = await self._read_document(skill)
        except SkillProblem:
            # The list may be out of date. What the server says now is held against the pin all the same.
            skill = await self.get(skill.server, skill.uri)
            self._require_same(skill)
            text = await self._read_document(skill)
        self._pins.save(skill, text)
        return skill, text

    def _require_same(self, skill: ServerSkill) -> None:
        if self.is_changed(skill):
            shown = f"{skill.server}/{skill.path}"
            way_out = (
                f"`dial-chat skills show {shown}` shows the change, and `dial-chat skills trust {shown}` accepts it"
            )
            raise SkillProblem(
                skill.server, f"the skill {skill.name} has changed since it was first used, and is withheld: {way_out}"
            )

    async def read_file(self, skill: ServerSkill, name: str) -> bytes:
        """Return a file of a skill, if its bytes fit the manifest.

        Raises:
            SkillProblem: The manifest has no such file, or the bytes do not fit it.
            ServerError: The server did not answer.
        """
        if name not in skill.digests:
            raise SkillProblem(skill.server, f"the skill {skill.name} has no file {to_one_line(name, 120)}")
        # Only ever the server that the skill is of: its text cannot make another server read for it.
        uri, (digest, size) = f"{skill.root}{name}", skill.digests[name]
        result = await ask_server(self._connections, skill.server, lambda client: client.read_resource(uri))
        parts = [part for part in result.contents if part.uri == uri]
        data = _read_bytes(parts[0]) if len(parts) == 1 else None
        if data is None or len(data) != size or compute_digest(data) != digest:
            raise SkillProblem(
                skill.server, f"{to_one_line(uri, 120)} is not the file that the server's list describes"
            )
        return data

    async def _read_document(self, skill: ServerSkill) -> str:
        """Return the text of a ``SKILL.md`` whose bytes and front matter are those of the list."""
        data = await self.read_file(skill, FILE_NAME)
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


class _Pages:
    """The lists of a server's skills, in the form of the SDK's lists."""

    def __init__(self, client: Client, connection: Connection) -> None:
        self._client, self._connection = client, connection

    async def list_skills(self, cursor: str | None) -> Any:
        request = SkillRequest(method="skills/list", params=SkillParams(cursor=cursor))
        page = await self._client.session.send_request(request, SkillsPage)
        skills = []
        for value in page.skills:
            try:
                skills.append(parse_entry(self._connection.name, value))
            except SkillProblem as problem:
                self._connection.add_note(f"a skill is left out: {problem.problem}")
        return page.model_copy(update={"skills": skills})


def _read_bytes(part: Any) -> bytes | None:
    """Return the bytes of a resource; None if its base64 is invalid."""
    if (text := getattr(part, "text", None)) is not None:
        return str(text).encode("utf-8", "surrogatepass")
    try:
        return base64.b64decode(part.blob, validate=True)
    except (binascii.Error, ValueError):
        return None
