"""Docstrings are parsed into a description and the descriptions of the parameters."""

from __future__ import annotations

import pytest

from tests.inner import Docstring, parse_docstring

GOOGLE = """Plan a trip.

    It may take long.

    Args:
        place (str, optional): The place, and
            more on it: all of it.
        **rest: The rest.

    Returns:
        The plan.

    Raises:
        ValueError: There is no such place.
    """
NUMPY = """Plan a trip.

    It may take long.

    Parameters
    ----------
    place : str, optional
        The place, and
        more on it: all of it.
    **rest
        The rest.

    Returns
    -------
    The plan.

    Raises
    ------
    ValueError
        there is no such place.
    """
SPHINX = """Plan a trip.

    It may take long.

    :param str place: The place, and
        more on it: all of it.
    :type place: str
    :param rest: The rest.
    :returns: The plan.
    :raises ValueError: there is no such place.
    """


@pytest.mark.parametrize("text", [GOOGLE, NUMPY, SPHINX], ids=["google", "numpy", "sphinx"])
def test_google_numpy_and_sphinx_docstrings_are_parsed_alike(text: str) -> None:
    docstring = parse_docstring(text)
    assert dict(docstring.parameters) == {"place": "The place, and more on it: all of it.", "rest": "The rest."}
    assert docstring.description.split() == [
        "Plan",
        "a",
        "trip.",
        "It",
        "may",
        "take",
        "long.",
        "Returns:",
        "The",
        "plan.",
    ]


def test_several_parameters_may_share_a_description() -> None:
    docstring = parse_docstring("Add.\n\nParameters\n----------\na, b : int\n    A number.\n")
    assert dict(docstring.parameters) == {"a": "A number.", "b": "A number."}


def test_a_docstring_of_no_known_style_is_a_description() -> None:
    for text in (
        "",
        "Add: a and b.",
        "Args:\nnothing is indented",
        "Add.\n\nArgs:",
        ":unknown: field",
        "Note: x\n\n- a: b",
    ):
        assert parse_docstring(text) == Docstring(text), text


def test_text_after_a_section_belongs_to_the_description() -> None:
    docstring = parse_docstring("Add.\n\nArgs:\n    a: A number.\n\nThat is all.")
    assert docstring == Docstring("Add.\n\nThat is all.", {"a": "A number."})
