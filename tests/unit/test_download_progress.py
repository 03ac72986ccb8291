"""The progress of a download, as a person reads it."""

from __future__ import annotations

import io

import pytest

from tests.inner import DOWNLOADING, Activity, DownloadProgress, LiveState, render

MB = 1_000_000


def test_the_progress_of_a_download_has_its_amount_speed_and_remaining_time() -> None:
    times = iter([0.0, 5.0, 10.0, 20.0])
    progress = DownloadProgress(lambda: next(times))
    assert progress.describe(0, 491 * MB, DOWNLOADING) == "downloading the model: 0 of 491 MB"
    assert progress.describe(50 * MB, 491 * MB, DOWNLOADING).endswith("50 of 491 MB · 10.0 MB/s · 44 s left")
    assert progress.describe(51 * MB, 491 * MB, DOWNLOADING).endswith("5.1 MB/s · 86 s left")
    stalled = progress.describe(51 * MB, 491 * MB, DOWNLOADING)
    assert stalled.endswith("51 of 491 MB · 0.0 MB/s"), "a stalled download has no time that is left"


def test_other_steps_have_no_speed() -> None:
    times = iter([0.0, 5.0])
    progress = DownloadProgress(lambda: next(times))
    progress.describe(0, 10 * MB, "checking the download")
    assert progress.describe(5 * MB, 10 * MB, "checking the download") == "checking the download: 5 of 10 MB"


def test_without_a_terminal_each_tenth_is_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    printed = io.StringIO()
    monkeypatch.setattr("sys.stderr", printed)
    progress = DownloadProgress()
    for percent in range(101):
        progress(percent * MB, 100 * MB, DOWNLOADING)
    assert printed.getvalue().count("\n") == 11
    assert "dial-chat: downloading the model: 0 of 100 MB" in printed.getvalue()


def test_a_download_takes_the_place_of_the_activity_on_a_screen() -> None:
    state = LiveState(activity=Activity("Sending…", since=0.0), progress="downloading the model: 1 of 2 MB")
    [line] = render(state, 80, 10, 3.0)
    assert "Sending" not in line and "downloading the model: 1 of 2 MB" in line and "Esc stops" in line
