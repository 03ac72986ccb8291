"""``dial-chat models`` lists what runs on this machine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from dial_client.local.inventory import LocalModel, local_models, memory_bytes
from dial_client.local.weights import QWEN


def test_what_was_fetched_is_listed_with_what_could_be(tmp_path: Path) -> None:
    file = tmp_path / "hf" / "bartowski--Qwen_Qwen3-4B-GGUF" / "Qwen3-4B-Q4_K_M.gguf"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"GGUF")
    found = {model.name: model for model in local_models(tmp_path)}
    assert not found["local"].installed
    fetched = found["local:hf:bartowski/Qwen_Qwen3-4B-GGUF/Qwen3-4B-Q4_K_M.gguf"]
    assert (fetched.installed, fetched.size) == (True, 4)
    assert "local:hf:bartowski/Qwen_Qwen3-4B-GGUF" not in found, "it is there already"
    assert any(not model.installed and model.name.startswith("local:hf:") for model in found.values())


def test_our_own_model_is_installed_once_its_file_is_there(tmp_path: Path) -> None:
    (tmp_path / QWEN.file).write_bytes(b"GGUF")
    assert local_models(tmp_path)[0].installed


def test_a_model_fits_if_other_programs_are_left_room() -> None:
    four_billion = LocalModel("local:hf:x/y", 2_500_000_000, installed=False)
    assert four_billion.fits(8_000_000_000)
    assert not four_billion.fits(4_000_000_000)


def test_this_machine_says_how_much_memory_it_has() -> None:
    memory = memory_bytes()
    assert memory is not None
    assert memory > 100_000_000


def test_the_command_prints_a_line_for_each_model_or_json() -> None:
    command = [sys.executable, "-m", "dial_client", "models"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.splitlines()
    assert lines[0].startswith("local ")
    assert "0.5 GB" in lines[0]
    said = json.loads(subprocess.run([*command, "--json"], capture_output=True, check=True, timeout=60).stdout)
    assert said["models"][0]["name"] == "local"
    assert set(said["models"][0]) == {"name", "size", "installed", "about", "fits"}
