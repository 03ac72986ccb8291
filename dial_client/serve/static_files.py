"""Serves the web page: the files that ``page`` has at the server's start, compressed if the browser accepts gzip.

The page loads its modules as one script, ``bundle.js``, and those that it imports while it runs, such as the
settings, as a second one when it needs the first of them. The address of the second script has its hash: a page of an
earlier release, which stayed open while the server was updated, gets no script that does not fit. Scripts and styles
are served without comments and indentation. Each module is also served under its own name.
"""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from starlette.requests import Request
from starlette.responses import Response

from dial_client.serve.http_messages import HttpError
from dial_client.serve.security import ASSETS, FRAME_HEADERS, FRAME_SCRIPTS

_IMPORT = re.compile(r'^import (\{ [^}]+ \}) from "\./(\w+\.js)";$', re.MULTILINE)
_DYNAMIC_IMPORT = re.compile(r'\bimport\("\./(\w+\.js)"\)')
_EXPORT = re.compile(r"^export (?=(?:async )?(?:const|function\*?|class) (\w+))", re.MULTILINE)
# Lines that hold nothing but a comment. They are a sixth of what the browser would load.
_COMMENT = re.compile(r"^[ \t]*(?://[^\n]*|/\*\*[\s\S]*?\*/)\n", re.MULTILINE)
# The indentation of a line. No text of a module has more than one line.
_INDENTATION = re.compile(r"^[ \t]+", re.MULTILINE)
_STYLE_COMMENT = re.compile(r"/\*[\s\S]*?\*/\n?")
_LOADER = """\
// The modules of the page in one file. Each is also served under its own name, for readers.
const loaded = {};
const load = async (name) => {
if (!(name in modules)) Object.assign(modules, (await import("./LATER").catch(miss)).build(importModule));
return modules[name]();
};
const miss = (error) => {
throw Object.assign(error, { isScriptMissing: true });
};
const forget = (name, error) => {
delete loaded[name];
throw error;
};
export const importModule = (name) => (loaded[name] ??= load(name).catch((error) => forget(name, error)));
const modules = {
"""


def join_modules(sources: Mapping[str, str], entry: str, later: str) -> str:
    """Return one module that does what the module `entry` does, and exports the function `importModule`.

    Each module becomes a function that runs when the module is first imported, as ECMAScript orders it: a module runs
    after the modules that it imports. A module that is imported while the page runs is in the script of `join_later`.
    Lines that hold only a comment are left out, and so is the indentation.
    An import whose name is not a literal, or that names a file in a folder, stays an import of that file.

    Args:
        sources: The file names of modules to their texts. The imports of a module have the form that the first two
            patterns of this file name; its exports are declarations. No module imports itself through others.
        entry: The name of the module that the page runs.
        later: The address of the script of `join_later`, relative to the first script.
    """
    functions = (_to_function(name, sources[name]) for name in _find_imported(sources, [entry]))
    return f'{_LOADER.replace("LATER", later)}{"".join(functions)}}};\nawait importModule("{entry}");\n'


def join_later(sources: Mapping[str, str], entry: str) -> str:
    """Return one module with the modules that are imported while the page runs, and the modules that these need.

    Its function ``build`` takes ``importModule`` of the page's script. Arguments are those of `join_modules`.
    """
    first = set(_find_imported(sources, [entry]))
    pending, found = list(first), set(first)
    while pending:
        imported = [name for name in _DYNAMIC_IMPORT.findall(sources[pending.pop()]) if name not in found]
        reached = [name for name in _find_imported(sources, imported) if name not in found]
        found.update(reached)
        pending += reached
    functions = (_to_function(name, sources[name]) for name in sorted(found - first))
    return f"export const build = (importModule) => ({{\n{''.join(functions)}}});\n"


def _find_imported(sources: Mapping[str, str], entries: Iterable[str]) -> Iterator[str]:
    """Yield the names of the modules that these modules need when they begin, themselves included."""
    pending = list(dict.fromkeys(entries))
    found = set(pending)
    while pending:
        name = pending.pop()
        yield name
        imported = [statement[2] for statement in _IMPORT.finditer(sources[name])]
        pending += dict.fromkeys(module for module in imported if module not in found)
        found.update(imported)


def _to_function(name: str, source: str) -> str:
    """Return a property whose name is that of the module, and whose value is a function that returns the exports."""
    exports = ", ".join(_EXPORT.findall(source))
    body = _INDENTATION.sub("", _EXPORT.sub("", _COMMENT.sub("", source)))
    body = _IMPORT.sub(r'const \1 = await importModule("\2");', body)
    body = _DYNAMIC_IMPORT.sub(r'importModule("\1")', body)
    return f'"{name}": async () => {{\n{body}return {{ {exports} }};\n}},\n'


