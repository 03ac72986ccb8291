"""The command ``models``: the models that can run on this machine."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import asdict

from dial_client.cli import options as o
from dial_client.cli.options import ExitCode
from dial_client.cli.typer_apps import SETTINGS, more, run_command


@more.command(context_settings=SETTINGS)
def models(as_json: o.AsJson = False, verbose: o.Verbose = False) -> None:
    """List the models that can run on this machine: installed ones, and those that fit into its memory, with sizes."""

    def choose() -> Callable[[], Awaitable[int]]:
        return lambda: _list_models(as_json=as_json)

    run_command(choose, o.Options.of_command(locals()))


async def _list_models(*, as_json: bool) -> int:
    from dial_client.local.inventory import local_models, memory_bytes
    from dial_client.local.weights import cache_folder

    found, memory = local_models(cache_folder()), memory_bytes()
    rows = [asdict(model) | {"fits": None if memory is None else model.fits(memory)} for model in found]
    if as_json:
        print(json.dumps({"memory": memory, "models": rows}, indent=2))
        return ExitCode.ANSWERED
    width = max(len(model.name) for model in found)
    for model in found:
        fits = "" if memory is None else "fits" if model.fits(memory) else "too large for this machine"
        state = "installed" if model.installed else "not installed"
        about = f"{model.size / 1e9:5.1f} GB  {state:<13}  {fits:<26}  {model.about}"
        print(f"{model.name:<{width}}  {about}".rstrip())
    if memory is not None:
        print(f"\nThis machine has {memory / 1e9:.1f} GB of memory.")
    print("Any other GGUF file: -m local:PATH.gguf, or -m local:hf:OWNER/NAME[/FILE] for one of the model hub.")
    return ExitCode.ANSWERED
