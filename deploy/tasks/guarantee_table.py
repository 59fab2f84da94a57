"""The guarantees of a plan, a task or a result as a table."""

from collections.abc import Sequence
from typing import Final

from rich.console import Console
from rich.table import Table

from common.messages.guarantee import Guarantee, rounded_up
from deploy.terminal.escape import escaped
from deploy.terminal.tables import add_columns, print_whole

CLAIM_ROOM: Final = (
    "The epsilon that a task claims is a little more than the one that is computed, so that every "
    "device that computes it again finds the claim true."
)


def print_guarantees(guarantees: Sequence[Guarantee], title: str, console: Console) -> None:
    """Print guarantees, a row a coalition, figures rounded up."""
    table = Table(title=title, show_lines=True)
    add_columns(table, {"against": "left", "epsilon": "right", "delta": "right", "if": "left"})
    for guarantee in guarantees:
        table.add_row(
            escaped(guarantee.coalition),
            rounded_up(guarantee.epsilon),
            rounded_up(guarantee.delta),
            escaped("; ".join(guarantee.assumptions)),
        )
    print_whole(table, console)
