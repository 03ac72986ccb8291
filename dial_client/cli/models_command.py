"""The command ``models``: the models that can run on this machine, and what a model can do."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Annotated

import typer

from dial_client.cli import options as o
from dial_client.cli.options import ExitCode
from dial_client.cli.typer_apps import SETTINGS, more, run_command


@more.command(context_settings=SETTINGS)
def models(
    action: Annotated[str, typer.Argument(help="list, or test: what a model can do, by short questions.")] = "list",
    name: Annotated[str | None, typer.Argument(help="For test: the name of the model, as for -m.")] = None,
    config: o.Config = None,
    trust: o.Trust = False,
    profile: o.Profile = None,
    base_url: o.BaseUrl = None,
    tool_format: o.ToolFormat = None,
    as_json: o.AsJson = False,
    verbose: o.Verbose = False,
) -> None:
    """List the models that can run on this machine, with sizes; or test what a model can do."""
    options = o.Options.of_command(locals())

    def choose() -> Callable[[], Awaitable[int]]:
        if action == "test" and name is not None:
            from dial_client.cli.model_trials import test_model

            return lambda: test_model(options, name, as_json=as_json)
        if action != "list" or name is not None:
            from dial_client.errors import ConfigError

            raise ConfigError("which model?", hint="dial-chat models [list | test NAME]")
        return lambda: _list_models(as_json=as_json)

    run_command(choose, options)


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
