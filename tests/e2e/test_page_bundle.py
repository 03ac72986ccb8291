"""The page's modules joined into one script: run by Node as the browser runs them."""

from __future__ import annotations

import re
from urllib.parse import quote

import pytest

from tests.inner import FOLDER, join_later, join_modules
from tests.support.javascript import find_texts
from tests.support.node_program import needs_node, run_node

pytestmark = pytest.mark.once

LOG = 'export const log = [];\nlog.push("log");\n'
PAGE = {path.name: path.read_text("utf-8") for path in FOLDER.glob("*.js")}


def join_in_one(sources: dict[str, str]) -> str:
    """Return the page's script, in which the address of the second script is its text."""
    later = quote(join_later(sources, "app.js"))
    return join_modules(sources, "app.js", "later.js").replace("./later.js", f"data:text/javascript,{later}")


@needs_node
def test_imported_modules_run_first_and_once() -> None:
    sources = {
        "app.js": 'import { log } from "./log.js";\nimport { first } from "./first.js";\n'
        'import { second } from "./second.js";\nlog.push("app", first, second());\nconsole.log(JSON.stringify(log));\n',
        "first.js": 'import { log } from "./log.js";\nlog.push("first");\n'
        "export const first = await Promise.resolve(1);\n",
        "second.js": 'import { first } from "./first.js";\nimport { log } from "./log.js";\nlog.push("second");\n'
        "export function second() {\n  return first + 1;\n}\n",
        "log.js": LOG,
    }
    assert run_node(join_in_one(sources)) == ["log", "first", "second", "app", 1, 2]


@needs_node
def test_a_module_imported_later_runs_then_and_shares_loaded_modules() -> None:
    sources = {
        "app.js": 'import { log } from "./log.js";\nconst load = () => import("./later.js");\nlog.push("app");\n'
        "const { Later } = await load();\nawait load();\nnew Later();\nconsole.log(JSON.stringify(log));\n",
        "later.js": 'import { log } from "./log.js";\nlog.push("later");\nexport class Later {\n  constructor() {\n'
        '    log.push("made");\n  }\n}\n',
        "log.js": LOG,
    }
    assert run_node(join_in_one(sources)) == ["log", "app", "later", "made"]


@needs_node
def test_names_without_an_export_are_private() -> None:
    sources = {
        "app.js": 'import { one, two } from "./numbers.js";\nconst hidden = 3;\n'
        "console.log(JSON.stringify([one(), await two().next(), hidden]));\n",
        "numbers.js": "const hidden = 1;\nexport const one = () => hidden;\n"
        "export async function* two() {\n  yield 2;\n}\n",
    }
    assert run_node(join_in_one(sources)) == [1, {"value": 2, "done": False}, 3]


def test_the_scripts_of_the_page_have_exactly_the_imported_modules_each_in_one_of_them() -> None:
    script, later = join_modules(PAGE, "app.js", "later.js"), join_later(PAGE, "app.js")
    assert re.findall(r"^(?:import|export)\b[^=]*", script + later, re.MULTILINE) == [
        "export const importModule ",
        "export const build ",
    ]
    assert re.findall(r'\bimport\("\./(\w+\.js)"', script + later) == ["later.js"]
    first, second = (re.findall(r'^"(\w+\.js)": async', text, re.MULTILINE) for text in (script, later))
    joined = {*first, *second}
    assert len(joined) == len(first) + len(second)
    assert {"app.js", "dom.js"} <= {*first}
    assert {"tool_form.js", "settings_panel.js"} <= {*second}
    assert set(re.findall(r'importModule\("(\w+\.js)"\)', script + later)) == joined
    assert joined.isdisjoint({"service_worker.js", "highlight_worker.js", "diagram_frame.js", "strings_de.js"})
    assert [name for name, text in PAGE.items() if "importModule" in text] == []


def test_the_script_has_no_lines_of_comments_and_all_texts_of_the_modules() -> None:
    script = join_modules(PAGE, "app.js", "later.js") + join_later(PAGE, "app.js")
    assert re.findall(r"^ *(?://|/\*).*", script.partition("const modules")[2], re.MULTILINE) == []
    loaded = re.findall(r'^"(\w+\.js)": async', script, re.MULTILINE)
    texts = [text.value for name in loaded for text in find_texts(PAGE[name]) if not text.value.endswith(".js")]
    assert len(texts) > 1_000
    joined = {text.value for text in find_texts(script)}
    assert [text for text in texts if text not in joined] == []
