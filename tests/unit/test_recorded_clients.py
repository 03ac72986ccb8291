"""A replay fails if it sends fewer requests to the model than the recording has."""

from __future__ import annotations

from pathlib import Path

import pytest

from dial_client.testing import DialRecording, ScriptedProvider

pytestmark = pytest.mark.anyio


async def test_a_replay_with_fewer_requests_than_the_recording_fails(tmp_path: Path) -> None:
    recording = DialRecording(tmp_path / "test.jsonl", is_recorded=True)
    async with recording.client(ScriptedProvider(["One.", "Two."])) as dial:
        assert [(await dial.run(question)).text for question in ("first", "second")] == ["One.", "Two."]
    recording.close(is_passed=True)

    for questions, is_whole in ((["first", "second"], True), (["first"], False)):
        replay = DialRecording(tmp_path / "test.jsonl", is_recorded=False)
        async with replay.client() as dial:
            for question in questions:
                await dial.run(question)
        if is_whole:
            replay.close(is_passed=True)
        else:
            with pytest.raises(AssertionError, match="has 2 requests to the model, and the test made 1"):
                replay.close(is_passed=True)
            replay.close(is_passed=False)
