"""`shuffledp capacity`: predict the machines that a number of reports per day needs."""

from typing import Annotated

import typer

from deploy.commands.options import AsJson
from deploy.planning import capacity_view
from deploy.planning.capacity import Workload, predict
from deploy.planning.opening_time import measure_opening_seconds
from deploy.terminal.console import terminal
from deploy.terminal.help_examples import example
from deploy.terminal.json_output import print_json

app = typer.Typer()


@app.command(
    epilog=example(
        "shuffledp capacity --reports-per-day 1e8 --deadline 6",
        "shuffledp capacity --reports-per-day 1e9 --deadline 6 --bulk-share 1 "
        "--opening-microseconds 50 --json",
    )
)
def capacity(
    reports_per_day: Annotated[float, typer.Option(help="Sealed reports, dummies included.")],
    deadline: Annotated[
        float, typer.Option(help="Hours, such as 6, from a batch's close to its result.")
    ],
    reports_per_user: Annotated[
        int, typer.Option(help="Reports of one user, dummies included.")
    ] = 2,
    bulk_share: Annotated[
        float,
        typer.Option(
            help="Share of submissions that relays send in bulk; other devices connect themselves."
        ),
    ] = 0.0,
    peak: Annotated[
        float, typer.Option(help="Peak rate of submissions, as a multiple of the average.")
    ] = 3.0,
    opening_microseconds: Annotated[
        float | None,
        typer.Option(
            help="Time in which a core opens a sealed report.  [measured here, for a second]"
        ),
    ] = None,
    json: AsJson = False,
) -> None:
    """Predict the cores, memory, disk and network of each party for a day's reports.

    A day's reports are one batch. The prediction scales measured costs; see
    docs/operators/capacity.md.
    """
    if opening_microseconds is None:
        opening_microseconds = 1e6 * measure_opening_seconds()
    workload = Workload(
        reports_per_day=reports_per_day,
        deadline_hours=deadline,
        opening_microseconds=opening_microseconds,
        reports_per_user=reports_per_user,
        bulk_share=bulk_share,
        peak=peak,
    )
    demands = predict(workload)
    if json:
        print_json(capacity_view.to_json(demands, workload))
        return
    capacity_view.show(demands, workload, terminal())
