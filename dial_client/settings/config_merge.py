"""Merging of two configurations."""

from __future__ import annotations

from dial_client.settings.config_types import Settings


def merge_settings(base: Settings, over: Settings) -> Settings:
    """Return both configurations as one.

    A server or model of `over` completely replaces the entry of the same name. The rules of `base` are tried first,
    and a rule that denies applies at any position: `over` cannot allow a call that `base` asks about or denies.
    """
    return Settings(
        {**base.servers, **over.servers},
        {**base.models, **over.models},
        base.default_model if over.default_model is None else over.default_model,
        base.path if over.path is None else over.path,
        tuple(dict.fromkeys((*base.warnings, *over.warnings))),
        (*base.policy, *over.policy),
        base.system if over.system is None else over.system,
        tuple(dict.fromkeys((*base.profiles, *over.profiles))),
        (*over.sources, *base.sources)[1:],
        base.startup_patience if over.startup_patience is None else over.startup_patience,
        # Fallback models belong to the default model of the same file, not to a default model of another file.
        base.fallback_models if over.fallback_models is None and over.default_model is None else over.fallback_models,
    )
