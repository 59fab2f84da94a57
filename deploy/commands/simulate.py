"""`shuffledp simulate`."""

import importlib
import json as json_writer
import math
import sys
from pathlib import Path
from typing import Annotated, Any, Final, get_args

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from common.errors import SettingsError
from common.protocols import Kind, protocol_named, protocols_of
from deploy.commands.example import example
from deploy.commands.options import AsJson
from deploy.datasets.catalogue import SHIPPED
from deploy.datasets.choice import dataset as read_dataset
from deploy.datasets.sample_people import sample_people
from deploy.planning import plan_view as planner
from deploy.simulate import kind_table, table
from deploy.simulate.kinds import KindSweep, run_kinds
from deploy.simulate.remarks import remarks
from deploy.simulate.row import Accounting, Row
from deploy.simulate.sweep import Sweep, central_lines, run
from deploy.tasks.value_parser import parse_kind
from deploy.terminal.console import terminal
from deploy.terminal.output_file import check_folder, write

app = typer.Typer()

_NAMES: Final = ", ".join(protocols_of("categorical"))
_EPSILONS: Final = tuple(round(0.1 * tenth, 1) for tenth in range(1, 11))
_COMPARED: Final = ("murs", "hp-sdp", "mixdump", "od-hp")
"""What the OD-HP paper compares."""
_TIGHT: Final = "tight"
"""Whose parameters are used unless others are asked for."""
_RUN_TIME: Final = 5
"""The figure that compares times: every message is made for it."""
_FIGURES: Final = {
    3: ("ipums1940_city", _EPSILONS),
    4: ("kosarak_reconstructed", _EPSILONS),
    5: ("ipums1940_city", (0.1,)),
}


@app.command(
    short_help="Compare protocols on a data set.",
    epilog=example(
        "shuffledp simulate --protocol murs --protocol od-hp --central-epsilon 0.2 "
        "--accounting tight --repeat 5 --plot comparison",
    ),
)
def simulate(
    protocol: Annotated[
        list[str] | None,
        typer.Option(
            help=f"One of {', '.join(protocols_of('categorical'))}; may be repeated.  [od-hp; of "
            "other kinds all]"
        ),
    ] = None,
    central_epsilon: Annotated[
        list[float] | None, typer.Option(help="Target; may be repeated.  [0.2]")
    ] = None,
    delta: Annotated[float, typer.Option(help="Of every target.")] = 1e-6,
    task_kind: Annotated[
        str,
        typer.Option(
            help="What is collected: categorical, or string, mean, vector, key-value, from the "
            "people whom the demo asks."
        ),
    ] = "categorical",
    dataset: Annotated[
        str | None,
        typer.Option(
            help=f"{', '.join(SHIPPED)}, zipf:SIZE[,EXPONENT], uniform:SIZE, or a CSV or Parquet "
            "file with columns value, or value and count; of items only.  [ipums1940_city]"
        ),
    ] = None,
    users: Annotated[
        int | None, typer.Option(help="How many of its people take part.  [all]")
    ] = None,
    accounting: Annotated[
        str, typer.Option(help="Parameters by: published, tight or both.")
    ] = _TIGHT,
    repeat: Annotated[int, typer.Option(min=1, help="Collections of each setting.")] = 3,
    messages_cap: Annotated[
        float | None,
        typer.Option(help="Most messages expected of a user.  [5, or as many as a bound takes]"),
    ] = None,
    local_cap: Annotated[
        str | None, typer.Option(help="Most local epsilon of a report.  [none]")
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, help="Chooses every draw: the same number, the same run.")
    ] = 1,
    plot: Annotated[
        Path | None,
        typer.Option(help="Write a figure, as PNG and as SVG, under this name; of items only."),
    ] = None,
    csv: Annotated[Path | None, typer.Option(help="Write every figure as CSV.")] = None,
    figure_number: Annotated[
        int | None,
        typer.Option(
            "--figure",
            help="The OD-HP paper's figure 3 (IPUMS), 4 (Kosarak) or 5 (run time): its protocols "
            "and targets, by both accountings; written to figureN.png and .svg unless --plot says "
            "where.",
        ),
    ] = None,
    json: AsJson = False,
) -> None:
    """Run protocols on a data set, unsealed, and compare their errors with theory."""
    targets, names, source = central_epsilon, protocol, dataset
    kind = parse_kind(task_kind)
    _check_unasked(
        kind,
        dataset=dataset,
        plot=plot,
        figure=figure_number,
        accounting=None if accounting == _TIGHT else accounting,
        messages_cap=messages_cap,
    )
    chosen = _accountings("both" if figure_number is not None else accounting)
    if figure_number is not None:
        if figure_number not in _FIGURES:
            raise SettingsError(f"figure is {figure_number}; there are 3, 4 and 5")
        data, epsilons = _FIGURES[figure_number]
        targets, names, source = targets or list(epsilons), names or list(_COMPARED), source or data
        plot = plot or Path(f"figure{figure_number}")
    for path in (plot, csv):
        check_folder(path)
    for name in names or []:
        protocol_named(name)
    if kind != "categorical":
        kinds = KindSweep(
            people=sample_people(kind, users, seed),
            protocols=tuple(names or protocols_of(kind)),
            central_epsilons=tuple(targets or [0.2]),
            delta=delta,
            local_cap=planner.parse_cap(local_cap),
            repeats=repeat,
            seed=seed,
        )
        _simulate_kind(kinds, csv, json=json)
        return
    people = read_dataset(source or "ipums1940_city", users)
    sweep = Sweep(
        dataset=people,
        n_users=int(people.counts.sum()) if users is None else users,
        protocols=tuple(names or ["od-hp"]),
        central_epsilons=tuple(targets or [0.2]),
        delta=delta,
        accounting=chosen,
        repeats=repeat,
        messages_cap=math.inf if messages_cap is None else messages_cap,
        local_cap=planner.parse_cap(local_cap),
        seed=seed,
        one_by_one=figure_number == _RUN_TIME,
    )
    console = terminal(stderr=json)
    rows = _run(sweep, console)
    if csv is not None:
        write(csv, table.as_csv(rows))
        console.print(f"Written to {csv}.", markup=False, soft_wrap=True)
    if plot is not None:
        _plot(sweep, rows, plot, console)
    if json:
        fields = [row.as_json() for row in rows]
        sys.stdout.write(json_writer.dumps(fields, indent=1, allow_nan=False) + "\n")
        return
    table.show(rows, people.title, console)
    if all(row.task is None for row in rows):
        raise SettingsError("every setting was left out")


