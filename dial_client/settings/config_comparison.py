"""Compares a configuration with the text that the user trusted: what may change without a question, and what may not.

    compare_configs     two outlines -> `ConfigChange`s
    keep_trusted_parts  the new text without the changes that need a question

The author of a change may be a stranger: ``git pull`` changes a file that was trusted before. So a change is harmless
only if it is in one of the lists of this module, and each list has one of three reasons:

* The change takes something away from what the user trusted: it disables a server, shortens a list of approved or
  offered tools, marks results as untrusted, adds a rule that asks or denies.
* The change is about waiting or about when a server starts, such as a timeout. What is started stays the same.
* The key has no effect: a comment, a description, an icon.

Everything else needs a question, also a key of a later version that this module does not know. The reverse of a
harmless change is not harmless: what a server that was disabled would run was never in use. Values are compared as
they are written, so that a change of form, such as ``1`` to ``true``, counts as a change.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dial_client.messages.errors import ConfigError
from dial_client.runtime.text import fold_name
from dial_client.settings import configuration
from dial_client.settings.config_editor import find_servers_path, remove_value, set_enabled, set_value
from dial_client.settings.config_types import ConfigChange, Outline, OutlineEntry, is_enabled
from dial_client.settings.config_values import COMMENTS, TOP_KEYS, Node
from dial_client.settings.jsonc import read

# Keys of a server's entry that say when and how long the host waits, and in which turns the tools are offered.
_WAITING_KEYS = frozenset(("startupTimeout", "toolTimeout", "timeout", "backgroundAfter", "required", "lazy", "pinned"))
# Keys of other hosts that only describe a server. Further keys of other hosts, such as `trust`, may get a meaning here.
_DESCRIPTIONS = frozenset(("description", "displayName", "title", "icon", "icons", "iconUrl", "note", "notes", "tags"))
# Limits that are times. Other limits bound what a stranger's server can make the user pay for.
_LIMITS_OF_TIME = frozenset(map(fold_name, ("timeout", "toolTimeout", "toolTimeoutMax", "backgroundAfter")))
# Keys of which one value is the stricter one, with that value, and None if a missing key means the same.
_STRICT_VALUES: Mapping[str, Sequence[Any]] = {
    "trusted": (False, None),
    "instructions": (False,),
    "resources": ("user", None),
}
# The keys that together say whether a server is used.
_SWITCHES = frozenset(("enabled", "disabled"))


def compare_configs(before: Outline, after: Outline) -> list[ConfigChange]:
    """Return the changes from one configuration to another; empty if only comments, order or layout differ."""
    decides_by_name = bool({"policy", "profiles"} & (before.unknown.keys() | after.unknown.keys()))
    return [
        *_compare_servers(before.servers, after.servers, may_remove=not decides_by_name),
        *_compare_models(before.models, after.models),
        *_compare_top_keys(before, after),
    ]


def _compare_servers(
    before: Mapping[str, OutlineEntry], after: Mapping[str, OutlineEntry], *, may_remove: bool
) -> Iterator[ConfigChange]:
    """Yield the changes of servers.

    Args:
        before: The trusted servers.
        after: The servers of now.
        may_remove: False if rules or profiles name servers. If one of the user's own servers has the name of a server
            that is gone, it appears in its place, and such a rule would then allow the calls of the user's server.
    """
    for name in _join_names(before, after):
        old, new = before.get(name), after.get(name)
        if old is None or new is None:
            is_harmless = new is None and may_remove
            yield ConfigChange("server", name, "", _get_values(old), _get_values(new), is_harmless)
            continue
        if is_enabled(old) != is_enabled(new):
            key = next(iter(_SWITCHES & new.keys()), "disabled")
            yield ConfigChange("server", name, key, not is_enabled(old), not is_enabled(new), not is_enabled(new))
        for key in _join_names(old, new):
            if key not in _SWITCHES and not _are_same(old.get(key), new.get(key)):
                old_value, new_value = _get_value(old.get(key)), _get_value(new.get(key))
                yield ConfigChange("server", name, key, old_value, new_value, _is_harmless(key, old_value, new_value))


def _is_harmless(key: str, before: Any, after: Any) -> bool:
    """Return True if a change of a key of a server's entry needs no question; None is the value of a missing key."""
    if key in _WAITING_KEYS or key in _DESCRIPTIONS or key.startswith(COMMENTS):
        return True
    match key:
        case "trusted" | "instructions" | "resources":
            return after in _STRICT_VALUES[key]
        case "autoApprove":  # fewer tools run without approval
            return _is_part(after, before)
        case "enabledTools":  # fewer tools are offered; without the key all tools are
            return after is not None and (before is None or _is_part(after, before))
        case "disabledTools":
            return _is_part(before, after)
        case "untrusted":
            return after is True or _is_part(before, after)
        case _:
            return False


def _is_part(part: Any, whole: Any) -> bool:
    """Return True if all names of a list are in another list. A value that is neither a list nor missing is no part."""
    values = [[] if value is None or value is False else value for value in (part, whole)]
    if not all(isinstance(value, list) and all(isinstance(name, str) for name in value) for value in values):
        return False
    return {*values[0]} <= {*values[1]}


