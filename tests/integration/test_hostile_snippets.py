"""Programs that want out of their sandbox, or to harm the host: an error for the model, and nothing else."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dial_client import DialClient, ToolCallResult
from tests.inner import sandbox

MontyCrashedError = pytest.importorskip("pydantic_monty", reason="the extra 'code' is not installed").MontyCrashedError
pytestmark = pytest.mark.anyio

MARKER = "marker-of-a-hostile-snippet"
# A name in `exec` hides from the type checker, so that the interpreter itself has to refuse.
FAILING = [
    "open('/etc/passwd').read()",
    "exec('open(\"/etc/passwd\").read()')",
    f'exec(\'open("{MARKER}", "w").write("x")\')',
    "from pathlib import Path\nPath('/etc/passwd').read_text()",
    f"from pathlib import Path\nPath('{MARKER}').write_text('x')",
    "from pathlib import Path\nlist(Path('/').iterdir())",
    "import os\nos.listdir('/')",
    "import os\nos.system('touch x')",
    "exec('import os; os.system(\"touch x\")')",
    "exec('import os; os.fork()')",
    "exec('import os; os.kill(1, 9)')",
    "import os\nos.environ['PATH']",
    "exec('import os; os.getenv(\"HOME\") + 1')",
    "import subprocess",
    "exec('import subprocess')",
    "import socket",
    "exec('import socket')",
    "exec('import ctypes')",
    "exec('import sys; sys.modules[\"os\"]')",
    "exec('import dial_client')",
    "exec('import importlib')",
    "exec('import threading')",
    "exec('import multiprocessing')",
    "exec('import urllib.request')",
    'exec(\'__import__("os").system("ls")\')',
    "exec('().__class__.__bases__[0].__subclasses__()')",
    "exec('[].__class__.__mro__[1].__subclasses__()')",
    "exec('(lambda: 0).__globals__')",
    "exec('(lambda: 0).__code__')",
    "exec('add.__globals__')",
    "exec('await add.__wrapped__(1)')",
    "'{0.__class__.__init__.__globals__}'.format(1)",
    "exec('type(\"X\", (), {})().__class__.__base__.__subclasses__()')",
    "exec('globals()[\"__builtins__\"].open')",
    "exec('breakpoint()')",
    "exec('input()')",
    'exec(\'compile("1", "", "eval")\')',
    "exec('memoryview(b\"x\")')",
    "def deeper():\n    return deeper()\ndeeper()",
    "10 ** 10 ** 10",
    "1 << 10 ** 12",
    "'a' * 10 ** 10",
    "[0] * 10 ** 10",
    "list(range(10 ** 10))",
    "rows = [[]]\nfor _ in range(64):\n    rows = rows + rows\nrows",
    "text = 'x'\nwhile True:\n    text = text + text",
    "'{:>10000000000}'.format(1)",
    "f'{1:>10000000000}'",
    "'%10000000000d' % 1",
    "int('9' * 10 ** 6)",
    "str(10 ** 10 ** 5)",
    "import json\njson.loads('[' * 10 ** 5)",
    "sorted(range(10 ** 9))",
    "while True:\n    pass",
    "while True:\n    try:\n        while True:\n            pass\n    except BaseException:\n        pass",
    "sum(range(10 ** 13))",
    "import asyncio\nasync def again():\n    while True:\n        await asyncio.sleep(100)\nawait again()",
    "eval(" * 300 + "1" + ")" * 300,
    "(" * 50_000,
    "x = " + "-" * 50_000 + "1",
    "await run_code(code='1')",
    "'{0!r:>{1}}'.format('x', 10 ** 9)",
    "'%*d' % (10 ** 9, 1)",
    "','.join(['x' * 10 ** 6] * 1_000)",
    "('ab' * 10 ** 7).replace('a', 'b' * 1_000)",
    "sum(n for n in range(10 ** 12))",
    "import itertools\nlist(itertools.cycle([1]))",
    "import math\nmath.factorial(10 ** 6)",
    "import re\nre.compile('(a{1,1000}){1,1000}')",
    "def key(n):\n    return sorted([n], key=key)\nsorted([1, 2], key=key)",
    "a, b = [], []\na.append(a)\nb.append(b)\na == b",
    "rows = ()\nfor _ in range(100_000):\n    rows = (rows,)\nhash(rows)",
    "import asyncio\nasync def f(n):\n    if n:\n        await asyncio.gather(f(n - 1), f(n - 1))\nawait f(18)",
    "raise ValueError('x' * 10 ** 7)",
    "raise SystemExit(0)",
    "raise Exception(Exception('x'))",
    "await add(**{'a': 1, '__class__': 2})",
    "await add(**{'a': 1, 'a\u200b': 2})",
    "await \u0430dd(a=1)",
    "await add(a=10 ** 30)",
    "import json\nawait add(a=json.loads('[' * 60 + ']' * 60))",
    "import asyncio\nawait asyncio.gather(*[add(a=n) for n in range(10_000)])",
]


def add(a: int) -> int:
    """Add one."""
    return a + 1


@pytest.fixture(autouse=True)
def short_steps(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, keys: Path) -> Iterator[None]:
    """End endless programs soon, and look for what they have written in a folder of their own."""
    monkeypatch.setattr(sandbox, "STEP_SECONDS", 0.3)
    folder = tmp_path / "folder"
    folder.mkdir()
    monkeypatch.chdir(folder)
    yield
    assert not list(folder.iterdir())


async def run_all(programs: list[str]) -> list[ToolCallResult]:
    async with DialClient(tools=[add]) as dial:
        return [await dial.run_code(program) for program in programs]


@pytest.mark.once
async def test_hostile_programs_fail_and_a_later_program_runs() -> None:
    environment = dict(os.environ)
    results = await run_all([*FAILING, "await add(a=1)"])
    assert [program for program, result in zip(FAILING, results, strict=False) if result.success] == []
    assert all(result.error for result in results[:-1])
    assert max(len(str(result.content)) for result in results) < 60_000
    assert results[-1].value == 2
    assert dict(os.environ) == environment


@pytest.mark.once
async def test_hostile_programs_that_keep_their_names_fail_as_well_and_a_later_program_runs() -> None:
    results: list[ToolCallResult] = []
    kept: Mapping[str, Any] = {}
    async with DialClient(tools=[add]) as dial:
        for program in [*FAILING, "await add(a=1)"]:
            results.append(await dial.run_code(program, kept=kept))
            kept = kept if results[-1].kept is None else results[-1].kept
            assert len(json.dumps(kept)) < 500_000
    assert [program for program, result in zip(FAILING, results, strict=False) if result.success] == []
    assert results[-1].value == 2


async def test_a_program_that_computes_too_long_fails_with_the_bound_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    result = (await run_all(["while True:\n    pass"]))[0]
    assert (result.error or "").endswith("it computed for more than 0.3 seconds between two calls")
    monkeypatch.setattr(sandbox, "SNIPPET_SECONDS", 0.2)
    result = (await run_all(["while True:\n    pass"]))[0]
    assert (result.error or "").endswith("it computed for more than 0.2 seconds in all")


async def test_results_that_look_like_answers_to_the_interpreter_are_plain_values() -> None:
    confusing = {"return_value": 1, "exc_type": "SystemExit", "future": "...", "__class__": "X", "__monty__": [2]}
    results = {
        "answer": confusing,
        "huge": 10**4_000,
        "not a number": float("nan"),
        "zero": "\x00",
        "half": "\ud800",
        "long": "x" * 3_000_000,
        "deep": json.loads("[" * 400 + "]" * 400),
        "image": "[image 1: image/png, about 12 kB]",
    }

    def give(name: str) -> object:
        """Give."""
        return results[name]

    async def read(name: str, expression: str = "value") -> ToolCallResult:
        return await dial.run_code(f"value = await give(name={name!r})\n{expression}")

    async with DialClient(tools=[give]) as dial:
        assert (await read("answer")).value == confusing
        assert (await read("huge", "value == 10 ** 4_000")).value is True
        assert (await read("not a number", "value != value")).value is True
        assert (await read("zero")).value == "\x00"
        assert (await read("long", "len(value)")).value == 3_000_000
        assert isinstance((await read("image")).content, str)
        # Neither is text or JSON: the program gets an exception, or ends.
        assert "PydanticSerializationError" in str((await read("deep")).error)
        assert "UnicodeEncodeError" in str((await read("half")).error)
        assert (await read("zero", "1")).value == 1


async def test_a_name_of_the_program_hides_the_tool_and_makes_no_call() -> None:
    made: list[int] = []

    def note(number: int) -> int:
        """Note."""
        made.append(number)
        return number

    async with DialClient(tools=[note]) as dial:
        hidden = await dial.run_code("async def note(number):\n    return 'own'\nawait note(number=1)")
        another = await dial.run_code("same = note\nawait same(number=2)")
    assert (hidden.value, another.value, made) == ("own", 2, [2])


async def test_the_event_loop_goes_on_while_a_program_computes() -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await anyio.sleep(0.001)

    async with DialClient(tools=[add]) as dial, anyio.create_task_group() as group:
        group.start_soon(count)
        await dial.run_code("1")
        before = turns
        await dial.run_code("while True:\n    pass")
        group.cancel_scope.cancel()
    assert turns > before + 5


async def test_regular_expressions_do_not_explode() -> None:
    [result] = await run_all(["import re\nre.match(r'(a+)+$', 'a' * 60 + 'b')"])
    assert result.success


async def test_a_prepared_worker_runs_one_program_with_its_declarations() -> None:
    box = sandbox.Sandbox()
    stubs = "async def add(*, a: int) -> int: ..."
    workers: list[int] = []
    try:
        await anyio.to_thread.run_sync(box._prepare_spare, stubs)
        assert box._spare is not None
        prepared = box._spare[1].worker_pid
        for declared in ("", stubs, stubs):
            session = await box.open_session(declared, {"add"}.__contains__)
            workers.append(session._session.worker_pid)
            step = await session.start("await add(a=1)" if declared else "None")
            assert isinstance(step, sandbox.Suspended if declared else sandbox.Ended)
            session.close()
    finally:
        box.close()
    assert [worker == prepared for worker in workers] == [False, True, False]
    with pytest.raises(sandbox.SnippetError):
        box.prepare()


async def test_a_prepared_worker_that_was_killed_is_replaced() -> None:
    box = sandbox.Sandbox()
    try:
        await anyio.to_thread.run_sync(box._prepare_spare, "")
        assert box._spare is not None
        prepared = box._spare[1]
        os.kill(prepared.worker_pid, signal.SIGTERM)
        with pytest.raises(MontyCrashedError):  # the signal arrives some time later
            while True:
                prepared.feed_run("None")
        session = await box.open_session("", lambda _: False)
        step = await session.start("1 + 1")
        session.close()
    finally:
        box.close()
    assert isinstance(step, sandbox.Ended)


@pytest.mark.skipif(sys.platform != "linux", reason="the system bounds processes from outside on Linux alone")
async def test_the_system_bounds_the_memory_of_the_interpreter() -> None:
    box = sandbox.Sandbox()
    session = await box.open_session("", lambda _: False)
    try:
        limits = await anyio.Path(f"/proc/{session._session.worker_pid}/limits").read_text()
    finally:
        session.close()
        box.close()
    assert any(line.startswith("Max address space") and "2000000000" in line for line in limits.splitlines())


PIECES = st.sampled_from(
    [
        *("open", "exec", "eval", "import os", "__class__", "__globals__", "add", "await ", "lambda: 0", "x", "x = "),
        *("1", "'a'", "[]", "{}", "(", ")", "[", "]", ".", ",", "=", "*", "** 9", "\n", "\n    ", ":", "for x in "),
        *("while 1", "try:", "except:", "f'{x}'", "\x00", "\ud7ff", "é", "#", "\\", '"""', "print(", "raise "),
    ]
)


@pytest.mark.once
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(program=st.lists(PIECES, max_size=12).map("".join))
def test_any_text_is_a_program_that_ends(program: str) -> None:
    async def run() -> None:
        [result, after] = await run_all([program, "await add(a=1)"])
        assert result.success or result.error
        assert after.value == 2
        async with DialClient(tools=[add]) as dial:
            result = await dial.run_code(program, kept={})
            assert result.success or result.error
            assert (await dial.run_code("await add(a=1)", kept=result.kept or {})).success

    anyio.run(run)
