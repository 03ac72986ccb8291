"""Elicitation with old and new protocol versions: the arguments of the callback, and the response to the server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from dial_client import DialClient, Limits, ServerState, ToolCallResult
from dial_client.extend import Elicitation, ElicitationAnswer
from tests.inner import Callbacks, Form, server_requests
from tests.support.fakes import virtual_time
from tests.support.program import LONG, python_server
from tests.support.servers import questions
from tests.support.servers.launch import HERE

pytestmark = pytest.mark.anyio

ERAS = {"legacy": "2025-11-25", "auto": "2026-07-28"}
both_eras = pytest.mark.parametrize("era", ERAS)
Answer = Callable[[Elicitation], Awaitable[ElicitationAnswer]]


class Person:
    """An elicitation callback that records the questions and returns the given answers in order."""

    def __init__(self, *answers: ElicitationAnswer | Exception | Any) -> None:
        self.asked: list[Elicitation] = []
        self._answers = list(answers)

    async def __call__(self, question: Elicitation) -> ElicitationAnswer:
        self.asked.append(question)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


ACCEPT = ElicitationAnswer("accept")


def entry(protocol: str = "auto", *words: object) -> dict[str, Any]:
    return python_server(HERE / "questions.py", *map(str, words), protocol=protocol)


async def call(dial: DialClient, tool: str, **arguments: Any) -> ToolCallResult:
    with anyio.fail_after(LONG):
        return await dial.call(tool, arguments)


@both_eras
async def test_a_question_over_stdio_is_answered_in_both_eras(era: str) -> None:
    person = Person(ElicitationAnswer("accept", {"yes": False}))
    async with DialClient(servers={"shop": entry(era)}, callbacks=Callbacks(elicit=person)) as dial:
        assert dial.servers["shop"].protocol_version == ERAS[era]
        result = await call(dial, "returns")
    assert result.content == "action='accept' data=Sure(yes=False)"
    [question] = person.asked
    assert (question.server, question.message, question.tools) == ("shop", "Sure?", ("returns",))
    assert (question.url, question.defaults, question.warnings) == (None, {"yes": True}, ())


@both_eras
@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_decline_and_cancel_are_sent_to_the_server(era: str, action: str) -> None:
    tool = {"auto": "returns", "legacy": "many"}[era]
    async with DialClient(
        servers={"shop": questions.make()}, callbacks=Callbacks(elicit=Person(ElicitationAnswer(action)))
    ) as dial:
        result = await call(dial, tool, **({"times": 1} if tool == "many" else {}))
        assert dial.servers["shop"].protocol_version == ERAS[era]
    assert result.success
    assert action in str(result.content)


async def test_a_server_that_sends_elicitation_requests_is_reconnected_with_the_older_protocol() -> None:
    person = Person(ElicitationAnswer("accept", {"gift": "yes please"}), ElicitationAnswer("accept", {"gift": True}))
    async with DialClient(servers={"shop": entry()}, callbacks=Callbacks(elicit=person)) as dial:
        assert dial.servers["shop"].protocol_version == "2026-07-28"
        refused = await call(dial, "pushes")
        after = dial.servers["shop"]
        done = await call(dial, "pushes")
        later = dial.servers["shop"]
    assert (
        refused.error
        == "The call failed: the server answered with an error: The host's answer does not fit the form (-32603)"
    )
    assert (after.protocol_version, after.state, after.restarts, after.error) == (
        "2025-11-25",
        ServerState.READY,
        0,
        None,
    )
    assert done.content == "accept {'name': 'Ada', 'count': 1, 'gift': True}"
    assert later == after
    assert len(person.asked) == 2


async def test_a_server_that_cannot_be_reconnected_keeps_its_protocol(tmp_path: Path) -> None:
    person = Person(ACCEPT)
    async with DialClient(
        servers={"shop": entry("auto", tmp_path / "started")}, callbacks=Callbacks(elicit=person)
    ) as dial:
        refused = await call(dial, "pushes")
        assert (await call(dial, "returns")).success
        again = await call(dial, "pushes")
        after = dial.servers["shop"]
    assert "no back-channel" in str(refused.error)
    assert again.error == refused.error
    assert (after.protocol_version, after.state, after.restarts) == ("2026-07-28", ServerState.READY, 1)
    assert len(person.asked) == 1


async def test_reconnecting_does_not_interrupt_running_calls() -> None:
    released = anyio.Event()
    slow = questions.make()

    @slow.tool()
    async def waits() -> str:
        await released.wait()
        return "waited"

    results: dict[str, ToolCallResult] = {}

    async def person(question: Elicitation) -> ElicitationAnswer:
        return ElicitationAnswer("decline")

    async with (
        DialClient(servers={"shop": slow}, callbacks=Callbacks(elicit=person)) as dial,
        anyio.create_task_group() as group,
    ):

        async def run_call(tool: str) -> None:
            results[tool] = await call(dial, tool)

        group.start_soon(run_call, "waits")
        await anyio.wait_all_tasks_blocked()
        group.start_soon(run_call, "pushes")
        await anyio.wait_all_tasks_blocked()
        assert results == {}
        released.set()
    assert results["waits"].content == "waited"
    assert results["pushes"].content == "decline None"


@pytest.mark.parametrize("protocol", ["2026-07-28"])
async def test_a_server_with_a_configured_protocol_is_not_reconnected(protocol: str) -> None:
    async with DialClient(servers={"shop": entry(protocol)}, callbacks=Callbacks(elicit=Person(ACCEPT))) as dial:
        result = await call(dial, "pushes")
        assert dial.servers["shop"].protocol_version == protocol
    assert "no back-channel" in str(result.error)


@both_eras
@pytest.mark.parametrize("tool", ["pushes", "returns"])
async def test_without_a_callback_the_call_fails_and_the_server_keeps_working(era: str, tool: str) -> None:
    async with DialClient(servers={"shop": entry(era)}) as dial:
        result = await call(dial, tool)
        assert (await call(dial, "plain")).content == "plain"
        assert dial.servers["shop"].protocol_version == ERAS[era]
    unasked = "The call failed: it asks the user a question, but no user can answer"
    refused = "The call failed: the server answered with an error: Elicitation not supported (-32600)"
    assert result.error == (refused if (era, tool) == ("legacy", "pushes") else unasked)


async def test_an_answer_is_converted_to_the_schema_and_omitted_fields_stay_omitted() -> None:
    person = Person(ElicitationAnswer("accept", {"count": None, "gift": "true", "colour": "g"}))
    async with DialClient(servers={"shop": questions.make()}, callbacks=Callbacks(elicit=person)) as dial:
        result = await call(dial, "pushes")
    assert result.content == "accept {'name': 'Ada', 'gift': True, 'colour': 'g'}"
    assert person.asked[0].defaults == {"name": "Ada", "count": 1}


@pytest.mark.parametrize(
    "answer",
    [
        RuntimeError("the password is 1234"),
        None,
        {"action": "accept"},
        ElicitationAnswer("accept", {"gift": True, "count": 99}),
        ElicitationAnswer("accept", {"gift": True, "height": 3}),
        ElicitationAnswer("accept", {}),
    ],
)
@pytest.mark.parametrize("tool", ["pushes", "orders"])
async def test_an_invalid_answer_fails_only_its_call_without_details(tool: str, answer: Any) -> None:
    async with DialClient(servers={"shop": questions.make()}, callbacks=Callbacks(elicit=Person(answer))) as dial:
        result = await call(dial, tool)
        assert (await call(dial, "plain")).content == "plain"
        assert dial.servers["shop"].restarts == 0
    assert result.error is not None
    assert "1234" not in result.error
    assert "The host" in result.error


# Bounds


async def test_answers_per_call_are_limited() -> None:
    person = Person(ACCEPT)
    async with DialClient(servers={"shop": questions.make()}, callbacks=Callbacks(elicit=person)) as dial:
        result = await call(dial, "many", times=100)
        assert len(person.asked) == server_requests.MAX_REQUESTS
        again = await call(dial, "many", times=1)
    assert result.content == "100 asked, at last: The host answers no more requests for this call"
    assert again.content == "1 asked, at last: accept"


@virtual_time
async def test_the_answering_time_of_the_user_does_not_count_towards_timeouts() -> None:
    async def slow(question: Elicitation) -> ElicitationAnswer:
        await anyio.sleep(5_000)
        return ACCEPT

    async with DialClient(
        servers={"shop": questions.make()}, callbacks=Callbacks(elicit=slow), limits=Limits(timeout=20, tool_timeout=5)
    ) as dial:
        returned = await dial.call("returns", {})
        pushed = await dial.call("many", {"times": 2})
        assert dial.servers["shop"].protocol_version == "2025-11-25"
    assert returned.content == "action='accept' data=Sure(yes=True)"
    assert pushed.content == "2 asked, at last: accept"


async def test_a_cancelled_call_cancels_its_elicitation() -> None:
    begun, ended = anyio.Event(), anyio.Event()

    async def never(question: Elicitation) -> ElicitationAnswer:
        begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()
        return ACCEPT

    async with (
        DialClient(servers={"shop": questions.make()}, callbacks=Callbacks(elicit=never)) as dial,
        anyio.create_task_group() as group,
    ):
        group.start_soon(dial.call, "many", {"times": 1})
        await begun.wait()
        group.cancel_scope.cancel()
    assert ended.is_set()


# URL mode


async def test_the_full_url_is_shown_and_only_the_action_is_sent() -> None:
    person = Person(ACCEPT)
    async with DialClient(servers={"shop": questions.make()}, callbacks=Callbacks(elicit=person)) as dial:
        result = await call(dial, "page")
    assert result.content == "accept"
    [question] = person.asked
    assert (question.url, question.schema, question.message) == (questions.PAGE, None, "Log in, please.")
    assert question.warnings == ()


@pytest.mark.parametrize(
    "url",
    [
        "javascript:alert(1)",
        "file:///etc/passwd",
        "data:text/html,hello",
        "//example.test/",
        "https:///nowhere",
        "https://example.test:x/",
        "https://example.test/\u202emoc.knab",
        "https://example.test/ https://bank.example/",
        "https://example.test\\@bank.example/",
    ],
)
async def test_an_invalid_or_deceptive_url_is_declined_without_asking(url: str) -> None:
    person = Person(ACCEPT)
    async with DialClient(servers={"shop": questions.make()}, callbacks=Callbacks(elicit=person)) as dial:
        result = await call(dial, "page", url=url)
    assert result.content == "decline"
    assert person.asked == []


@pytest.mark.parametrize(
    ("url", "warning"),
    [
        ("https://bank.example@evil.test/", "it leads to evil.test"),
        ("https://xn--pple-43d.test/", "letters outside of ASCII, which may only look like those of another"),
        ("https://\u0430pple.test/", "letters outside of ASCII, which may only look like those of another"),
        ("http://127.0.0.1:8080/", "this machine"),
        ("https://[::1]/", "this machine"),
        ("https://192.168.1.1/", "its local network"),
        ("http://localhost/", "this machine"),
        ("http://example.test/", "not encrypted"),
    ],
)
async def test_a_misleading_url_has_a_warning(url: str, warning: str) -> None:
    person = Person(ElicitationAnswer("decline"))
    async with DialClient(servers={"shop": questions.make()}, callbacks=Callbacks(elicit=person)) as dial:
        assert (await call(dial, "page", url=url)).content == "decline"
    assert warning in " ".join(person.asked[0].warnings)


async def switch_to_legacy(dial: DialClient) -> None:
    """Cause the server to be reconnected with the older protocol."""
    await call(dial, "many", times=1)
    assert dial.servers["shop"].protocol_version == "2025-11-25"


async def test_a_call_that_requires_a_url_is_repeated_after_the_user_accepted() -> None:
    person = Person(ACCEPT)
    async with DialClient(servers={"shop": questions.make()}, callbacks=Callbacks(elicit=person)) as dial:
        await switch_to_legacy(dial)
        result = await call(dial, "behind_a_page")
    assert result.content == "welcome"
    assert [question.url for question in person.asked] == [None, questions.PAGE]


@virtual_time
@pytest.mark.parametrize("tell", [True, False])
async def test_the_repeated_call_waits_for_the_completion_notification_or_a_timeout(tell: bool) -> None:
    person = Person(ACCEPT)
    limits = Limits(timeout=20, tool_timeout=5)
    async with DialClient(
        servers={"shop": questions.make()}, callbacks=Callbacks(elicit=person), limits=limits
    ) as dial:
        await dial.call("many", {"times": 1})
        began = anyio.current_time()
        result = await dial.call("behind_a_page", {"visits": 2, "tell": tell})
        took = anyio.current_time() - began
    assert result.content == "welcome"
    assert took == pytest.approx(0 if tell else server_requests.BROWSER_SECONDS, abs=1)
    assert len(person.asked) == 2


async def test_a_call_whose_url_is_declined_fails_with_an_error() -> None:
    person = Person(ACCEPT, ElicitationAnswer("decline"))
    async with DialClient(servers={"shop": questions.make()}, callbacks=Callbacks(elicit=person)) as dial:
        await switch_to_legacy(dial)
        result = await call(dial, "behind_a_page")
    assert result.error == "The call failed: the user has to open a URL first, but did not agree to open it"


async def test_a_form_that_asks_for_a_secret_has_a_warning() -> None:
    form = Form({"properties": {"api_key": {"type": "string"}, "pine": {"type": "string"}, "n": {"title": "Your PIN"}}})
    assert form.secrets == ("api_key", "n")


@pytest.mark.parametrize("schema", [{}, {"properties": []}, {"properties": {"a": 1, "b": {"type": 3, "enum": 4}}}])
async def test_a_malformed_schema_is_an_empty_form(schema: dict[str, Any]) -> None:
    form = Form({**schema, "required": 7})
    assert form.defaults == {}
    assert form.find_problems(form.fill({})) == []


@pytest.mark.parametrize(
    "kind",
    [
        {"type": "string", "enum": ["a", "b"]},
        {"type": "string", "enum": ["a", "b"], "enumNames": ["A", "B"]},
        {"type": "string", "oneOf": [{"const": "a", "title": "A"}, {"const": "b", "title": "B"}]},
        {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}},
        {"type": "array", "items": {"anyOf": [{"const": "a", "title": "A"}, {"const": "b", "title": "B"}]}},
    ],
)
async def test_choices_are_read_from_the_schemas_of_every_protocol_version(kind: dict[str, Any]) -> None:
    form = Form({"properties": {"x": kind}})
    assert [choice.value for choice in form.fields[0].choices] == ["a", "b"]
    is_many = kind["type"] == "array"
    assert form.find_problems({"x": ["a", "b"] if is_many else "a"}) == []
    assert form.find_problems({"x": ["c"] if is_many else "c"}) != []
