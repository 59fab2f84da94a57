import dataclasses
import math

import pytest

from deploy.pages.citation import bibtex, citation
from deploy.pages.result_page import result_page
from tests.support.result_pages import collected, guarantee

_COLLECTED = collected(size=100)


def test_a_citation_names_the_task_the_size_and_the_cost() -> None:
    """What a reader of a paper needs to find the result, and to judge it."""
    written = citation(_COLLECTED.result, _COLLECTED.task, version="1.2.3")

    digest = _COLLECTED.result.task_digest.hex()
    for part in (digest, "100 values", "20,000 users", "shuffledp 1.2.3", "0.1082", "1e-06"):
        assert part in written


def test_no_name_ends_its_field() -> None:
    """The population is called `staff & {guests}`; its braces and its ampersand are text."""
    written = bibtex(_COLLECTED.result, _COLLECTED.task, version="1.2.3")

    assert r"staff \& \{guests\}" in written


def test_no_date_is_made_up() -> None:
    """A deadline is none: a batch that fills is released long before it; it is a parameter."""
    written = bibtex(_COLLECTED.result, _COLLECTED.task, version="1.2.3")

    assert "year" not in written
    assert "2096" not in written
    page = result_page(_COLLECTED.result, _COLLECTED.task, version="1.2.3")
    assert 1 == page.count("2096")
    assert "2 October 2096, 07:06 UTC" in page.partition('id="parameters"')[2]


@pytest.mark.parametrize(
    ("local_epsilon", "shown"),
    [
        (4.0, "epsilon = 4 against shuffler and analyzer together"),
        (math.inf, "no guarantee against shuffler and analyzer together"),
    ],
)
def test_the_local_epsilon_stands_beside_the_central_one(local_epsilon: float, shown: str) -> None:
    """Each with the coalition against which it holds."""
    result = dataclasses.replace(_COLLECTED.result, local_epsilon=local_epsilon)
    written = citation(result, _COLLECTED.task, version="1")

    assert f"delta = 1e-06 against the analyzer; {shown}" in written


@pytest.mark.parametrize("name", ["a\\}", "}}, evil = {", "100%", "~^_#$"])
def test_every_special_character_is_escaped(name: str) -> None:
    """Braces stay paired, and no percent sign begins a comment."""
    task = dataclasses.replace(_COLLECTED.task, population=name)

    written = bibtex(_COLLECTED.result, task, version="1")

    bare = written.replace("\\{", "").replace("\\}", "")
    assert bare.count("{") == bare.count("}")
    assert "%" not in written.replace("\\%", "")
    assert "evil = {" not in written


def test_without_a_guarantee_none_is_claimed() -> None:
    """An infinite ε is not a number to be cited."""
    result = dataclasses.replace(
        _COLLECTED.result, guarantees=(guarantee("analyzer", math.inf, 1e-6),)
    )

    assert "without a guarantee" in citation(result, None, version="1")
