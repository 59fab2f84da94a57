"""`shuffledp reproduce`: repeat published experiments."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import typer

from common.errors import SettingsError
from deploy.commands.options import AsJson, describe_options
from deploy.simulate.experiments.key_value import key_value
from deploy.simulate.experiments.projection import projection
from deploy.simulate.experiments.rappor import exponential, states
from deploy.simulate.plot import draw
from deploy.simulate.table import Progress, Report, progress_bar, show_report
from deploy.terminal.console import terminal
from deploy.terminal.files import check_folder
from deploy.terminal.help_examples import example
from deploy.terminal.json_output import print_json

app = typer.Typer()

EXPERIMENTS: Final[Mapping[str, Callable[[int, Progress], Report]]] = {
    "rappor-states": states,
    "rappor-50-states": partial(states, n_states=50),
    "rappor-exponential": exponential,
    "projection": projection,
    "key-value": key_value,
}


@app.command(no_args_is_help=True, epilog=example("shuffledp reproduce key-value --plot pairs"))
@describe_options
def reproduce(
    experiment: Annotated[str, typer.Argument()],
    seed: Annotated[int, typer.Option(min=0)] = 1,
    plot: Path | None = None,
    json: AsJson = False,
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
    if experiment not in EXPERIMENTS:
        raise SettingsError(f"experiment must be one of: {', '.join(EXPERIMENTS)}")
    check_folder(plot)
    console = terminal(stderr=json)
    with progress_bar(console) as progress:
        report = EXPERIMENTS[experiment](seed, partial(progress, "Running"))
    show_report(report, console)
    if plot is not None:
        for written in draw(report.points, plot, title=report.title):
            console.print(f"Written to {written}.", markup=False, soft_wrap=True)
    if json:
        print_json(report.figures)
