"""The hint of the error for an embedded model whose process does not start."""

from __future__ import annotations

from tests.inner import find_remedy


def test_a_missing_library_of_the_system_is_named_with_its_package() -> None:
    words = "ImportError: libgomp.so.1: cannot open shared object file: No such file or directory"
    assert (
        find_remedy(words) == "; install the system's library libgomp.so.1 (Debian, Ubuntu: apt-get install libgomp1)"
    )


def test_other_errors_have_no_remedy() -> None:
    assert find_remedy("failed to load broken.gguf") == ""
