"""An MCP server of the standard library alone, over stdio, at 2025-11-25: it can do wrong what no SDK lets one do.

``python raw.py [BEHAVIOUR] [--log FILE] [--option VALUE …]``: what it is asked goes to FILE, a JSON line each.

Hundreds of tests start it: `argparse`, `pathlib` and `subprocess` would take a third of its start.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from types import SimpleNamespace
from typing import Any

LIFETIME = 120.0
TOOL = {"name": "echo", "description": "Says it again.", "inputSchema": {"type": "object"}}


def write(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def send(message: dict[str, Any]) -> None:
    write(json.dumps({"jsonrpc": "2.0"} | message).encode() + b"\n")


def notify(method: str, **params: Any) -> None:
    send({"method": method, "params": params})


def text(words: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": words}]}


def die(last_words: str) -> None:
    print(last_words, file=sys.stderr, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


def touch(folder: str, name: str) -> None:
    """Create an empty file."""
    with open(os.path.join(folder, name), "a", encoding="utf-8"):  # noqa: PTH118, PTH123
        pass


def count_files(folder: str) -> int:
    """Return the number of files in a folder."""
    return len(os.listdir(folder))  # noqa: PTH208


def life_in(folder: str) -> int:
    """Count this life among those of the same server, from 1."""
    touch(folder, str(time.time_ns()))
    return count_files(folder)


class Server:
    """A server that does all as it should; the behaviours below replace a method or two."""

    def __init__(self, options: Any) -> None:
        self.options = options
        self.tools: list[Any] = [TOOL]
        self.id: Any = None
        self.params: dict[str, Any] = {}

    def run(self) -> None:
        for line in sys.stdin.buffer:
            message = json.loads(line)
            self.log(message)
            self.take(message)
        self.at_eof()

    def log(self, message: dict[str, Any]) -> None:
        if self.options.log:
            with open(self.options.log, "a", encoding="utf-8") as log:  # noqa: PTH123
                log.write(json.dumps(message) + "\n")

    def take(self, message: dict[str, Any]) -> None:
        if "id" not in message:
            return
        self.id, self.params = message["id"], message.get("params", {})
        known = {"initialize": self.initialize, "tools/list": self.list, "tools/call": self.call}
        if message["method"] not in known:
            send({"id": self.id, "error": {"code": -32601, "message": "Method not found"}})
            return
        result = known[message["method"]]()
        if result is not None:
            send({"id": self.id, "result": result})

    def initialize(self) -> dict[str, Any] | None:
        info = {"name": "raw", "version": "1"}
        result = {"serverInfo": info, "instructions": "Hi."}
        return {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}} | result

    def list(self) -> dict[str, Any] | None:
        return {"tools": self.tools}

    def call(self) -> dict[str, Any] | None:
        return text(json.dumps(self.params.get("arguments")))

    def at_eof(self) -> None:
        pass


class Hangs(Server):
    def initialize(self) -> None:
        print("still thinking", file=sys.stderr, flush=True)


class ExitsAtOnce(Server):
    def run(self) -> None:
        print("starting", file=sys.stderr)
        print("the database is missing", file=sys.stderr)
        sys.exit(3)


class DiesInCall(Server):
    def list(self) -> dict[str, Any]:
        return {"tools": [TOOL | {"annotations": json.loads(self.options.hints)}]}

    def call(self) -> None:
        die("out of cheese")


class WantsRoots(Server):
    """Asks for the client's folders outside of calls, as most servers do that use them; a call returns them."""

    roots: Any = None
    waiting: Any = None

    def take(self, message: dict[str, Any]) -> None:
        if message.get("method") in ("notifications/initialized", "notifications/roots/list_changed"):
            self.roots = None
            send({"id": "roots", "method": "roots/list"})
        elif message.get("id") == "roots":
            self.roots = message.get("result") or message.get("error")
            if self.waiting is not None:
                send({"id": self.waiting, "result": text(json.dumps(self.roots))})
        else:
            super().take(message)

    def call(self) -> dict[str, Any] | None:
        if self.roots is None:
            self.waiting = self.id
            return None
        return text(json.dumps(self.roots))


