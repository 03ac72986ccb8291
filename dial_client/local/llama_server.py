"""The process the embedded model runs in: llama.cpp's server on a loopback port, for one host.

Nothing of this package is imported here: the process starts in the time the runtime takes. What passes between the
two is little. The host writes one line to standard input, the key every request must carry, and keeps that pipe open
for as long as it wants the model: its end is the end of this process, however the host went. Standard output has one
line, the server's address, once the model is ready. All else goes to standard error.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any


def main() -> None:
    """Serve until standard input ends."""
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, signal.SIG_DFL)  # the system ends the process, whatever its threads are busy with
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    options = _options()
    key = sys.stdin.readline().strip()
    watcher = threading.Thread(target=_leave_with_the_host, daemon=True)
    watcher.start()
    try:
        server = _serve(options, key)
    except (ImportError, RuntimeError) as error:
        sys.exit(f"{type(error).__name__}: {error}")
    answer.write(f"{server.listening_address}\n")
    answer.close()
    watcher.join()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", help="the weights, a GGUF file")
    parser.add_argument("--template", type=Path, help="a chat template in place of the file's own")
    parser.add_argument("--context", type=int, default=8192, help="tokens of the context window")
    parser.add_argument("--threads", type=int, default=0, help="threads that decode")
    return parser.parse_args()


def _leave_with_the_host() -> None:
    while os.read(0, 4096):
        pass
    os._exit(0)  # a decode that hangs would hold up any other way out


def _serve(options: argparse.Namespace, key: str) -> Any:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = options.model
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.api_keys = [key]
    params.cors_origins = ""
    params.ui = False
    params.offline = True
    params.verbosity = 2
    params.n_ctx = options.context
    # The beginnings of decisions with and without tools, and of answers with and without results, each stay read. All
    # share the window.
    params.n_parallel = 4
    params.kv_unified = True
    params.n_gpu_layers = 0
    params.cache_ram_mib = 256
    params.sampling.temp = 0.0
    params.use_jinja = True
    if options.threads:
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = options.threads
    if options.template:
        params.chat_template = options.template.read_text(encoding="utf-8")
    return xllamacpp.Server(params)


if __name__ == "__main__":
    main()
