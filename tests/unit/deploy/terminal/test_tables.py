"""Figures of tables are whole on narrow terminals: `2` for 20 is another promise."""

import io
from collections.abc import Callable
from typing import Final

import pytest
from rich.console import Console

from common.messages.guarantee import REPLACE_ONE, Guarantee
from common.messages.ledger_entry import verify
from deploy.results import ledger
from deploy.tasks import population_budgets
from deploy.tasks.guarantee_table import print_guarantees
from tests.support.budgets import population_budgets as budgets
from tests.support.ledger_entries import first_entry

_POPULATION: Final = "people-of-the-northern-district"
_ENTRY: Final = first_entry(population=_POPULATION, n_users=1_234_567, n_refused=89_012)
_GUARANTEE: Final = Guarantee(
    coalition="shuffler+analyzer",
    epsilon=20.01,
    delta=1.001e-10,
    neighbouring=REPLACE_ONE,
    theorem="it",
    assumptions=("nobody else is honest, whatever anybody may say of them",),
)


def _at(width: int, show: Callable[[Console], None]) -> str:
    written = io.StringIO()
    show(Console(file=written, width=width))
    return written.getvalue()


_TABLES: Final[dict[str, tuple[Callable[[Console], None], tuple[str, ...]]]] = {
    "ledger": (
        lambda console: ledger.show([_ENTRY], verify([_ENTRY]), [], console),
        ("1,234,567", "89,012", "d1d1d1d1d1d1"),
    ),
    "budgets": (
        lambda console: population_budgets.show([budgets(_POPULATION, spent=0.70001)], console),
        ("1.2", "1e-05", "0.7001", "0.4999", "0.5834"),
    ),
    "promises": (
        lambda console: print_guarantees([_GUARANTEE], "title", console),
        ("20.01", "1.001e-10"),
    ),
}


@pytest.mark.parametrize("width", [40, 60, 80, 120])
@pytest.mark.parametrize("name", _TABLES)
def test_every_figure_is_whole(name: str, width: int) -> None:
    """Text is folded instead, or lines are longer than the terminal."""
    show, figures = _TABLES[name]
    words = _at(width, show).replace("│", " ").split()

    for figure in figures:
        assert figure in words
