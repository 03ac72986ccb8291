"""The process of the embedded model: llama.cpp's server on a loopback port, for one host.

The module imports nothing of this package, so that the process starts quickly. Its arguments are the weights (a GGUF
file), a chat template (empty for the file's own), the tokens of the context window, and the number of threads.

The host writes one line to standard input, the key that every request must carry, and keeps that pipe open for as long
as it needs the model. This process exits when the pipe is closed, even if the host was killed. Once the model is ready,
the process writes one line to standard output, the server's address. If the model cannot be started, the output is the
error, without the end of a line. All other output goes to standard error: llama.cpp logs in a thread of its own, whose
lines may come late.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any


def main() -> None:
    """Serve until standard input ends."""
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, signal.SIG_DFL)  # the system then ends the process even if its threads are busy
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    model, template, context, threads = sys.argv[1:]
    key = sys.stdin.readline().strip()
    watcher = threading.Thread(target=_leave_with_the_host, daemon=True)
    watcher.start()
    try:
        server = _serve(model, template, int(context), int(threads), key)
    except (ImportError, RuntimeError) as error:
        output.write(f"{type(error).__name__}: {error} (model: {model})".replace("\n", " "))
        output.close()
        sys.exit(1)
    output.write(f"{server.listening_address}\n")
    output.close()
    watcher.join()


def _leave_with_the_host() -> None:
    while os.read(0, 4096):
        pass
    os._exit(0)  # a normal exit would wait for a decode that hangs


def _serve(model: str, template: str, context: int, threads: int, key: str) -> Any:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = model
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.api_keys = [key]
    params.cors_origins = ""
    params.ui = False
    params.offline = True
    params.verbosity = 2
    params.n_ctx = context
    # Four slots keep the four prompt prefixes in the cache: decisions with and without tools, answers with and without
    # results. All slots share the context window.
    params.n_parallel = 4
    params.kv_unified = True
    params.n_gpu_layers = 0
    params.cache_ram_mib = 256
    params.sampling.temp = 0.0
    params.use_jinja = True
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    if template:
        params.chat_template = Path(template).read_text(encoding="utf-8")
    return xllamacpp.Server(params)


if __name__ == "__main__":
    main()
