"""Readers of the pages find every experiment."""

import pytest

from deploy.commands.reproduce import _PLAYS
from tests.support.commands import ROOT, help_text

_PAGE = "docs/researchers/experiments.md"


@pytest.mark.parametrize("experiment", _PLAYS)
def test_an_experiment_is_on_its_page_and_in_the_help(experiment: str) -> None:
    """In a table that says what is run."""
    assert experiment in " ".join(help_text("shuffledp reproduce").replace("-\n", "-").split())
    rows = (ROOT / _PAGE).read_text(encoding="utf-8").splitlines()
    cells = [row.split(" | ")[0] for row in rows if row.startswith("| ")]
    assert any(f"`{experiment}`" in cell for cell in cells)


def test_the_help_promises_no_figures_of_papers() -> None:
    """None are printed; it names the page that says which claims hold."""
    told = " ".join(help_text("shuffledp reproduce").split())

    assert "compare" not in told
    assert _PAGE in told
