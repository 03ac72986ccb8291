"""``.mcpb`` bundles: unpacking, the target folder, and the entry of the server."""

from __future__ import annotations

import json
import os
import stat
import sys
import zipfile
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from tests.inner import ConfigError, bundles

MANIFEST: dict[str, Any] = {
    "manifest_version": "0.3",
    "name": "notes",
    "version": "1.2.0",
    "description": "Notes.",
    "server": {
        "type": "python",
        "entry_point": "server/main.py",
        "mcp_config": {
            "command": "python",
            "args": ["${__dirname}/server/main.py", "${user_config.folders}", "--limit", "${user_config.limit}"],
            "env": {"API_KEY": "${user_config.api_key}", "EMPTY": "${user_config.extra}"},
        },
    },
    "user_config": {
        "folders": {"type": "directory", "title": "Folders", "multiple": True, "required": True},
        "limit": {"type": "number", "default": 30},
        "api_key": {"type": "string", "sensitive": True, "required": True},
        "extra": {"type": "string"},
    },
}


def bundle_file(path: Path, manifest: dict[str, Any] | None = None, **members: Any) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        if manifest is not None:
            archive.writestr("manifest.json", json.dumps(manifest))
        for name, content in members.items():
            archive.writestr(
                name if isinstance(content, str) else content, content if isinstance(content, str) else "x"
            )
    return path


def test_a_bundle_is_unpacked_and_started_from_its_folder(tmp_path: Path) -> None:
    run = zipfile.ZipInfo("server/run")
    run.external_attr = (stat.S_IFREG | 0o755) << 16
    path = bundle_file(tmp_path / "notes.mcpb", MANIFEST, **{"server/main.py": "pass", "run": run})
    bundle = bundles.read_bundle(path)
    assert [option.key for option in bundles.find_missing_options(bundle, {})] == ["folders"]
    folder = bundles.choose_bundle_folder(bundle, tmp_path / "bundles")
    assert folder.name == f"notes-1.2.0-{bundle.digest[:8]}"
    with pytest.raises(ConfigError, match="--set folders=VALUE"):
        bundles.build_bundle_entry(bundle, folder, {})
    for _ in range(2):  # the second run replaces the folder
        bundles.unpack_bundle(bundle, folder)
    assert bundles.build_bundle_entry(bundle, folder, {"folders": ["/a", "/b"]}) == {
        "command": "python",
        "cwd": str(folder),
        "args": [f"{folder}/server/main.py", "/a", "/b", "--limit", "30"],
        "env": {"API_KEY": "${NOTES_API_KEY}"},
    }
    assert (folder / "server" / "main.py").read_text() == "pass"
    assert [file.name for file in (tmp_path / "bundles").iterdir()] == [f"notes-1.2.0-{bundle.digest[:8]}"]
    if sys.platform != "win32":
        assert os.access(folder / "server" / "run", os.X_OK)


def test_platform_overrides_and_folder_variables_are_applied(tmp_path: Path) -> None:
    config = {
        "command": "server/tool",
        "args": ["${user_config.place}", "${DOWNLOADS}${/}x"],
        "platform_overrides": {sys.platform: {"env": {"A": "b"}}},
    }
    manifest = {**MANIFEST, "server": {"mcp_config": config}, "user_config": {"place": {"default": "${HOME}/x"}}}
    bundle = bundles.read_bundle(bundle_file(tmp_path / "a.mcpb", manifest, **{"server/tool": "x"}))
    folder = tmp_path / "a"
    bundles.unpack_bundle(bundle, folder)
    entry = bundles.build_bundle_entry(bundle, folder, {})
    assert Path(entry["command"]) == folder / "server" / "tool"
    assert entry["args"] == ["${userHome}/x", f"${{userHome}}{os.sep}Downloads{os.sep}x"]
    assert entry["env"] == {"A": "b"}


def test_a_bundle_for_another_platform_is_an_error(tmp_path: Path) -> None:
    manifest = {**MANIFEST, "compatibility": {"platforms": ["plan9"]}}
    with pytest.raises(ConfigError, match="the bundle runs on plan9"):
        bundles.read_bundle(bundle_file(tmp_path / "a.mcpb", manifest))


