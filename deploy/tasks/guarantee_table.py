"""Print the guarantees of a plan, a task or a result as a table."""

from collections.abc import Sequence
from typing import Final

from rich.console import Console
from rich.table import Table

from common.messages.guarantee import Guarantee, rounded_up
from deploy.terminal.escape import escaped
from deploy.terminal.tables import add_columns, print_whole

CLAIM_ROOM: Final = (
    "A task claims slightly more than the computed epsilon, so that the claim holds on every "
    "device that recomputes it."
)


def print_guarantees(guarantees: Sequence[Guarantee], title: str, console: Console) -> None:
    """Print a row per guarantee, with epsilon and delta rounded up."""
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
