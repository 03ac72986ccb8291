"""Merging of two configurations."""

from __future__ import annotations

from dial_client.settings.config_types import Settings


def merge_settings(base: Settings, over: Settings) -> Settings:
    """Return both configurations as one.

    A server or model of `over` completely replaces the entry of the same name. The rules of `base` are tried first,
    and a rule that denies applies at any position: `over` cannot allow a call that `base` asks about or denies.
    """
    fallback_models = over.fallback_models
    # Fallback models belong to the default model of the same file, not to a default model of another file.
    if fallback_models is None and over.default_model is None:
        fallback_models = base.fallback_models
    return Settings(
        servers={**base.servers, **over.servers},
        models={**base.models, **over.models},
        default_model=base.default_model if over.default_model is None else over.default_model,
        path=base.path if over.path is None else over.path,
        warnings=tuple(dict.fromkeys((*base.warnings, *over.warnings))),
        policy=(*base.policy, *over.policy),
        system=base.system if over.system is None else over.system,
        profiles=tuple(dict.fromkeys((*base.profiles, *over.profiles))),
        base_paths=(*over.sources, *base.sources)[1:],  # the first source is `path`
        startup_patience=base.startup_patience if over.startup_patience is None else over.startup_patience,
        fallback_models=fallback_models,
    )
