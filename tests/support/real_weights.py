"""The mark of tests in which the embedded model answers with its real weights.

They take minutes, and fetch 490 MB: they run with ``DIAL_TEST_ANSWERS=1``. `.ci/run` runs those without a browser once,
after the demo.
"""

from __future__ import annotations

import os

import pytest

from tests.inner import QWEN, find_cache_folder

HAS_MODEL = bool(os.environ.get("DIAL_TEST_ANSWERS"))
WEIGHTS = find_cache_folder() / QWEN.file
with_weights = pytest.mark.skipif(
    not HAS_MODEL, reason="DIAL_TEST_ANSWERS is not set: the embedded model answers for minutes"
)
