"""`shuffledp simulate` and `reproduce`: compare protocols, and repeat published experiments."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import typer

from shuffledp.common.errors import SettingsError, UsageError
from shuffledp.common.protocols import protocols_of
from shuffledp.deploy.commands import options
from shuffledp.deploy.datasets.names import IPUMS_1940_CITY, SHIPPED
from shuffledp.deploy.terminal.console import print_written, terminal
from shuffledp.deploy.terminal.files import write
from shuffledp.deploy.terminal.json_output import print_json

app = typer.Typer()

_EPSILONS: Final = tuple(round(0.1 * tenth, 1) for tenth in range(1, 11))
_COMPARED: Final = ("murs", "hp-sdp", "mixdump", "od-hp")
"""Protocols that the OD-HP paper compares."""
_FOR_ITEMS, _SHIPPED = map(", ".join, (protocols_of("categorical"), SHIPPED))
_RUN_TIME: Final = 5
"""Number of the figure of run times, for which every report must be simulated."""
_FIGURES: Final = {
    3: (IPUMS_1940_CITY, _EPSILONS),
    4: ("kosarak_reconstructed", _EPSILONS),
    5: (IPUMS_1940_CITY, (0.1,)),
}


@options.command(
    app,
    "shuffledp simulate --protocol murs --protocol od-hp --central-epsilon 0.2 "
    "--accounting tight --repeat 5 --plot comparison",
    "shuffledp simulate --task-kind ordered --central-epsilon 1 --messages-cap 4",
    "shuffledp simulate --protocol sageo --protocol sbin --central-epsilon 1 --shufflers 2",
    "shuffledp simulate --task-kind table --dataset people.csv --column age,region",
    "shuffledp simulate --task-kind mean --dataset sleep.csv --column hours",
)
def simulate(
    context: typer.Context,
    protocol: list[str] | None = None,
    central_epsilon: list[float] | None = None,
    delta: float = 1e-6,
    task_kind: options.TaskKind = "categorical",
    dataset: str | None = None,
    column: str | None = None,
    empty_values: options.Flag = False,
    value_range: Annotated[str | None, typer.Option("--range")] = None,
    users: options.OptionalWhole = None,
    buckets: int = 1024,
    attribute_sizes: str = "",
    accounting: str | None = None,
    repeat: Annotated[int | None, typer.Option(min=1)] = None,
    messages_cap: float | None = None,
    local_cap: str = "none",
    shufflers: int = 1,
    coalition_epsilon: float | None = None,
    seed: Annotated[int, typer.Option(min=0)] = 1,
    by_value: options.Flag = False,
    plot: options.OutputName = None,
    csv: options.OptionalOutput = None,
    figure_number: Annotated[int | None, typer.Option("--figure")] = None,
    json: options.AsJson = False,
) -> None:
    """
    Simulate protocols on a data set, without encryption, and compare errors with theory.

    Options:
        protocol: One of {_FOR_ITEMS}, hierarchy for ordered data; repeatable.  [od-hp; with two
            shufflers sbin, sageo; for other kinds all]
        central_epsilon: Target epsilon against the analyzer; repeatable.  [0.2]
        delta: Delta of every target.
        dataset: A CSV or Parquet file; for items also {_SHIPPED}, zipf:SIZE[,EXPONENT],
            uniform:SIZE.  [ipums1940_city; or the demo's people; zipf:50000 for open dictionaries]
        column: Column of values in the file, or several, such as age,region, whose values are
            joined; for tables, one for each attribute. If the file has a column named count, each
            row is a value and its count; otherwise each row is a person.  [value]
        empty_values: Count an empty cell as a value: an empty text, or no keys. Otherwise rows
            without a value are left out and counted.
        value_range: Range of numbers, such as 0:24; a number outside it is an error.  [that of the
            file, or wider if they are almost equal]
        users: Number of people to use.  [all]
        buckets: Number of buckets, for ordered data.
        attribute_sizes: Number of values of each attribute, such as 20,20,5, of synthetic people.
        accounting: Bounds for parameters: published, tight or both; for categorical data.  [tight]
        repeat: Collections per setting.  [5 to 30: more of small data]
        messages_cap: Maximum expected messages per user; for categorical and ordered data, numbers
            as digits and tables.  [5, or as many as a bound needs; 7 a number for digits]
        local_cap: Maximum local epsilon of a report, or none.
        shufflers: Number of shufflers, 1 or 2; two for sageo, sbin, digits and tables with their
            noise.
        coalition_epsilon: Target epsilon against the analyzer with either of two shufflers.  [4]
        seed: Random seed; the same seed repeats the run.
        by_value: Show the true figure of every value beside its estimates; always shown for few
            values.
        plot: Write a figure under this name, as PNG and SVG.
        csv: Write every figure as CSV.
        figure_number: The OD-HP paper's figure 3 (IPUMS), 4 (Kosarak) or 5 (run time): its
            protocols and targets, with both accountings. Written to figureN.png and .svg, or to
            --plot.
    """
    from shuffledp.deploy.datasets.sources import dataset as read_dataset
    from shuffledp.deploy.tasks.value_parser import parse_range
    from shuffledp.lab.simulate import table
    from shuffledp.lab.simulate.plot import comparison, draw
    from shuffledp.lab.simulate.populations import SIMULATED_KINDS, Asked
    from shuffledp.lab.simulate.sweep import run, sweep_of

    kind, targets, names, source = task_kind, central_epsilon, protocol, dataset
    options.check_kinds(context)
    if figure_number not in {None, *_FIGURES}:
        raise UsageError(f"figure is {figure_number}; it must be 3, 4 or 5")
    if figure_number is not None:
        shipped, epsilons = _FIGURES[figure_number]
        targets, names = targets or list(epsilons), names or list(_COMPARED)
        source = source or shipped
        accounting, plot = "both", plot or Path(f"figure{figure_number}")
    source = source or SIMULATED_KINDS[kind].dataset
    if source is None and {column, value_range} != {None}:
        raise UsageError("--column and --range need a file; use --dataset")
    if source is not None and attribute_sizes:
        raise UsageError("--attribute-sizes is for synthetic people; a data set has its own")
    data = None if source is None else read_dataset(source, users, column, empty=empty_values)
    span = None if value_range is None else parse_range(value_range)
    sweep = sweep_of(
        Asked(kind, data, users, span, buckets, seed, attribute_sizes),
        names or (),
        targets or (),
        accounting=accounting or "tight",
        repeats=repeat,
        messages_cap=messages_cap,
        shufflers=shufflers,
        coalition_epsilon=coalition_epsilon,
        delta=delta,
        local_cap=options.parse_cap(local_cap),
        one_by_one=figure_number == _RUN_TIME,
    )
    console = terminal(stderr=json)
    with table.progress_bar(console) as progress:
        found = run(sweep, progress)
    rows = [replace(row, refusal=options.as_options(context, row.refusal)) for row in found]
    written = list[Path]()
    if csv is not None:
        write(csv, table.as_csv(rows))
        written.append(csv)
    if plot is not None:
        people = sweep.population
        title = f"{people.title}: {people.n_users:,} users, δ = {delta:g}, {sweep.repeats} repeats"
        written += draw(comparison(rows), plot, title=title)
    print_written(written, console)
    if json:
        print_json([row.as_json(by_value=by_value) for row in rows])
        return
    table.show(rows, console, by_value=by_value)
    if all(row.task is None for row in rows):
        raise SettingsError("every setting was skipped")


@options.command(app, "shuffledp reproduce key-value --plot pairs", no_args_is_help=True)
def reproduce(
    experiment: Annotated[str, typer.Argument()],
    seed: Annotated[int, typer.Option(min=0)] = 1,
    plot: options.OutputName = None,
    json: options.AsJson = False,
) -> None:
    """
    Repeat a paper's experiment, without encryption, and print the results.

    docs/researchers/experiments.md compares them with the papers' claims.

    Options:
        experiment: rappor-states or rappor-50-states (COVID-19 cases by US state),
            rappor-exponential (100 texts among 200 candidates), projection (Multi-RPHM, Multi-HM
            and better baselines; a few minutes), or key-value (PrivKV and PrivKVM).
        seed: Random seed; the same seed repeats the run.
        plot: Write a figure under this name, as PNG and SVG.
    """
    from shuffledp.lab.simulate import table
    from shuffledp.lab.simulate.experiments.catalogue import EXPERIMENTS
    from shuffledp.lab.simulate.plot import draw

    if experiment not in EXPERIMENTS:
        raise UsageError(f"experiment must be one of: {', '.join(EXPERIMENTS)}")
    console = terminal(stderr=json)
    with table.progress_bar(console) as progress:
        report = EXPERIMENTS[experiment](seed, partial(progress, "Running"))
    table.show_report(report, console)
    if plot is not None:
        print_written(draw(report.points, plot, title=report.title), console)
    if json:
        print_json(report.figures)
