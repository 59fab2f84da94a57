"""Who is promised what, as a table: of a plan, a task, or a result."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from common.guarantee import Guarantee, rounded_up
from deploy.foreign_text import shown


def show_promises(guarantees: Sequence[Guarantee], title: str, console: Console) -> None:
    """Print guarantees, a row a coalition, figures rounded up."""
    table = Table(title=title, show_lines=True)
    for heading in ("against", "epsilon", "delta", "if"):
        table.add_column(heading)
    for guarantee in guarantees:
        table.add_row(
            shown(guarantee.coalition),
            rounded_up(guarantee.epsilon),
            rounded_up(guarantee.delta),
            shown("; ".join(guarantee.assumptions)),
        )
    console.print(table)
