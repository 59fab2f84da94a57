"""`shuffledp capacity`: predict the machines that a number of reports per day needs."""

from pathlib import Path
from typing import Annotated, Any, Final

import typer

from common.errors import SettingsError
from common.task.task import Task
from deploy.commands.options import AsJson
from deploy.planning import capacity_view
from deploy.planning.capacity import Resources, Through, Workload, predict
from deploy.planning.measured_costs import OPENING_RATE
from deploy.planning.opening_rate import measure_opening_rate
from deploy.tasks.value_parser import parse_numbers
from deploy.terminal.console import terminal
from deploy.terminal.files import read_file
from deploy.terminal.help_examples import example
from deploy.terminal.json_output import print_json

app = typer.Typer()

_MACHINE: Final = "machine must be CORES,MEMORY_GB,DISK_GB,NETWORK_MB/S, such as 8,32,1000,125"


@app.command(
    epilog=example(
        "shuffledp capacity --reports-per-day 1e8 --deadline 6",
        "shuffledp capacity --reports-per-day 1e9 --deadline 6 --through relays --measure",
    )
)
def capacity(
    reports_per_day: Annotated[float, typer.Option(help="Sealed reports, dummies included.")],
    deadline: Annotated[float, typer.Option(help="Hours from a batch's close to its result.")],
    through: Annotated[
        Through,
        typer.Option(help="Whether devices connect themselves, or relays send them in bulk."),
    ] = "devices",
    reports_per_user: Annotated[
        int | None, typer.Option(help="Reports of one user, dummies included.  [2, or the task's]")
    ] = None,
    task: Annotated[
        Path | None,
        typer.Option(
            help="task.json, from `shuffledp task show --save`: it sets the reports per user and "
            "their length.  [60 bytes per report]"
        ),
    ] = None,
    batches_per_day: Annotated[float, typer.Option(help="Batches that divide the reports.")] = 1.0,
    peak: Annotated[
        float, typer.Option(help="Peak rate of submissions, as a multiple of the average.")
    ] = 3.0,
    machine: Annotated[
        str, typer.Option(help="CORES,MEMORY_GB,DISK_GB,NETWORK_MB/S of one machine.")
    ] = "8,32,1000,125",
    opening_rate: Annotated[
        float, typer.Option(help="Reports that one core opens per second.")
    ] = OPENING_RATE,
    measure: Annotated[
        bool, typer.Option("--measure", help="Measure the opening rate here, for a second.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Predict cores, memory, disk and network of each party, and the deployment that suffices.

    The costs behind the prediction are measured; see docs/operators/capacity.md.
    """
    numbers = parse_numbers(machine, _MACHINE)
    if len(numbers) != 4:  # noqa: PLR2004
        raise SettingsError(_MACHINE)
    cores, memory, disk, network = numbers
    if task is not None and reports_per_user is not None:
        raise SettingsError("--task sets the reports per user; omit --reports-per-user")
    fields: dict[str, Any] = (
        {} if reports_per_user is None else {"reports_per_user": reports_per_user}
    )
    if task is not None:
        found = Task.from_bytes(read_file(task))
        fields = {name: getattr(found, name) for name in ("reports_per_user", "suite")}
        fields["report_bytes"] = found.sealed_report_bytes
    workload = Workload(
        reports_per_day=reports_per_day,
        deadline_hours=deadline,
        through=through,
        batches_per_day=batches_per_day,
        peak=peak,
        machine=Resources(cores=cores, memory=memory * 1e9, disk=disk * 1e9, network=network * 1e6),
        opening_rate=measure_opening_rate() if measure else opening_rate,
        **fields,
    )
    needed = predict(workload)
    if json:
        print_json(capacity_view.to_json(needed, workload))
        return
    capacity_view.show(needed, workload, terminal())
