"""Twelve published servers from PyPI and npm, and what they are asked for when two ways to them are compared."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PACKAGES = Path(__file__).parents[2] / "build" / "npm" / "node_modules" / "@modelcontextprotocol"
NODE = shutil.which("node")
APPS = ("basic-vanillajs", "budget-allocator", "customer-segmentation", "debug", "system-monitor", "video-resource")
"""Servers of MCP Apps."""
PLAIN = ("everything", "filesystem", "memory", "sequential-thinking")
MISSING = NODE is None or not all((PACKAGES / f"server-{name}").is_dir() for name in (*APPS, *PLAIN))
GIT = shutil.which("git")
MEMORY_FILE = "memory.jsonl"

Call = tuple[str, dict[str, Any]]


@dataclass(frozen=True)
class Requests:
    """What a server is asked for, apart from the lists of what it has. Its answers are the same at each time."""

    calls: list[Call] = field(default_factory=list)
    """Calls of tools, in their order."""
    misfits: list[Call] = field(default_factory=list)
    """Calls whose arguments do not fit the tool's schema: the gateway refuses them in words of its own."""
    resources: list[str] = field(default_factory=list)
    """URIs to read, beside those that are listed."""
    unread: str = "nothing"
    """How the URIs of listed resources begin that are not read: what they return comes from the network."""
    prompts: list[Call] = field(default_factory=list)
    """Prompts with their arguments."""
    completions: list[tuple[str, str, str]] = field(default_factory=list)
    """A prompt or a URI template, the name of an argument, and the beginning of its value."""


def write_repository(folder: Path) -> Path:
    """Write a git repository with one commit, and return its folder."""
    repository = folder / "repository"
    repository.mkdir(parents=True)
    (repository / "hello.txt").write_text("Hello.\n")
    identity = ["-c", "user.email=me@example.com", "-c", "user.name=Me"]
    for words in (["init", "-q"], ["add", "."], [*identity, "commit", "-q", "-m", "First"]):
        subprocess.run(["git", *words], cwd=repository, check=True)
    return repository


def list_entries(folder: Path, repository: Path) -> dict[str, dict[str, Any]]:
    """Return the entries of the servers, which keep what they store in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    python = ["-W", "ignore", "-m"]
    entries: dict[str, dict[str, Any]] = {
        "time": {"command": sys.executable, "args": [*python, "mcp_server_time", "--local-timezone", "UTC"]},
        "git": {"command": sys.executable, "args": [*python, "mcp_server_git", "--repository", str(repository)]},
    }
    for name in (*PLAIN, *APPS):
        options = ["--stdio"] if name in APPS else [str(repository)] if name == "filesystem" else []
        entries[name] = {"command": NODE, "args": [str(PACKAGES / f"server-{name}" / "dist" / "index.js"), *options]}
    entries["memory"]["env"] = {"MEMORY_FILE_PATH": str(folder / MEMORY_FILE)}
    return entries


def build_requests(repository: Path) -> dict[str, Requests]:
    """Return what each server is asked for."""
    at = {"repo_path": str(repository)}
    file = str(repository / "hello.txt")
    ada = {"name": "Ada", "entityType": "person", "observations": ["likes looms"]}
    document = "demo://resource/dynamic/text/{resourceId}"
    return {
        "time": Requests(
            calls=[("get_current_time", {"timezone": "Nowhere/At all"})], misfits=[("get_current_time", {})]
        ),
        "git": Requests(
            calls=[
                ("git_status", at),
                ("git_log", {**at, "max_count": 1}),
                ("git_show", {**at, "revision": "HEAD"}),
                ("git_branch", {**at, "branch_type": "local"}),
                ("git_show", {**at, "revision": "no-such-revision"}),
            ]
        ),
        "everything": Requests(
            calls=[
                ("echo", {"message": "héllo \u2028 𝄞"}),
                ("get-annotated-message", {"messageType": "error", "includeImage": True}),
                ("get-resource-links", {"count": 3}),
                ("get-resource-reference", {"resourceType": "Text", "resourceId": 2}),
                ("get-structured-content", {"location": "Chicago"}),
                ("get-sum", {"a": 1, "b": 2.5}),
                ("get-tiny-image", {}),
                ("trigger-long-running-operation", {"duration": 0.1, "steps": 2}),
            ],
            misfits=[("get-sum", {"a": "one"})],
            resources=["demo://resource/dynamic/text/1", "demo://resource/dynamic/blob/1", "demo://no/such"],
            prompts=[
                ("simple-prompt", {}),
                ("args-prompt", {"city": "Paris", "state": "Texas"}),
                ("completable-prompt", {"department": "Engineering", "name": "Alice"}),
                ("resource-prompt", {"resourceType": "Text", "resourceId": "1"}),
                ("args-prompt", {}),
            ],
            completions=[("completable-prompt", "department", ""), (document, "resourceId", "1")],
        ),
        "filesystem": Requests(
            calls=[
                ("list_allowed_directories", {}),
                ("read_text_file", {"path": file}),
                ("read_multiple_files", {"paths": [file, file]}),
                ("list_directory", {"path": str(repository)}),
                ("search_files", {"path": str(repository), "pattern": "*.txt"}),
                ("edit_file", {"path": file, "edits": [{"oldText": "Hello", "newText": "Bye"}], "dryRun": True}),
                ("read_text_file", {"path": "/etc/passwd"}),
            ]
        ),
        "memory": Requests(
            calls=[
                ("create_entities", {"entities": [ada]}),
                ("add_observations", {"observations": [{"entityName": "Ada", "contents": ["writes notes"]}]}),
                ("search_nodes", {"query": "looms"}),
                ("read_graph", {}),
                ("add_observations", {"observations": [{"entityName": "Nobody", "contents": ["x"]}]}),
            ]
        ),
        "sequential-thinking": Requests(
            calls=[
                (
                    "sequentialthinking",
                    {"thought": "So.", "nextThoughtNeeded": False, "thoughtNumber": 1, "totalThoughts": 1},
                )
            ]
        ),
        "basic-vanillajs": Requests(),
        "budget-allocator": Requests(calls=[("get-budget-data", {})]),
        "customer-segmentation": Requests(),
        "debug": Requests(
            calls=[
                ("debug-tool", {"contentType": "mixed", "includeStructuredContent": True, "includeMeta": True}),
                ("debug-tool", {"contentType": "resourceLink"}),
                ("debug-tool", {"contentType": "audio", "multipleBlocks": True}),
                ("debug-tool", {"simulateError": True}),
            ]
        ),
        "system-monitor": Requests(),
        "video-resource": Requests(calls=[("play_video", {"videoId": "bunny-1mb"})], unread="videos:"),
    }
