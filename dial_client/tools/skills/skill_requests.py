"""The requests of SEP-2640, and the checks of what a server answers.

They are ``skills/list``, ``skills/get``, and ``resources/directory/read``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Literal

from mcp import Client
from mcp_types import CacheableResult, ListResourcesResult, PaginatedResult, Request, RequestParams
from pydantic import BaseModel, Field, ValidationError

from dial_client.runtime.safe_text import sanitize, to_one_line
from dial_client.settings.front_matter import MAX_DESCRIPTION, is_name
from dial_client.tools.skills.skill_document import FILE_NAME
from dial_client.tools.skills.skill_folders import MAX_BYTES, MAX_FILES
from dial_client.tools.skills.skill_manifest import ServerSkill, SkillProblem

# Maximum characters of a URI.
MAX_URI = 2_000
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


class GetSkillResult(CacheableResult):
    """The result of ``skills/get``."""

    skill: Any


class SkillParams(RequestParams):
    """The parameters of all of these requests."""

    uri: str | None = None
    cursor: str | None = None


class SkillRequest(Request[SkillParams, str]):
    """A request about skills, or for the direct children of a directory."""


class DirectoryPages:
    """The direct children of a directory, in the form of the SDK's lists, as `SkillPages`.

    Args:
        client: The SDK's client.
        uri: The URI of the directory, without a slash at its end.
    """

    def __init__(self, client: Client, uri: str) -> None:
        self._client, self._uri = client, uri

    async def list_resources(self, cursor: str | None) -> ListResourcesResult:
        """Return a page of the direct children."""
        request = SkillRequest(method="resources/directory/read", params=SkillParams(uri=self._uri, cursor=cursor))
        return await self._client.session.send_request(request, ListResourcesResult)


class SkillPages:
    """The lists of a server's skills, in the form of the SDK's lists: ``read_all_pages(SkillPages(…), "skills", …)``.

    Args:
        client: The SDK's client.
        server: The server's name in the configuration.
        note: Is called with a note about each skill that is left out.
    """

    def __init__(self, client: Client, server: str, note: Callable[[str], None]) -> None:
        self._client, self._server, self._note = client, server, note

    async def list_skills(self, cursor: str | None) -> Any:
        """Return a page whose skills are `ServerSkill`."""
        request = SkillRequest(method="skills/list", params=SkillParams(cursor=cursor))
        page = await self._client.session.send_request(request, SkillsPage)
        skills = []
        for value in page.skills:
            try:
                skills.append(parse_entry(self._server, value))
            except SkillProblem as problem:
                self._note(f"a skill is left out: {problem.problem}")
        return page.model_copy(update={"skills": skills})


async def request_skill(client: Client, server: str, uri: str) -> ServerSkill:
    """Return a skill by its URI, whether or not the server lists it.

    Raises:
        SkillProblem: The answer is invalid, or is about another skill.
        mcp.MCPError: The server has no such skill.
    """
    request = SkillRequest(method="skills/get", params=SkillParams(uri=uri))
    skill = parse_entry(server, (await client.session.send_request(request, GetSkillResult)).skill)
    if skill.uri != uri:
        raise SkillProblem(server, f"it returned another skill than {to_one_line(uri, 120)}")
    return skill


def parse_entry(server: str, value: Any) -> ServerSkill:
    """Read an entry of ``skills/list`` or ``skills/get``.

    Raises:
        SkillProblem: The entry is invalid, or exceeds the limits.
    """
    try:
        entry = ListedSkill.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"][:4])
        raise SkillProblem(server, to_one_line(f"an invalid skill: {place}: {first['msg']}", 200)) from None
    if not all(map(_is_line, (entry.uri, *(file.uri for file in entry.resources if not isinstance(file, str))))):
        raise SkillProblem(server, f"a skill with an invalid URI: {to_one_line(entry.uri, 120)}")
    shown, name, about = to_one_line(entry.uri, 120), *map(entry.frontmatter.get, ("name", "description"))
    if not is_name(name) or not entry.uri.endswith(f"/{name}/{FILE_NAME}"):
        raise SkillProblem(server, f"the URI {shown} does not end with the skill's name and {FILE_NAME}")
    if not isinstance(about, str) or not about.strip() or len(about) > MAX_DESCRIPTION:
        raise SkillProblem(server, f"{shown} has no description of at most {MAX_DESCRIPTION:,} characters")
    digests = {} if isinstance(entry.resources, str) else _read_manifest(server, entry, entry.resources)
    description = " ".join(sanitize(about).split())
    return ServerSkill(server, entry.uri, str(name), description, entry.frontmatter, digests)


def _is_line(uri: str) -> bool:
    """Return True for a URI of printable characters without spaces, which cannot end the line that names it."""
    return uri.isprintable() and " " not in uri and len(uri) <= MAX_URI


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
