"""Show predicted needs as a table and as JSON."""

from collections.abc import Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Any, Final

from rich.console import Console, JustifyMethod
from rich.table import Table

from deploy.terminal.tables import add_columns, print_whole
from lab.planning.capacity import Demand, Workload

_COLUMNS: Final[dict[str, JustifyMethod]] = {
    "role": "left",
    **dict.fromkeys(
        ("number", "cores", "core-hours a day", "memory GB", "disk GB", "network MB/s"), "right"
    ),
}


def to_json(demands: Sequence[Demand], workload: Workload) -> dict[str, Any]:
    """Return the JSON fields; memory and disk are in bytes, network in bytes per second."""
    return {"workload": asdict(workload), "demands": [asdict(demand) for demand in demands]}


def cells(demand: Demand) -> list[str]:
    """Return the cells of a role's row."""
    return [
        demand.party,
        demand.role,
        f"{demand.processes:,}",
        *map(_rounded, (demand.cores, demand.core_hours, demand.memory / 1e9)),
        *map(_rounded, (demand.disk / 1e9, demand.network / 1e6)),
    ]


def show(demands: Sequence[Demand], workload: Workload, console: Console) -> None:
    """Print the needs of each role, and the processor time's shares of connections and tokens."""
    title = (
        f"{workload.reports_per_day:,.0f} reports a day, results in {workload.deadline_hours:g} "
        f"hours, {workload.opening_microseconds:.3g} µs per opening"
    )
    table = Table(title=title)
    add_columns(table, _COLUMNS)
    for party, of_party in groupby(demands, key=lambda demand: demand.party):
        table.add_row(party)
        for demand in of_party:
            _, role, *figures = cells(demand)
            table.add_row(f"  {role}", *figures)
    table.columns[0].no_wrap = True
    print_whole(table, console)
    total = sum(demand.core_hours for demand in demands)
    front_ends, tokens = (
        sum(demand.core_hours for demand in demands if demand.role == role) / total
        for role in ("front-ends", "tokens")
    )
    console.print(
        f"{_rounded(total)} core-hours a day in all, {front_ends:.0%} of them for the front-ends "
        f"and {tokens:.0%} for tokens. How the costs were measured: docs/operators/capacity.md.",
        highlight=False,
    )


def _rounded(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"  # noqa: PLR2004  # two digits
