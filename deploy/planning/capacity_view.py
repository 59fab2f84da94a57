"""Show predicted needs as a table, as JSON and as one sentence."""

from dataclasses import asdict
from typing import Any, Final

from rich.console import Console, JustifyMethod
from rich.table import Table

from deploy.planning.capacity import Capacity, Workload
from deploy.terminal.tables import add_columns, print_whole

_COLUMNS: Final[dict[str, JustifyMethod]] = {
    "party": "left",
    "role": "left",
    **dict.fromkeys(
        ("average cores", "peak cores", "memory GB", "disk GB", "network MB/s"), "right"
    ),
}


def advice(capacity: Capacity) -> str:
    """Return a sentence on the smallest deployment that suffices."""
    front_ends = f"{capacity.front_ends:,} front-end{'s' * (capacity.front_ends > 1)}"
    sentence = {
        "one machine": "One machine for each party suffices, with SQLite and a process pool",
        "front-ends": f"{front_ends} and PostgreSQL at the shuffler suffice, without an engine",
        "engine": (
            f"An engine of {capacity.workers:,} workers at each party is needed, with {front_ends} "
            "and PostgreSQL at the shuffler"
        ),
    }[capacity.deployment]
    disks = [name for name, multiple in capacity.limits.items() if "disk" in name and multiple > 1]
    return sentence + "; enlarge the " * bool(disks) + " and the ".join(disks) + "."


def to_json(capacity: Capacity, workload: Workload) -> dict[str, Any]:
    """Return the JSON fields; memory, disk and network are in bytes and bytes per second."""
    return {"workload": asdict(workload), **asdict(capacity), "advice": advice(capacity)}


def show(capacity: Capacity, workload: Workload, console: Console) -> None:
    """Print each role's needs, the durations, what runs out first, and the deployment."""
    table = Table(title=f"Needs of {workload.reports_per_day:,.0f} reports a day")
    add_columns(table, _COLUMNS)
    table.columns[1].no_wrap = True
    for demand in capacity.demands:
        table.add_row(
            demand.party,
            demand.role,
            f"{demand.average_cores:,.2f}",
            f"{demand.cores:,.2f}",
            f"{demand.memory / 1e9:,.1f}",
            f"{demand.disk / 1e9:,.1f}",
            f"{demand.network / 1e6:,.1f}",
        )
    print_whole(table, console)
    scarcest, multiple = next(iter(capacity.limits.items()))
    console.print(
        f"Front-ends: {capacity.front_ends:,}. Workers at each party: {capacity.workers:,}, which "
        f"finish a batch in {capacity.batch_seconds / 3600:.2g} of {workload.deadline_hours:g} "
        f"hours.\nFirst to run out on one machine: {scarcest}; "
        f"the need is {multiple:.2g} times the "
        f"supply.\n{advice(capacity)}",
        highlight=False,
    )
