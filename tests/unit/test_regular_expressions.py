"""Regular expressions in schemas of servers: a pattern that a provider cannot compile is described in words."""

from __future__ import annotations

import pytest

from tests.inner import AdaptedSchema, adapt

PATTERNS: list[tuple[str, bool]] = [
    (r"^[\w.-]{1,64}$", True),
    (r"^(?!__)(?:a|b)+?\d{2,}(?<=x)$", True),
    (r"\u00e9\x41\/\.", True),
    (r"[*+?]+\++\\+", True),
    ("", True),
    ("[a-z", False),
    ("(", False),
    ("*", False),
    (r"a{2,1}", False),
    (r"^\p{L}+$", False),  # valid in ECMA 262, but OpenAI refuses it
    (r"(?<name>a)", False),  # valid in ECMA 262, but OpenAI refuses it
    (r"(?P<name>a)", False),  # syntax of Python, as in the next patterns
    (r"(?i)abc", False),
    (r"(?#why)a", False),
    (r"\Aabc\Z", False),
    (r"a++", False),
    (r"[ab]{1,2}+", False),
    ("a" * 20_000, False),
    ("(" * 9_000, False),
]


@pytest.mark.parametrize(("pattern", "is_taken"), PATTERNS, ids=[pattern[:20] or "empty" for pattern, _ in PATTERNS])
def test_a_pattern_is_sent_only_if_every_provider_can_compile_the_pattern(pattern: str, is_taken: bool) -> None:
    adapted = adapt({"properties": {"a": {"type": "string", "pattern": pattern, "description": "A name."}}})
    [schema] = adapted.schema["properties"].values()
    if is_taken:
        assert schema == {"type": "string", "pattern": pattern, "description": "A name."}
        assert adapted.dropped_patterns == ()
    else:
        assert schema.keys() == {"type", "description"}
        assert schema["description"].startswith(f"A name.\nMust match the regular expression {pattern[:600]}")
        assert len(schema["description"]) < 700
        assert adapted.dropped_patterns == (pattern,)


def test_property_name_patterns_that_providers_cannot_compile_are_described_and_still_allowed() -> None:
    names = {r"^\p{L}$": {"type": "string"}, "^x-": {"type": "integer"}}
    inner = {"type": "object", "patternProperties": names, "additionalProperties": False}
    adapted = adapt(inner | {"properties": {"a": inner}})
    rule = r'Properties whose names match the regular expression ^\p{L}$ must satisfy {"type":"string"}'
    kept = {"type": "object", "patternProperties": {"^x-": {"type": "integer"}}}
    assert adapted == AdaptedSchema(
        kept | {"properties": {"a": kept | {"description": rule}}}, (rule,), (r"^\p{L}$", r"^\p{L}$")
    )


def test_a_property_that_is_called_pattern_is_no_pattern() -> None:
    schema = {"type": "object", "properties": {"pattern": {"type": "string", "default": "("}}}
    assert adapt(schema) == AdaptedSchema(schema)
