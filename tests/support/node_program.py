"""Programs that Node runs, with modules of the page."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.program import LONG

_NODE = shutil.which("node")
_PAGE = Path(__file__).parents[2] / "dial_client" / "serve" / "page"

needs_node = pytest.mark.skipif(_NODE is None, reason="Node is not installed: it runs the page's modules")


def import_from(file: str, names: str) -> str:
    """Return the line that imports names from a module of the page."""
    return f"import {{ {names} }} from {json.dumps((_PAGE / file).as_uri())};\n"


def run_node(program: str, given: Any = None, *, folder: Path | None = None) -> Any:
    """Return the JSON that a program prints; the JSON of `given` is its standard input.

    The packages that the program imports are those of `folder`.
    """
    assert _NODE is not None
    ended = subprocess.run(
        [_NODE, "--input-type=module", "-e", program],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        timeout=LONG,
        check=False,
        encoding="utf-8",
        cwd=folder,
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)
