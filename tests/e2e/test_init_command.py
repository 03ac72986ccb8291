"""The command `init` as a newcomer runs it: in a folder without configuration."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.support.program import dial_chat


def test_a_first_configuration_is_written_trusted_and_works(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    written = dial_chat(tmp_path, "init")
    assert written.returncode == 0, written.stderr
    assert 'Try: dial-chat "What time is it in Tokyo?"' in written.stdout
    used = dial_chat(tmp_path, "call", "get_current_time", '{"timezone": "Asia/Tokyo"}')
    assert used.returncode == 0 and '"timezone": "Asia/Tokyo"' in used.stdout, used.stderr
    again = dial_chat(tmp_path, "init")
    assert again.returncode == 2 and "there is a configuration already" in again.stderr
