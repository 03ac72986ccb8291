"""``python -m tests.recordings add FILE``: adds the answers of a recording to the corpus.

The text of the recording is added to the repository unchanged: record only text that may be published.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import anyio

from tests.inner import Api, ApiReply, read_file
from tests.recordings.corpus import FOLDER, Answer, read_answer, to_reply
from tests.recordings.sdk_readings import SdkReader


def to_row(reply: ApiReply, name: str) -> dict[str, Any]:
    """Return the row of the corpus for a recorded answer."""
    text = reply.body.decode("utf-8", "replace")
    status = {} if reply.status == 200 else {"status": reply.status}
    try:
        return {"name": name, **status, "body": json.loads(text)}
    except ValueError:
        return {"name": name, **status, "sse": text}


async def add(path: Path, name: str, why: str, folder: Path = FOLDER) -> list[str]:
    """Add the answers of a recording to the corpus, and return a line of text about each answer.

    Args:
        path: A recording of ``dial-chat --record``.
        name: The name of the answers in the corpus; several answers are numbered.
        why: The reason why this package is right, required for answers that it parses differently from the SDK.
        folder: The folder of the corpus.
    """
    replies = [reply for reply in read_file(path).replies if isinstance(reply, ApiReply)]
    lines = []
    for number, reply in enumerate(replies, 1):
        row = to_row(reply, name if len(replies) == 1 else f"{name}, {number}")
        if reply.breaks is not None or reply.hang:
            lines.append(f"left out: {row['name']}: the answer is incomplete")
            continue
        answer = Answer(**row)
        differences = (await read_answer(reply.api, to_reply(answer, reply.api))).list_differences(
            SdkReader(reply.api).read(answer)
        )
        if differences and not why:
            lines.append(f"left out: {row['name']}: --why is missing; the SDK differs: {differences}")
            continue
        row |= {"why": why, "ours": differences} if differences else {}
        with (folder / f"{Api(reply.api).value}.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
        lines.append(f"added: {row['name']}")
    return lines or ["nothing to add: the file has no recorded answer of an endpoint"]


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.recordings", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="add")
    command = commands.add_parser("add", help="add the answers of a recording")
    command.add_argument("file", type=Path, help="a file that `dial-chat --record FILE` has written")
    command.add_argument("--name", help="name of the answers in the corpus; by default the name of the file")
    command.add_argument("--why", default="", help="why this package is right if the SDK differs")
    options = parser.parse_args()
    lines = anyio.run(add, options.file, options.name or options.file.stem, options.why)
    sys.stdout.write("\n".join([*lines, ""]))


if __name__ == "__main__":
    main()
