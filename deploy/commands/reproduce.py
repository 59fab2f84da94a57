"""`shuffledp reproduce`."""

import dataclasses
import importlib
import math
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Final

import numpy as np
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from common.errors import SettingsError
from deploy.commands.example import example
from deploy.commands.options import AsJson
from deploy.simulate.experiments import (
    key_value,
    projection,
    rappor_exponential,
    rappor_states,
    rappor_table,
)
from deploy.simulate.experiments.rappor_comparison import RapporComparison
from deploy.terminal.console import terminal
from deploy.terminal.json_output import dumps, number_or_text
from deploy.terminal.output_file import check_folder

app = typer.Typer()

_NO_FIGURE: Final = (
    "a figure needs matplotlib: install shuffledp with its extra research "
    "(pip install 'shuffledp[research]'), or matplotlib beside it"
)
Play = Callable[[int, Path | None, Console], Any]
"""Runs an experiment with a seed, draws it if a name is given, shows it, and gives its figures."""


@app.command(
    short_help="Run papers' experiments again.",
    epilog=example(
        "shuffledp reproduce rappor-states --plot states",
    ),
)
def reproduce(
    experiment: Annotated[
        str,
        typer.Argument(
            help="rappor-states or rappor-50-states (COVID-19 cases by US state), "
            "rappor-exponential (100 texts among 200 candidates), projection (Multi-RPHM against "
            "Multi-HM and what beats both; some minutes), or key-value (PrivKV and PrivKVM)."
        ),
    ],
    seed: Annotated[
        int, typer.Option(min=0, help="Chooses every draw: the same number, the same run.")
    ] = 1,
    plot: Annotated[
        Path | None, typer.Option(help="Write a figure, as PNG and as SVG, under this name.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Run a paper's experiment again, without sealing, and print what comes out.

    What the papers claim, and where it holds here, is in docs/researchers/experiments.md.
    """
    if experiment not in _PLAYS:
        raise SettingsError(f"experiment must be one of: {', '.join(_PLAYS)}")
    check_folder(plot)
    console = terminal(stderr=json)
    figures = _PLAYS[experiment](seed, plot, console)
    if json:
        sys.stdout.write(dumps(figures) + "\n")


def _rappor(found: RapporComparison, plot: Path | None, console: Console) -> Any:  # noqa: ANN401  # JSON
    rappor_table.show(found, console)
    if plot is not None:
        figure = _drawing("deploy.simulate.experiments.rappor_figure").draw(found)
        _save(figure, plot, console)
    return [
        {
            **{letter: float(value) for letter, value in dataclasses.asdict(line.letters).items()},
            "local_epsilon": line.local_epsilon,
            "permanent_epsilon": number_or_text(line.permanent_epsilon),
            "candidates": list(line.population.candidates),
            "people": line.population.people.tolist(),
            "counts": line.decoding.counts.tolist(),
            "standard_errors": line.decoding.standard_errors.tolist(),
            "p_values": line.decoding.p_values.tolist(),
            "detected": line.detected(strictly=True).tolist(),
            "detected_by_false_discovery_rate": line.detected(strictly=False).tolist(),
            "unexplained": line.decoding.unexplained,
            "unexplained_error": line.decoding.unexplained_error,
            "l1": line.l1,
        }
        for line in found.lines
    ]


def _projection(seed: int, plot: Path | None, console: Console) -> Any:  # noqa: ANN401  # JSON
    columns = (TextColumn("Running"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        shown = bar.add_task("")
        found = projection.run(
            np.random.default_rng(seed),
            progress=lambda done, total: bar.update(shown, completed=done, total=total),
        )
    projection.show(found, console)
    if plot is not None:
        _drawing("matplotlib")
        _save(projection.plot(found), plot, console)
    return [dataclasses.asdict(point) for point in found.points]


def _key_value(seed: int, plot: Path | None, console: Console) -> Any:  # noqa: ANN401  # JSON
    experiment = key_value.Experiment(seed=seed)
    with console.status("Collecting, iteration by iteration"):
        outcomes = key_value.run(experiment)
    key_value.show(outcomes, console)
    if plot is not None:
        title = f"PrivKV and PrivKVM: {experiment.n_users:,} people, {experiment.repeats} repeats"
        for written in key_value.plot(outcomes, plot, title):
            console.print(f"Written to {written}.", markup=False, soft_wrap=True)
    fields = [dataclasses.asdict(outcome) for outcome in outcomes]
    return [{name: _known(value) for name, value in each.items()} for each in fields]


def _known(value: Any) -> Any:  # noqa: ANN401  # JSON
    """Give nothing where there is no formula: JSON has no word for what is not a number."""
    return None if isinstance(value, float) and math.isnan(value) else value


def _drawing(module: str) -> Any:  # noqa: ANN401  # a module that is loaded for a figure only
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise SettingsError(_NO_FIGURE) from error


def _save(figure: Any, plot: Path, console: Console) -> None:  # noqa: ANN401  # matplotlib's
    for written in _drawing("deploy.simulate.figure").save(figure, plot):
        console.print(f"Written to {written}.", markup=False, soft_wrap=True)


_PLAYS: Final[Mapping[str, Play]] = MappingProxyType(
    {
        "rappor-states": lambda seed, plot, console: _rappor(
            rappor_states.run(seed), plot, console
        ),
        "rappor-50-states": lambda seed, plot, console: _rappor(
            rappor_states.run(seed, n_states=rappor_states.STATES), plot, console
        ),
        "rappor-exponential": lambda seed, plot, console: _rappor(
            rappor_exponential.run(seed), plot, console
        ),
        "projection": _projection,
        "key-value": _key_value,
    }
)