FOLDER = Path(__file__).parent / "page"
# The folder of third-party files. Its ``manifest.json`` lists their versions, licences and hashes.
VENDOR = "vendor"
# The scripts of the page and of the page of shared conversations, each with the module that it runs and the script that
# has the modules for later.
BUNDLE = "bundle.js"
_BUNDLES = {BUNDLE: ("app.js", "later_bundle.js"), "shared_bundle.js": ("shared.js", "shared_later_bundle.js")}
_LATER_BUNDLES = {later: entry for entry, later in _BUNDLES.values()}
# The page that shows a shared conversation.
SHARED_PAGE = "shared.html"
# The service worker. A header lets it intercept requests for the page itself, which is outside of its folder.
SERVICE_WORKER = "service_worker.js"
# The document that draws diagrams, in an opaque origin.
FRAME = "diagram_frame.html"
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".webmanifest": "application/manifest+json",
}
# Minimum size in bytes of a file that is compressed.
_MIN_COMPRESSED = 1_000
_LEVEL = 9


@dataclass(frozen=True, slots=True)
class _Content:
    """A content, the bytes of the files that it is made of, and its compressed form, empty if the content is small."""

    sources: tuple[bytes, ...]
    plain: bytes
    compressed: bytes
    version: str
    """The hash of the content."""

    @property
    def etag(self) -> str:
        """The header that names the content."""
        return f'"{self.version}"'


# The contents that were read, by folder: to join and compress them takes a tenth of the start of a service.
_CONTENTS: dict[Path, dict[str, _Content]] = {}


class StaticFiles:
    """Serves the files of the web page. Requested names are looked up in a table, never joined to a path."""

    def __init__(self, folder: Path = FOLDER) -> None:
        files = [*sorted(folder.glob("*")), *sorted((folder / VENDOR).rglob("*"))]
        self._files: dict[str, tuple[Path, ...]] = {
            file.relative_to(folder).as_posix(): (file,) for file in files if file.suffix in _TYPES
        }
        scripts = tuple(file for file in files if file.suffix == ".js" and file.parent == folder)
        for bundle, (entry, later) in _BUNDLES.items():
            if entry in self._files:
                self._files |= {bundle: scripts, later: scripts}
        self._contents = _CONTENTS.setdefault(folder, {})

    async def send_index(self, request: Request) -> Response:
        """Respond to ``GET /``."""
        return self._respond("index.html", request)

    async def send_page(self, name: str, request: Request) -> Response:
        """Respond with a page that has a path of its own."""
        return self._respond(name, request)

    async def send_asset(self, request: Request) -> Response:
        """Respond to ``GET /assets/{name}``."""
        return self._respond(request.path_params["name"], request)

    def _respond(self, name: str, request: Request) -> Response:
        if name not in self._files:
            raise HttpError(404, "there is no such file", "not_found")
        content = self._read(name)
        if name in _LATER_BUNDLES and request.url.query not in ("", content.version):
            raise HttpError(404, "this script was replaced: reload the page", "not_found")
        headers = {**_build_headers(name), "etag": content.etag, "vary": "accept-encoding"}
        if request.headers.get("if-none-match") == content.etag:
            return Response(status_code=304, headers=headers)
        if content.compressed and "gzip" in request.headers.get("accept-encoding", ""):
            return Response(content.compressed, headers=headers | {"content-encoding": "gzip"})
        return Response(content.plain, headers=headers)

    def _read(self, name: str) -> _Content:
        """Return a content; that of the last request if its files have not changed. Third-party files are read once."""
        cached = self._contents.get(name)
        if cached is not None and name.startswith(f"{VENDOR}/"):
            return cached
        files = self._files[name]
        sources = tuple(file.read_bytes() for file in files)
        if cached is None or cached.sources != sources:
            plain = sources[0]
            if name in _BUNDLES or name in _LATER_BUNDLES:
                texts = {file.name: source.decode() for file, source in zip(files, sources, strict=True)}
                if (entry := _LATER_BUNDLES.get(name)) is not None:
                    plain = join_later(texts, entry).encode()
                else:
                    entry, later = _BUNDLES[name]
                    plain = join_modules(texts, entry, f"{later}?{self._read(later).version}").encode()
            elif name.endswith(".css") and not name.startswith(f"{VENDOR}/"):
                plain = _INDENTATION.sub("", _STYLE_COMMENT.sub("", plain.decode())).encode()
            compressed = gzip.compress(plain, _LEVEL, mtime=0) if len(plain) >= _MIN_COMPRESSED else b""
            version = hashlib.sha256(plain).hexdigest()[:32]
            cached = self._contents[name] = _Content(sources, plain, compressed, version)
        return cached


def _build_headers(name: str) -> Mapping[str, str]:
    # Browsers may keep a file of the page, but must revalidate it.
    headers = {"content-type": _TYPES[PurePosixPath(name).suffix], "cache-control": "no-cache"}
    if name == FRAME:
        return headers | FRAME_HEADERS
    if name == SERVICE_WORKER:
        return headers | {"service-worker-allowed": "../"}  # relative to the script
    return headers | {"cross-origin-resource-policy": "cross-origin"} if ASSETS + name in FRAME_SCRIPTS else headers
