"""Lazy imports: modules that the package loads on import, and modules that it loads on first use."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.program import dial_chat, environment, write_config
from tests.unit.test_layers import HEAVY


def test_importing_the_package_loads_no_sdk() -> None:
    program = f"import sys, dial_client; print([m for m in sys.modules if m.split('.')[0] in {HEAVY}])"
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "[]"


def test_importing_the_client_class_loads_no_sdk_and_no_server() -> None:
    program = (
        "import sys; from dial_client import DialClient; "
        "print([m for m in sys.modules if m in ('openai', 'anthropic', 'mcp', 'mcp.server', 'sqlalchemy', "
        "'pydantic_core', 'urllib.request', 'asyncio')])"
    )
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "[]"


def test_a_price_list_that_is_not_installed_is_looked_for_once() -> None:
    program = (
        "import sys\n"
        "class Search:\n"
        "    searched = []\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        self.searched.append(name)\n"
        "        if name == 'genai_prices': raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Search())\n"
        "from dial_client.messages.model import ModelInfo\n"
        "from dial_client.turns.prices import Usage, compute_cost\n"
        "info = ModelInfo('gpt', 'gpt-5.4', 'https://api.openai.com/v1')\n"
        "print([compute_cost(Usage(1), info) for _ in range(3)], Search.searched.count('genai_prices'))"
    )
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "[None, None, None] 1"


def test_help_loads_neither_sdk_nor_client() -> None:
    program = (
        "import sys; from dial_client.cli.commands.program_commands import run; code = run(['--help']); "
        "heavy = ('openai', 'anthropic', 'mcp', 'anyio', 'pydantic', 'asyncio', 'starlette', 'uvicorn'); "
        "print([m for m in sys.modules if m in heavy], code)"
    )
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert printed.splitlines()[-1] == "[] 0"


def test_the_first_prompt_does_not_wait_for_the_client() -> None:
    program = (
        "import sys, dial_client.cli.chat.conversation, dial_client.cli.terminal.live_application; "
        "late = ('client.dial_client', 'conversations.conversation_manager', 'cli.markdown.block_renderer', "
        "'servers.connection', 'tools.catalog'); "
        "print([m for m in sys.modules if m.removeprefix('dial_client.') in late])"
    )
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "[]"


def test_a_question_without_servers_loads_no_pydantic(tmp_path: Path) -> None:
    script, config = tmp_path / "script.json", tmp_path / "servers.json"
    script.write_text('["Hello."]')
    config.write_text('{"mcpServers": {}}')
    program = (
        "import sys; from dial_client.cli.commands.program_commands import run; "
        f"code = run(['-c', {str(config)!r}, '-m', 'scripted:' + {str(script)!r}, '--no-save', '--no-audit', 'Hi']); "
        "print([m for m in sys.modules if m in ('pydantic', 'pydantic_core', 'mcp', 'sqlalchemy')], code)"
    )
    printed = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL
    ).stdout
    assert printed.splitlines() == ["Hello.", "[] 0"]


def test_skills_are_loaded_by_clients_that_have_some_and_those_of_folders_without_an_sdk(tmp_path: Path) -> None:
    (tmp_path / "forms").mkdir()
    (tmp_path / "forms" / "SKILL.md").write_text("---\nname: forms\ndescription: Fills forms.\n---\nFill them.\n")
    program = (
        "import asyncio, sys; from dial_client import DialClient; from dial_client.testing import ScriptedProvider\n"
        "async def main(**options):\n"
        "    async with DialClient(ScriptedProvider(['Hello.']), **options) as dial:\n"
        "        await dial.run('Hi')\n"
        "    print([m for m in sys.modules if m in ('yaml', 'mcp', 'pydantic') or m.endswith('skill_library')])\n"
        f"asyncio.run(main()); asyncio.run(main(skills=[{str(tmp_path)!r}]))"
    )
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert printed.splitlines() == ["[]", "['dial_client.tools.skills.skill_library', 'yaml']"]


def test_models_of_the_sdk_are_built_when_they_are_used_and_those_of_the_program_at_once() -> None:
    program = (
        "from dial_client.servers.sdk_import import import_sdk; import_sdk()\n"
        "from mcp_types import CallToolRequestParams, Tool, server_notification_adapter\n"
        "from pydantic import BaseModel, TypeAdapter\n"
        "class Own(BaseModel):\n"
        "    number: int\n"
        "adapter = TypeAdapter(int | str)\n"
        "print(Tool.__pydantic_complete__, Own.__pydantic_complete__, adapter.pydantic_complete)\n"
        "print(Tool.model_validate({'name': 'a', 'inputSchema': {}}).name, Tool.__pydantic_complete__)\n"
        "later = CallToolRequestParams\n"
        "print(later.__pydantic_complete__, later.model_validate({'name': 'a'}).name, later.__pydantic_complete__)\n"
        "message = {'method': 'notifications/tools/list_changed'}\n"
        "print(type(server_notification_adapter.validate_python(message)).__name__)"
    )
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert printed.splitlines() == ["False True True", "a True", "False a True", "ToolListChangedNotification"]


def test_models_of_other_modules_can_be_completed_while_the_sdk_is_imported() -> None:
    program = (
        "from __future__ import annotations\n"
        "from dial_client.servers.sdk_import import defer_builds\n"
        "from pydantic import BaseModel\n"
        "def define():\n"
        "    class Book(BaseModel):\n"
        "        author: Author\n"
        "    class Author(BaseModel):\n"
        "        name: str\n"
        "    with defer_builds():\n"
        "        print(Book.model_rebuild())\n"
        "    return Book\n"
        "print(define().model_validate({'author': {'name': 'a'}}).author.name)"
    )
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert printed.splitlines() == ["True", "a"]


def test_sessions_share_what_reads_the_answers_to_calls_and_it_is_built_when_it_is_used() -> None:
    program = (
        "from dial_client.servers.sdk_import import import_sdk; import_sdk()\n"
        "from dial_client.servers.tasks import TaskExtension; from mcp.client import session\n"
        "claims = [{claim.result_type: claim for claim in TaskExtension().claims()} for _ in range(2)]\n"
        "first, second = map(session._build_call_tool_adapter, claims)\n"
        "print(first is second, first.pydantic_complete)\n"
        "print(first.validate_python({'resultType': 'task', 'taskId': 'a'}).task_id)\n"
        "print(first.validate_python({'content': []}).content)"
    )
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert printed.splitlines() == ["True False", "a", "[]"]


@pytest.mark.parametrize(
    ("before", "words"),
    [
        ([], ["tools"]),
        (["tools"], ["policy"]),
        ([], ["gateway"]),
        (["-m", "scripted:replies.json", "--record", "record.jsonl", "Hi"], ["-m", "scripted:record.jsonl", "Hi"]),
    ],
    ids=["a server", "stored tools", "the gateway", "a recording"],
)
def test_whatever_needs_the_sdk_first_leaves_its_models_unbuilt(
    tmp_path: Path, before: list[str], words: list[str]
) -> None:
    write_config(tmp_path, {"time": {"command": "mcp-server-time"}}, ["Hello."])
    if before:
        assert dial_chat(tmp_path, *before).returncode == 0
    program = (
        "import sys\n"
        "class Watch:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'mcp_types':\n"
        "            from pydantic import BaseModel\n"
        "            print('deferred:', BaseModel.model_config.get('defer_build', False), file=sys.stderr)\n"
        "sys.meta_path.insert(0, Watch())\n"
        "from dial_client.cli import main; sys.exit(main())"
    )
    command = [sys.executable, "-c", program, *words]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=environment(tmp_path),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )
    assert [line for line in done.stderr.splitlines() if line.startswith("deferred: ")] == ["deferred: True"]


def test_right_arguments_for_a_plain_schema_do_not_load_the_validator() -> None:
    program = (
        "import sys; from dial_client.schema.argument_check import ArgumentCheck\n"
        "check = ArgumentCheck({'type': 'object', 'properties': {'a': {'type': 'integer'}}, 'required': ['a']})\n"
        "print(check.find_problems({'a': 1}), 'jsonschema_rs' in sys.modules)\n"
        "print(check.find_problems({}), 'jsonschema_rs' in sys.modules)"
    )
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert printed.splitlines() == ["[] False", "['\"a\" is a required property'] True"]