class WaitsForOthers(Server):
    """Answers ``initialize`` only when ``--count`` servers have started in ``--folder``."""

    def run(self) -> None:
        touch(self.options.folder, str(os.getpid()))
        super().run()

    def initialize(self) -> dict[str, Any] | None:
        while count_files(self.options.folder) < self.options.count:
            time.sleep(0.01)
        return super().initialize()


class Chatty(Server):
    """Writes words, brackets and JSON that is no message to its standard output, and a batch."""

    def take(self, message: dict[str, Any]) -> None:
        write(b'Welcome!\n\n[INFO] {not json\n{"level": "info"}\n[1, 2]\n[\n' + b"\xef\xbb\xbf")
        super().take(message)


class NoNewline(Server):
    """Writes words without a line feed before its first answer, and its last answer without one."""

    def initialize(self) -> dict[str, Any] | None:
        write(b"Loading... ")
        return super().initialize()

    def call(self) -> None:
        write(json.dumps({"jsonrpc": "2.0", "id": self.id, "result": text("the end")}).encode())
        sys.exit(0)


class BadText(Server):
    """Sends bytes that are not UTF-8, and half of a surrogate pair."""

    def call(self) -> None:
        line = b"caf\xe9 \\ud83d!"
        write(b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"%s"}]}}\n' % (self.id, line))


class BadAnswers(Server):
    """Answers ``tools/call`` with what ``say`` holds, and the id put in."""

    def call(self) -> None:
        write(self.params["arguments"]["say"].replace("ID", str(self.id)).encode() + b"\n")


class Big(Server):
    """Answers with a text of ``size`` bytes."""

    def call(self) -> dict[str, Any]:
        return text("x" * self.params["arguments"]["size"])


class FloodsStderr(Server):
    """Writes five million bytes to its standard error, a part of them in one line, before each answer."""

    def take(self, message: dict[str, Any]) -> None:
        sys.stderr.write("y" * 2_000_000 + "\n" + ("z" * 99 + "\n") * 30_000 + "the last line\n")
        sys.stderr.flush()
        super().take(message)


class ShowsItself(Server):
    """Answers with its environment, folder, arguments and process id."""

    def call(self) -> dict[str, Any]:
        return text(
            json.dumps(
                {
                    "env": dict(os.environ),
                    "cwd": os.getcwd(),  # noqa: PTH109
                    "pid": os.getpid(),
                }
            )
        )


class LeavesChild(Server):
    """Starts a child that holds its pipes and ignores SIGTERM, says its id, and leaves it behind."""

    def call(self) -> dict[str, Any]:
        import subprocess

        ignore = "signal.signal(signal.SIGTERM, signal.SIG_IGN)"
        code = f"import signal, time; {ignore}; print('up', flush=True); time.sleep(60)"
        child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
        assert child.stdout is not None
        child.stdout.readline()
        return text(str(child.pid))


class DiesBeforeChild(Server):
    """Dies in a call and leaves a child that holds its standard output open."""

    def call(self) -> None:
        import subprocess

        subprocess.Popen(["sleep", "60"])
        os.kill(os.getpid(), signal.SIGKILL)


class Stubborn(Server):
    """Ignores the end of its input, and SIGTERM."""

    def run(self) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        super().run()

    def call(self) -> dict[str, Any]:
        return text(str(os.getpid()))

    def at_eof(self) -> None:
        time.sleep(LIFETIME)


class Refuses(Server):
    """Refuses every client, and then lives on without its input."""

    def initialize(self) -> None:
        send({"id": self.id, "error": {"code": -32603, "message": "go away"}})

    def at_eof(self) -> None:
        time.sleep(LIFETIME)


class ClosesItsPipes(Server):
    """Closes its standard ``output`` or ``input`` when told to, and lives on."""

    def call(self) -> None:
        which = self.params["arguments"]["which"]
        os.close(1 if which == "output" else 0)
        if which == "input":
            send({"id": self.id, "result": text("closed")})
        time.sleep(LIFETIME)


class NeverAnswers(Server):
    """Reports progress on a call and never gives a result."""

    def call(self) -> None:
        token = self.params.get("_meta", {}).get("progressToken")
        notify("notifications/progress", progressToken=token, progress=1, total=4, message="a quarter")


class Pages(Server):
    """Returns three pages of tools, the last with an empty cursor."""

    def list(self) -> dict[str, Any]:
        page = int(self.params.get("cursor", "0"))
        return {"tools": [TOOL | {"name": f"tool{page}"}], "nextCursor": str(page + 1) if page < 2 else ""}


