"""Joins the modules of the web page into one script: one request in place of one for each module."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

_IMPORT = re.compile(r'^import (\{ [^}]+ \}) from "\./(\w+\.js)";$', re.MULTILINE)
_DYNAMIC_IMPORT = re.compile(r'\bimport\("\./(\w+\.js)"\)')
_EXPORT = re.compile(r"^export (?=(?:async )?(?:const|function\*?|class) (\w+))", re.MULTILINE)
_LOADER = """\
// The modules of the page in one file. Each is also served under its own name, for readers.
const loaded = {};
export const importModule = (name) => (loaded[name] ??= modules[name]());
const modules = {
"""


def join_modules(sources: Mapping[str, str], entry: str) -> str:
    """Return one module that does what the module `entry` does, and exports the function `importModule`.

    Each module becomes a function that runs when the module is first imported, as ECMAScript orders it: a module runs
    after the modules that it imports. A module that is imported while the page runs is in the script, and runs then.
    An import whose name is not a literal, or that names a file in a folder, stays an import of that file.

    Args:
        sources: The file names of modules to their texts. The imports of a module have the form that the first two
            patterns of this file name; its exports are declarations. No module imports itself through others.
        entry: The name of the module that the page runs.
    """
    functions = (_to_function(name, sources[name]) for name in _find_imported(sources, entry))
    return f'{_LOADER}{"".join(functions)}}};\nawait importModule("{entry}");\n'


def _find_imported(sources: Mapping[str, str], entry: str) -> Iterator[str]:
    """Yield the names of the modules that the entry needs, itself included."""
    found, pending = {entry}, [entry]
    while pending:
        name = pending.pop()
        yield name
        text = sources[name]
        imported = [statement[2] for statement in _IMPORT.finditer(text)] + _DYNAMIC_IMPORT.findall(text)
        pending += dict.fromkeys(module for module in imported if module not in found)
        found.update(imported)


def _to_function(name: str, source: str) -> str:
    """Return a property whose name is that of the module, and whose value is a function that returns the exports."""
    exports = ", ".join(_EXPORT.findall(source))
    body = _EXPORT.sub("", source)
    body = _IMPORT.sub(r'const \1 = await importModule("\2");', body)
    body = _DYNAMIC_IMPORT.sub(r'importModule("\1")', body)
    return f'"{name}": async () => {{\n{body}return {{ {exports} }};\n}},\n'
