"""An MCP server that has skills (SEP-2640), as an object, or over stdio: ``python skills.py FOLDER [GENERATED …]``.

The skills are the folders in FOLDER with a ``SKILL.md``, as they are at each request. GENERATED are the names of those
that the server says to generate.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import yaml
from mcp import MCPError
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    ReadResourceRequestParams,
    ReadResourceResult,
    RequestParams,
    TextContent,
    TextResourceContents,
    Tool,
)

EXTENSION = "io.modelcontextprotocol/skills"
FOLDER = "inode/directory"
FRESH = {"ttlMs": 0, "cacheScope": "private"}


class SkillParams(RequestParams):
    """The parameters of the requests about skills."""

    uri: str | None = None
    cursor: str | None = None


class SkillServer:
    """The skills of a folder; tests may change the folder, and what is said of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.reads: list[str] = []
        """The URIs that were read."""
        self.unlisted: set[str] = set()
        """Names of skills that the list leaves out."""
        self.changes: dict[str, dict[str, Any]] = {}
        """By name: members of the entry that replace those of the skill."""
        self.served: dict[str, str] = {}
        """By URI: texts that are returned in place of the file."""
        self.has_directories = False
        """Whether the server lists its directories, and says so."""
        self.directories: list[str] = []
        """The URIs of the directories that were read."""

    def describe(self, name: str) -> dict[str, Any]:
        """Return the entry of a skill."""
        root = self.folder / name
        files = [path for path in sorted(root.rglob("*")) if path.is_file()]
        front_matter = yaml.safe_load((root / "SKILL.md").read_text().split("---\n")[1])
        resources = [
            {
                "uri": f"skill://{path.relative_to(self.folder).as_posix()}",
                "digest": f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}",
                "size": path.stat().st_size,
            }
            for path in files
        ]
        entry = {"uri": f"skill://{name}/SKILL.md", "frontmatter": front_matter, "resources": resources}
        return entry | self.changes.get(name, {})

    def list_names(self) -> list[str]:
        """Return the paths of all skills."""
        found = sorted(self.folder.rglob("SKILL.md"))
        return [path.parent.relative_to(self.folder).as_posix() for path in found]

    def build(self, instructions: str | None = None) -> Server[Any]:
        """Return the server."""

        async def list_skills(context: Any, params: SkillParams) -> Any:
            names = [name for name in self.list_names() if name not in self.unlisted]
            place = int(params.cursor or 0)
            page = {"skills": [self.describe(name) for name in names[place : place + 2]], **FRESH}
            return page | ({"nextCursor": str(place + 2)} if place + 2 < len(names) else {})

        async def get_skill(context: Any, params: SkillParams) -> Any:
            name = str(params.uri).removeprefix("skill://").removesuffix("/SKILL.md")
            if name not in self.list_names():
                raise MCPError(INVALID_PARAMS, f"there is no skill {params.uri}")
            return {"skill": self.describe(name), **FRESH}

        async def read(context: Any, params: ReadResourceRequestParams) -> ReadResourceResult:
            self.reads.append(params.uri)
            text = self.served.get(params.uri)
            if text is None:
                text = (self.folder / params.uri.removeprefix("skill://")).read_bytes().decode()
            return ReadResourceResult(contents=[TextResourceContents(uri=params.uri, text=text)])

        async def read_directory(context: Any, params: SkillParams) -> Any:
            """Return one direct child per page."""
            self.directories.append(str(params.uri))
            folder = self.folder / str(params.uri).removeprefix("skill://")
            if not folder.is_dir():
                raise MCPError(INVALID_PARAMS, f"{params.uri} is not a directory resource")
            place, children = int(params.cursor or 0), sorted(folder.iterdir())
            listed = [
                {
                    "uri": f"{params.uri}/{path.name}",
                    "name": path.name,
                    **({"mimeType": FOLDER} if path.is_dir() else {}),
                }
                for path in children[place : place + 1]
            ]
            return {"resources": listed} | ({"nextCursor": str(place + 1)} if place + 1 < len(children) else {})

        async def list_tools(context: Any, params: Any) -> ListToolsResult:
            return ListToolsResult(tools=[Tool(name="send", input_schema={"type": "object"})])

        async def call(context: Any, params: CallToolRequestParams) -> CallToolResult:
            return CallToolResult(content=[TextContent(text="sent")])

        server: Server[Any] = Server(
            "skills", instructions=instructions, on_read_resource=read, on_list_tools=list_tools, on_call_tool=call
        )
        server.extensions[EXTENSION] = {"directoryRead": True} if self.has_directories else {}
        server.add_request_handler("skills/list", SkillParams, list_skills)
        server.add_request_handler("skills/get", SkillParams, get_skill)
        server.add_request_handler("resources/directory/read", SkillParams, read_directory)
        return server


def write_skill(folder: Path, name: str, body: str = "Do it.", description: str = "Does it.", **files: str) -> Path:
    """Write a skill with further files, whose names have a dot in place of ``__``; return its folder."""
    root = folder / name
    root.mkdir(parents=True, exist_ok=True)
    head = f"---\nname: {root.name}\ndescription: {description}\n---\n"
    (root / "SKILL.md").write_text(f"{head}{body}\n", encoding="utf-8", newline="\n")
    for file, text in files.items():
        (root / file.replace("__", ".")).write_text(text, encoding="utf-8", newline="\n")
    return root


async def serve(folder: Path, generated: Sequence[str]) -> None:
    """Serve on standard input and output."""
    skills = SkillServer(folder)
    skills.changes = {name: {"resources": "dynamic"} for name in generated}
    server = skills.build()
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


if __name__ == "__main__":
    anyio.run(serve, Path(sys.argv[1]), sys.argv[2:])