class Circle(Server):
    """Returns the same page for ever."""

    def list(self) -> dict[str, Any]:
        return {"tools": self.tools, "nextCursor": "again"}


class BadTools(Server):
    """Has one good tool among some that the protocol does not allow."""

    def list(self) -> dict[str, Any]:
        bad = [{"name": "no_schema"}, {"name": "empty", "inputSchema": {}}, {"name": "text", "inputSchema": "x"}, 7]
        odd = {"name": "odd", "inputSchema": {"type": "object"}, "annotations": "none", "outputSchema": 5}
        return {"tools": [*bad, TOOL, odd, {"description": "nameless", "inputSchema": {"type": "object"}}]}


class LongDescription(Server):
    """Has a tool whose description is cut for the model."""

    def list(self) -> dict[str, Any]:
        return {"tools": [TOOL | {"description": "So it goes. " * 1_000}]}


class NoTools(Server):
    def take(self, message: dict[str, Any]) -> None:
        super().take(message | {"method": "no/tools"} if message.get("method") == "tools/list" else message)


class Grows(Server):
    """Has one more tool after each call, and says so before it answers."""

    def call(self) -> dict[str, Any] | None:
        self.tools.append(TOOL | {"name": f"tool{len(self.tools)}"})
        notify("notifications/tools/list_changed")
        return super().call()


class Announces(Server):
    """Says that its tools changed whenever it is asked for them."""

    def list(self) -> dict[str, Any] | None:
        notify("notifications/tools/list_changed")
        return super().list()


class DiesOnce(Server):
    """Dies in the calls of its first life; ``--folder`` counts its lives, ``--hints`` are its tool's annotations."""

    def run(self) -> None:
        self.life = life_in(self.options.folder)
        self.tools = [TOOL | {"annotations": json.loads(self.options.hints)}]
        super().run()

    def call(self) -> dict[str, Any] | None:
        if self.life == 1:
            die("out of cheese")
        return super().call()


class DiesWhenReady(Server):
    """Dies, in each of its lives, as soon as its tools are known."""

    def list(self) -> None:
        life_in(self.options.folder)
        send({"id": self.id, "result": {"tools": self.tools}})
        print("Traceback:\n  the disk\nis full", file=sys.stderr, flush=True)
        os._exit(4)


class LivesOnce(Server):
    """Dies in a call, and never starts again: it ends at once, or where it is told so it hangs."""

    def run(self) -> None:
        if life_in(self.options.folder) > 1:
            print("the port is taken", file=sys.stderr, flush=True)
            if self.options.hangs:
                time.sleep(LIFETIME)
            sys.exit(5)
        super().run()

    def call(self) -> None:
        die("out of cheese")


class ComesBackOther(Server):
    """Dies in the call of its first life, and has another tool in the next one."""

    def run(self) -> None:
        self.life = life_in(self.options.folder)
        if self.life > 1:
            self.tools = [TOOL | {"name": f"tool{self.life}"}]
        super().run()

    def call(self) -> dict[str, Any] | None:
        if self.life == 1:
            die("out of cheese")
        return super().call()


class BrokenOutput(Server):
    """Promises structured results and gives none."""

    def list(self) -> dict[str, Any]:
        schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
        return {"tools": [TOOL | {"outputSchema": schema}]}


KINDS: list[type[Server]] = [Server, *Server.__subclasses__()]
BEHAVIOURS = {kind.__name__: kind for kind in KINDS}


def parse_options(words: list[str]) -> SimpleNamespace:
    """Return the behaviour and its options."""
    options = SimpleNamespace(behaviour="Server", log=None, folder=None, count=None, hints="{}", hangs=False)
    rest = iter(words)
    for word in rest:
        if not word.startswith("--"):
            options.behaviour = word
            continue
        name = word[2:]
        if not hasattr(options, name):
            raise SystemExit(f"raw.py has no option {word}")
        value = name == "hangs" or next(rest)
        setattr(options, name, int(value) if name == "count" else value)
    return options


def main() -> None:
    options = parse_options(sys.argv[1:])
    end = threading.Timer(LIFETIME, os._exit, [9])
    end.daemon = True
    end.start()
    BEHAVIOURS[options.behaviour](options).run()


if __name__ == "__main__":
    main()
