"""The page's polls for changes of a conversation, run by Node; the test decides when a poll is due and answered."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.node_program import import_from, needs_node, run_node

pytestmark = [pytest.mark.once, needs_node]


def watch(steps: str) -> dict[str, Any]:
    """Watch a conversation that shows "old" while the steps run; return the number of reads and of changes."""
    return dict(
        run_node(f"""
        {import_from("change_watch.js", "watchChanges")}
        globalThis.document = {{ hidden: false }};
        let poll, answer, fail, reads = 0, changes = 0;
        globalThis.setInterval = (due) => {{ poll = due; }};
        const readState = () => (reads++, new Promise((kept, broken) => {{ answer = kept; fail = broken; }}));
        const settled = () => new Promise((kept) => setTimeout(kept));
        watchChanges({{ isIdle: () => true, readState, shown: () => "old" }}, async () => {{ changes++; }});
        {steps}
        console.log(JSON.stringify({{ reads, changes }}));
        """)
    )


def test_a_poll_that_gets_no_answer_is_the_only_one() -> None:
    assert watch("poll(); poll(); poll();") == {"reads": 1, "changes": 0}


def test_polls_go_on_after_an_answer_and_after_a_failure() -> None:
    steps = 'poll(); answer("old"); await settled(); poll(); fail(new Error()); await settled(); poll();'
    assert watch(steps) == {"reads": 3, "changes": 0}


def test_a_change_is_reported_once_for_each_poll_that_reads_it() -> None:
    assert watch('poll(); answer("new"); await settled(); poll();') == {"reads": 2, "changes": 1}
