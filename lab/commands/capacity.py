"""`shuffledp capacity`: predict the machines that a number of reports per day needs."""

from functools import partial
from typing import Annotated

import typer

from shuffledp.deploy.commands import options

app = typer.Typer()


@options.command(
    app,
    "shuffledp capacity --reports-per-day 1e8 --deadline 6",
    "shuffledp capacity --reports-per-day 1e9 --deadline 6 --bulk-share 1 "
    "--opening-microseconds 50 --json",
)
def capacity(
    reports_per_day: float,
    deadline: float,
    reports_per_user: float = 2,
    bulk_share: float = 0.0,
    peak: float = 3.0,
    opening_microseconds: float | None = None,
    shufflers: Annotated[int, typer.Option(min=1, max=2)] = 1,
) -> options.Printed:
    """
    Predict the cores, memory, disk and network of each party for a day's reports.

    A day's reports are one batch, with a token per user. The prediction scales measured costs; see
    docs/operators/capacity.md.

    Options:
        reports_per_day: Sealed reports, dummies included.
        deadline: Hours, such as 6, from a batch's close to its result.
        reports_per_user: Average reports of one user, dummies included.
        bulk_share: Share of submissions that relays send in bulk; other devices connect themselves,
            as all do for tokens.
        peak: Peak rate of submissions, as a multiple of the average.
        opening_microseconds: Time in which a core opens a sealed report.  [measured here, for a
            second]
        shufflers: Number of shufflers of the task; the second one has the role relay.
    """
    from shuffledp.lab.planning import capacity as machines

    if opening_microseconds is None:
        opening_microseconds = 1e6 * machines.measure_opening_seconds()
    workload = machines.Workload(
        reports_per_day=reports_per_day,
        deadline_hours=deadline,
        opening_microseconds=opening_microseconds,
        reports_per_user=reports_per_user,
        bulk_share=bulk_share,
        peak=peak,
        shufflers=shufflers,
    )
    demands = machines.predict(workload)
    return machines.to_json(demands, workload), partial(machines.show, demands, workload)
