"""What is loaded when the package is imported, and what is not until it is used."""

from __future__ import annotations

import subprocess
import sys

from tests.unit.test_layers import HEAVY


def test_importing_the_package_loads_no_sdk() -> None:
    program = f"import sys, dial_client; print([m for m in sys.modules if m.split('.')[0] in {HEAVY}])"
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "[]"


def test_using_the_client_class_loads_no_sdk_and_no_server() -> None:
    program = (
        "import sys; from dial_client import DialClient; "
        "print([m for m in sys.modules if m in ('openai', 'anthropic', 'mcp', 'mcp.server', 'sqlalchemy')])"
    )
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "[]"


def test_help_loads_neither_sdk_nor_client() -> None:
    program = (
        "import sys; from dial_client.cli.commands import run; code = run(['--help']); "
        "heavy = ('openai', 'anthropic', 'mcp', 'anyio', 'pydantic', 'asyncio', 'starlette', 'uvicorn'); "
        "print([m for m in sys.modules if m in heavy], code)"
    )
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert printed.splitlines()[-1] == "[] 0"
