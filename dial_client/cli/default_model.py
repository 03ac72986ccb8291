"""Reads the configuration with its model; if neither an option nor the configuration names one, a model is chosen."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from dial_client.cli.load_settings import find_model_name, open_model, read_settings
from dial_client.cli.options import Options
from dial_client.cli.streams.error_stream import warn_once
from dial_client.cli.streams.tty import Unanswered, can_ask_user
from dial_client.cli.trust.folder_texts import read_folder_texts
from dial_client.messages.errors import NoModel
from dial_client.messages.model import Provider
from dial_client.providers import pin_address
from dial_client.providers.presets import KEYS_OF_PRESETS, MODELS_OF_KEYS
from dial_client.runtime.safe_text import to_one_line
from dial_client.settings.config_types import ModelProfile, Settings

# The keys of vendors that have no usual model.
_KEYS_WITHOUT_MODEL = {*KEYS_OF_PRESETS.values()} - {*MODELS_OF_KEYS}


async def read_with_model(options: Options) -> tuple[Settings, Provider]:
    """Read the configuration, and open its model; if none is named, a default model is found.

    Raises:
        ConfigError: The configuration is wrong or not trusted, or the model cannot be found or opened.
    """
    return await open_default_model(options, await read_settings(options))


async def open_default_model(options: Options, settings: Settings) -> tuple[Settings, Provider]:
    """Open the model of a configuration, and return both; if none is named, a default model is found.

    Raises:
        NoModel: No model was found.
        ConfigError: The model cannot be opened.
    """
    settings = await with_default_model(options, settings)
    provider = open_model(options, settings)
    if is_demonstration(options, settings) and not options.quiet:
        from dial_client.cli.models.model_proposals import describe_demonstration

        warn_once(f"local is {describe_demonstration()}. -m NAME chooses another; dial-chat models lists them")
    return settings, provider


def is_demonstration(options: Options, settings: Settings) -> bool:
    """Return True if the embedded model with its usual weights answers."""
    name = find_model_name(options, settings)
    return name == "local" and name not in settings.models and not os.environ.get("DIAL_LOCAL_MODEL")


async def with_default_model(options: Options, settings: Settings, environ: Mapping[str, str] = os.environ) -> Settings:
    """Return the settings with a model: of an agent, of a key, of a local server that runs, or the user's choice.

    The agent is that of ``--agent``, the key one in the environment.
    The embedded model is only used if the user names or chooses it: its weights are a download of 490 MB.

    Args:
        options: The options of the command line.
        settings: The configuration; returned unchanged if it or an option names a model.
        environ: The environment variables.

    Raises:
        NoModel: No model was found, and the user cannot be asked, or names none.
    """
    if find_model_name(options, settings):
        return settings
    if options.agent:
        texts = await read_folder_texts(options, settings)
        models = [agent.model for agent in texts.agents if agent.name == options.agent]
        if models and isinstance(models[0], str):
            return replace(settings, default_model=models[0])
    for variable, model in MODELS_OF_KEYS.items():
        # An endpoint at OPENAI_BASE_URL seldom has the usual model of OpenAI: it is asked for its models.
        if environ.get(variable) and not pin_address(model, environ):
            warn_once(f"no model is named: using {model}, because {variable} is set (-m chooses another)")
            return replace(settings, default_model=model)
    from dial_client.cli.models.model_proposals import find_offers

    # Unasked, a question goes to no vendor of whose models none is the usual one: any model of a list may be chosen.
    unasked = {name: value for name, value in environ.items() if name not in _KEYS_WITHOUT_MODEL}
    proposal = (await find_offers(unasked)).usual
    if proposal is not None and proposal.name.partition(":")[0] != "local":
        about = to_one_line(proposal.about, 200)
        warn_once(f"no model is named: using {proposal.name}, {about} (-m chooses another)")
    elif can_ask_user():
        from dial_client.cli.init_questions import ask_for_model

        proposal = None
        with suppress(Unanswered):
            proposal = await ask_for_model(
                await find_offers(environ), "Which model answers? None is named, no key is set."
            )
    else:
        proposal = None
    if proposal is None:
        has_embedded = importlib.util.find_spec("xllamacpp") is not None
        embedded = "-m local is the embedded model, a demonstration of 490 MB" if has_embedded else "-m ollama:ID"
        raise NoModel(
            "no model is named, no key is set, and no local model server runs",
            hint=f"give -m NAME ({embedded}), set OPENAI_API_KEY or ANTHROPIC_API_KEY, "
            "or start Ollama, LM Studio, llama.cpp or vLLM; dial-chat init asks for any other endpoint",
        )
    profile = {**proposal.profile}
    if "api_key" in profile:  # ${VARIABLE}, as init writes it
        profile["api_key"] = environ.get(profile["api_key"].removeprefix("${").removesuffix("}"))
    own = {proposal.name: ModelProfile(proposal.name, **profile)} if profile else {}
    return replace(settings, default_model=proposal.name, models={**settings.models, **own})