def _compare_models(before: Mapping[str, OutlineEntry], after: Mapping[str, OutlineEntry]) -> Iterator[ConfigChange]:
    """Yield the changes of models: each of them can decide where the conversation, and a key, are sent."""
    for name in _join_names(before, after):
        old, new = before.get(name), after.get(name)
        if old is None or new is None:
            yield ConfigChange("model", name, "", _get_values(old), _get_values(new))
            continue
        for key in _join_names(old, new):
            if not _are_same(old.get(key), new.get(key)):
                old_value, new_value = _get_value(old.get(key)), _get_value(new.get(key))
                yield ConfigChange("model", name, key, old_value, new_value, key.startswith(COMMENTS))


def _compare_top_keys(before: Outline, after: Outline) -> Iterator[ConfigChange]:
    """Yield the changes of the other keys at the top level."""
    if not _are_same(before.default_model, after.default_model):
        yield ConfigChange("key", "defaultModel", "", _get_value(before.default_model), _get_value(after.default_model))
    for name in _join_names(before.unknown, after.unknown):
        old, new = before.unknown.get(name), after.unknown.get(name)
        if _are_same(old, new):
            continue
        is_harmless = (
            name.startswith(COMMENTS)
            or name in ("startupPatience", "notify")
            or (name == "policy" and _adds_only_restrictions(_get_value(old), _get_value(new)))
            or (name == "limits" and _changes_only_times(_get_value(old), _get_value(new)))
        )
        yield ConfigChange("key", name, "", _get_value(old), _get_value(new), is_harmless)


def _adds_only_restrictions(before: Any, after: Any) -> bool:
    """Return True if rules that ask or deny are new, and all others are as before, in the same order.

    A rule that allows is never harmless to remove, either: a later one, for tainted conversations, can take its place.
    """
    old, new = before or [], after or []
    if not isinstance(old, list) or not isinstance(new, list):
        return False
    kept = [rule for rule in new if not (_is_restriction(rule) and rule not in old)]
    return _write(kept) == _write(old)


def _is_restriction(rule: Any) -> bool:
    """Return True for a rule that asks or denies."""
    return isinstance(rule, dict) and not any(fold_name(key) == "allow" for key in rule)


def _changes_only_times(before: Any, after: Any) -> bool:
    old, new = before or {}, after or {}
    if not isinstance(old, dict) or not isinstance(new, dict):
        return False
    changed = (key for key in _join_names(old, new) if _write(old.get(key)) != _write(new.get(key)))
    return all(fold_name(key) in _LIMITS_OF_TIME for key in changed)


def _join_names(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    return list(dict.fromkeys((*before, *after)))


def _get_value(node: Node | None) -> Any:
    return None if node is None else node.value


def _get_values(entry: OutlineEntry | None) -> dict[str, Any] | None:
    return None if entry is None else {key: node.value for key, node in entry.items()}


def _are_same(before: Node | None, after: Node | None) -> bool:
    return _write(_get_value(before)) == _write(_get_value(after))


def _write(value: Any) -> str:
    # As text: in Python 1, 1.0 and true are equal.
    return json.dumps(value, sort_keys=True)


def keep_trusted_parts(trusted: str | bytes, now: str | bytes, changes: Sequence[ConfigChange]) -> str:
    """Return the new text as far as the user trusts it.

    A server with a change that needs a question is disabled, and so hides a server of the same name in another file. A
    model or another key keeps its trusted value; rules that ask or deny and are new come before the trusted rules.

    Args:
        trusted: The text that the user trusted.
        now: The text of now.
        changes: All changes from the one to the other, and servers whose file of variables has changed.

    Raises:
        ConfigError: A text is not JSON, or the result would have more than the user trusts.
    """
    asked = [change for change in changes if not change.is_harmless]
    before = configuration.outline(trusted)
    text = now if isinstance(now, str) else now.decode(json.detect_encoding(now))
    for name in dict.fromkeys(change.name for change in asked if change.kind == "server"):
        text = _disable(text, name, before.servers.get(name))
    if any(change.kind == "model" for change in asked):
        text = _restore(text, "models", {name: _get_values(entry) for name, entry in before.models.items()})
    for change in asked:
        if change.kind == "key":
            text = _restore(text, change.name, _join_rules(change) if change.name == "policy" else change.before)
    # The edits of a text may go wrong, above all if its author wants it: the result is compared once more.
    after = configuration.outline(text)
    for change in compare_configs(before, after):
        is_used = change.kind != "server" or is_enabled(after.servers.get(change.name, {}))
        if is_used and not change.is_harmless:
            raise ConfigError(f"{change.place}: the parts that you trust cannot be used without this change")
    return text


def _disable(text: str, name: str, trusted: OutlineEntry | None) -> str:
    if name in configuration.outline(text).servers:
        return set_enabled(text, name, is_enabled=False)
    entry = {key: value for key, value in (_get_values(trusted) or {}).items() if key not in _SWITCHES}
    return set_value(text, [*find_servers_path(text), name], {**entry, "disabled": True})


def _restore(text: str, key: str, value: Any) -> str:
    """Return the text with the value of a key at the top level; None removes the key."""
    top, unknown = read(text).split_members(TOP_KEYS, {})
    found = {**unknown, **top}.get(key)
    written = key if found is None else str(found.keys[-1])
    if value is not None:
        return set_value(text, [written], value)
    return text if found is None else remove_value(text, [written])


def _join_rules(change: ConfigChange) -> Any:
    """Return the trusted rules, with the new rules that ask or deny before them."""
    old, new = (value if isinstance(value, list) else [] for value in (change.before, change.after))
    return [*(rule for rule in new if _is_restriction(rule) and rule not in old), *old] or None
