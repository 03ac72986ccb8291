"""The reference of the Python API: every public name, by subject."""

from __future__ import annotations

import dial_client
from dial_client import extend
from dial_client.runtime.public_names import find_modules
from site_pages.example_links import find_examples

SUBJECTS = {
    "client": ("The client", ("client", "durable", "settings")),
    "conversations": ("Conversations and stores", ("conversations", "stores")),
    "turns": ("Turns and limits", ("turns", "messages.turn_result", "messages.limits", "messages.token_usage")),
    "messages": (
        "Messages, citations and MCP Apps",
        ("messages.message", "messages.citations", "messages.mcp_apps", "messages.vendor_forms"),
    ),
    "events": ("Events", ("messages.events",)),
    "tools": ("Tools, approval and audit", ("tools", "hooks.audit")),
    "servers": ("Servers", ("servers", "hooks.server_callbacks", "hooks.owners")),
    "models": ("Models, providers and formats", ("messages.model", "providers", "hooks.middleware")),
    "errors": ("Errors", ("messages.errors",)),
}
"""The pages: each has a title, and the modules and packages whose names it lists."""
MAX_EXAMPLES = 5
"""Maximum number of links to examples of a name."""


def list_names(subject: str) -> list[str]:
    """Return the public names of a page, in order."""
    _, homes = SUBJECTS[subject]
    return sorted(name for name, home in _homes().items() if f"{home}.".startswith(tuple(f"{at}." for at in homes)))


def list_missing_names() -> list[str]:
    """Return the public names that no page lists."""
    shown = {name for subject in SUBJECTS for name in list_names(subject)}
    return sorted(set(_homes()) - shown)


def write_api_page(subject: str) -> str:
    """Return a page with a directive of mkdocstrings for each name."""
    title, _ = SUBJECTS[subject]
    lines = [f"# {title}", ""]
    for module in (dial_client, extend):
        if names := [name for name in list_names(subject) if name in module.__all__]:
            lines += [f"## From `{module.__name__}`", ""]
        for name in names:
            lines += [f"::: dial_client.{_homes()[name]}.{name}", *_options(name), "", *_examples(name)]
    return "\n".join(lines)


def write_testing_page() -> str:
    """Return the page of `dial_client.testing`."""
    from dial_client import testing

    names = (f"::: dial_client.testing.{name}" for name in testing.__all__)
    return "\n".join(["# Testing", "", "All names are imported from `dial_client.testing`.", "", *names]) + "\n"


def _options(name: str) -> list[str]:
    inherited = name in ("DialClient", "ClientOptions", "ConversationManager")
    return ["    options:", "      inherited_members: true"] if inherited else []


def _examples(name: str) -> list[str]:
    sections = find_examples().get(name, [])[:MAX_EXAMPLES]
    return [f"Examples of `{name}`: {' · '.join(section.to_link() for section in sections)}", ""] if sections else []


def list_classes_without_example() -> list[str]:
    """Return the public classes that no program of the guides uses, and whose docstring has no example."""
    shown = find_examples()
    values = {name: getattr(module, name) for module in (dial_client, extend) for name in module.__all__}
    classes = {name: value for name, value in values.items() if isinstance(value, type)}
    return sorted(
        name for name, value in classes.items() if name not in shown and "Example" not in (value.__doc__ or "")
    )


def _homes() -> dict[str, str]:
    """Return the public names, each with the module that defines it, without the name of the package."""
    modules = find_modules(dial_client.__spec__) | find_modules(extend.__spec__)
    return {name: module.removeprefix("dial_client.") for name, module in modules.items()}