@pytest.mark.parametrize("name", ["../evil", "/evil", "a/../../evil", "C:/evil", "..\\evil", "a:stream"])
def test_no_member_of_a_bundle_is_written_outside_of_its_folder(tmp_path: Path, name: str) -> None:
    bundle = bundles.read_bundle(bundle_file(tmp_path / "a.mcpb", MANIFEST, **{name: "evil"}))
    with pytest.raises(ConfigError, match="leads out of the bundle"):
        bundles.unpack_bundle(bundle, tmp_path / "bundles" / "a")
    assert list((tmp_path / "bundles").iterdir()) == []
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize("name", ["a:b/c", "a./b", "a/b ", "a/b."])
def test_a_member_whose_name_windows_would_change_is_refused(tmp_path: Path, name: str) -> None:
    bundle = bundles.read_bundle(bundle_file(tmp_path / "b.mcpb", MANIFEST, **{name: "x"}))
    with pytest.raises(ConfigError, match="leads out of the bundle"):
        bundles.unpack_bundle(bundle, tmp_path / "x")
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(("platform", "is_refused"), [("win32", True), ("linux", False)])
def test_a_member_named_like_a_device_is_refused_only_on_windows(
    tmp_path: Path, platform: str, is_refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = bundles.read_bundle(bundle_file(tmp_path / "b.mcpb", MANIFEST, **{"lib/aux.js": "x"}))
    monkeypatch.setattr(sys, "platform", platform)
    with pytest.raises(ConfigError) if is_refused else nullcontext():
        bundles.unpack_bundle(bundle, tmp_path / "x")
    assert (tmp_path / "x" / "lib" / "aux.js").exists() is not is_refused


def test_a_bundle_that_changes_after_it_was_shown_is_not_unpacked(tmp_path: Path) -> None:
    bundle = bundles.read_bundle(bundle_file(tmp_path / "b.mcpb", MANIFEST, **{"main.js": "shown"}))
    bundle_file(tmp_path / "b.mcpb", MANIFEST, **{"main.js": "changed"})
    with pytest.raises(ConfigError, match="has changed since it was shown"):
        bundles.unpack_bundle(bundle, tmp_path / "bundles" / "x")
    assert list((tmp_path / "bundles").iterdir()) == []


def test_a_link_in_a_bundle_and_a_bundle_that_is_too_large_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = zipfile.ZipInfo("link")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    bundle = bundles.read_bundle(bundle_file(tmp_path / "a.mcpb", MANIFEST, link=link))
    with pytest.raises(ConfigError, match="leads out of the bundle"):
        bundles.unpack_bundle(bundle, tmp_path / "x")
    with zipfile.ZipFile(tmp_path / "b.mcpb", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("manifest.json", json.dumps(MANIFEST))
        archive.writestr("bomb", b"\0" * 4_000_000)
    monkeypatch.setattr(bundles, "MAX_BYTES", 1_000_000)
    with pytest.raises(ConfigError, match="at most 1,000,000 bytes"):
        bundles.unpack_bundle(bundles.read_bundle(tmp_path / "b.mcpb"), tmp_path / "y")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.mcpb", "b.mcpb"]


def test_an_invalid_bundle_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.mcpb").write_text("no archive")
    with pytest.raises(ConfigError, match="not a bundle"):
        bundles.read_bundle(tmp_path / "a.mcpb")
    with pytest.raises(ConfigError, match="not a bundle"):
        bundles.read_bundle(bundle_file(tmp_path / "b.mcpb", None, a="x"))
    with pytest.raises(ConfigError, match="names no server"):
        bundles.read_bundle(bundle_file(tmp_path / "c.mcpb", {"name": "x"}))


def test_bundles_of_the_same_name_with_different_content_have_different_folders(tmp_path: Path) -> None:
    first = bundles.read_bundle(bundle_file(tmp_path / "a.mcpb", MANIFEST, **{"server/main.py": "1"}))
    second = bundles.read_bundle(bundle_file(tmp_path / "b.mcpb", MANIFEST, **{"server/main.py": "2"}))
    assert bundles.choose_bundle_folder(first, tmp_path) != bundles.choose_bundle_folder(second, tmp_path)


def test_a_command_in_a_bundle_is_found_before_it_is_unpacked(tmp_path: Path) -> None:
    manifest = MANIFEST | {"server": {"type": "binary", "mcp_config": {"command": "./server/tool"}}, "user_config": {}}
    bundle = bundles.read_bundle(bundle_file(tmp_path / "a.mcpb", manifest, **{"server/tool": "x"}))
    entry = bundles.build_bundle_entry(bundle, tmp_path / "x", {})
    assert entry["command"] == str(tmp_path / "x" / "server" / "tool")


@pytest.mark.parametrize(
    "manifest",
    [
        {"env": {"KEY": "${ANTHROPIC_API_KEY}"}},
        {"args": ["--key", "${ANTHROPIC_API_KEY}"]},
        {"args": ["${user_config.key}"], "default": "${ANTHROPIC_API_KEY}"},
    ],
)
def test_a_bundle_cannot_read_a_variable_of_this_machine(manifest: dict[str, Any], tmp_path: Path) -> None:
    options = {"key": {"type": "string", "title": "Key", "default": manifest.pop("default", "x")}}
    server = {"type": "binary", "mcp_config": {"command": "srv", **manifest}}
    path = bundle_file(tmp_path / "x.mcpb", {"name": "x", "server": server, "user_config": options})
    with pytest.raises(ConfigError, match="variable"):
        bundles.build_bundle_entry(bundles.read_bundle(path), tmp_path / "x", {})
