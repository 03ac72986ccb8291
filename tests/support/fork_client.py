"""Runs a program by the fork server: ``python -S -E fork_client.py SOCKET [-m MODULE | FILE] …``.

The program gets the standard streams, environment and folder of this process, and is killed when this process ends.
"""

from __future__ import annotations

import json
import os
import sys
from _socket import AF_UNIX, SCM_RIGHTS, SOL_SOCKET, socket  # the module `socket` takes longer than all of this

connection = socket(AF_UNIX)
connection.connect(sys.argv[1])
environment = dict(os.environ)
job = {"arguments": sys.argv[2:], "folder": os.getcwd(), "environment": environment, "is_session": False}  # noqa: PTH109
streams = b"".join(number.to_bytes(4, sys.byteorder) for number in (0, 1, 2))
data = json.dumps(job).encode() + b"\n"
connection.sendall(data[connection.sendmsg([data], [(SOL_SOCKET, SCM_RIGHTS, streams)]) :])
# The streams are the program's alone: its reader sees its end when the program ends.
nothing = os.open(os.devnull, os.O_RDWR)
for stream in (0, 1, 2):
    os.dup2(nothing, stream)
answers = b""
while answers.count(b"\n") < 2 and (data := connection.recv(100)):
    answers += data
code = os.waitstatus_to_exitcode(int(answers.split(b"\n")[1] or b"1"))
if code < 0:
    os.kill(os.getpid(), -code)
sys.exit(code)
