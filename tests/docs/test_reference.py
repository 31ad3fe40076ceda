"""The reference says what the docstrings say now."""

from __future__ import annotations

from tools.reference import DOCUMENT, reference

import clew.testing
from clew import errors


def test_the_reference_is_up_to_date() -> None:
    assert DOCUMENT.read_text() == reference(), "write it anew: make docs"


def test_the_reference_names_every_public_thing() -> None:
    text = reference()
    names = [*clew.__all__, *(n for n in vars(errors) if n.endswith(("Error", "Failed")))]
    assert [name for name in names if name not in text] == []