def _check_unasked(kind: Kind, **options: object) -> None:
    """Refuse what is for items alone, of any other kind."""
    for name, given in options.items():
        if given is not None and kind != "categorical":
            option = name.replace("_", "-")
            raise SettingsError(f"--{option} is for categorical data; --task-kind is {kind}")


def _simulate_kind(sweep: KindSweep, csv: Path | None, *, json: bool) -> None:
    console = terminal(stderr=json)
    for name in sweep.protocols:
        if protocol_named(name).kind != sweep.people.kind:
            raise SettingsError(f"the protocol {name} is not for {sweep.people.kind} data")
    with _bar(console) as bar:
        shown = bar.add_task("Collecting")
        rows = run_kinds(sweep, lambda done, total: bar.update(shown, completed=done, total=total))
    if csv is not None:
        write(csv, kind_table.as_csv(rows))
        console.print(f"Written to {csv}.", markup=False, soft_wrap=True)
    if json:
        fields = [row.as_json() for row in rows]
        sys.stdout.write(json_writer.dumps(fields, indent=1, allow_nan=False) + "\n")
        return
    kind_table.show(rows, sweep.people, console)
    if all(row.design is None for row in rows):
        raise SettingsError("every setting was left out")


def _accountings(text: str) -> tuple[Accounting, ...]:
    known: tuple[Accounting, ...] = get_args(Accounting)
    if text == "both":
        return known
    found = tuple(each for each in known if each == text)
    if not found:
        raise SettingsError("accounting must be published, tight or both")
    return found


def _bar(console: Console) -> Progress:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=console, transient=True)


def _run(sweep: Sweep, console: Console) -> list[Row]:
    with _bar(console) as bar:
        shown = bar.add_task("")
        return run(
            sweep,
            lambda what, done, total: bar.update(
                shown, description=what, completed=done, total=total
            ),
        )


def _plot(sweep: Sweep, rows: list[Row], path: Path, console: Console) -> None:
    try:
        figure: Any = importlib.import_module("deploy.simulate.figure")
    except ModuleNotFoundError as error:
        raise SettingsError(
            "a figure needs matplotlib: install shuffledp with its extra research "
            "(pip install 'shuffledp[research]'), or matplotlib beside it"
        ) from error
    central = {epsilon: central_lines(sweep, epsilon) for epsilon in sweep.central_epsilons}
    drawn = figure.draw(
        rows,
        central,
        title=f"{sweep.dataset.title}: {sweep.n_users:,} users, "
        f"{len(sweep.dataset.counts):,} values, δ = {sweep.delta:g}, {sweep.repeats} repeats",
        remarks=remarks(rows),
    )
    for written in figure.save(drawn, path):
        console.print(f"Written to {written}.")
