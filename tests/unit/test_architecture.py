"""The files that docs/architecture.md and CONTRIBUTING.md name exist, and file names contain the usual terms."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "dial_client"


def test_files_named_in_the_architecture_and_contributing_documents_exist() -> None:
    documents = (ROOT / "docs" / "architecture.md", ROOT / "CONTRIBUTING.md")
    missing = [
        f"{document.name}: {path}"
        for document in documents
        for path in re.findall(r"`([\w/]+(?:\.py|/))`", document.read_text(encoding="utf-8"))
        if not (PACKAGE / path).exists() and not (ROOT / path).exists()
    ]
    assert missing == []


@pytest.mark.parametrize(
    ("subject", "file"),
    [
        ("token storage", "servers/oauth/token_storage.py"),
        ("rate limit", "servers/transports/rate_limit.py"),
        ("retry", "providers/http/retry_policy.py"),
        ("elicitation", "hooks/elicitation_form.py"),
        ("context window", "turns/context_window.py"),
        ("approval", "tools/approval.py"),
        ("SSE", "providers/http/sse_parser.py"),
        ("restart policy", "servers/restart_policy.py"),
    ],
)
def test_a_search_for_a_term_finds_the_file_of_that_name(subject: str, file: str) -> None:
    words = subject.lower().replace(" ", "_")
    found = [path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py") if words in path.stem]
    assert file in found
