"""`shuffledp series`: publish the rounds of a recurring collection, forecast and show them."""

import fcntl
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from common.errors import SettingsError, UsageError
from common.messages.ledger_entry import LedgerEntry
from common.runtime.clock import SystemClock
from common.task.specs import check_int_range
from common.version import VERSION
from deploy.commands import options
from deploy.terminal.console import print_written, terminal
from deploy.terminal.files import check_folder, write
from deploy.terminal.help_examples import AT_ANALYZER, example
from deploy.terminal.json_output import print_json

if TYPE_CHECKING:
    from common.task.draft import TaskDraft
    from deploy.clients.analyzer import OperatorClient
    from deploy.tasks.schedule import Series
app = typer.Typer()
series_app = typer.Typer(
    help="Recurring collections: a draft with a schedule, and a task for each round.",
    no_args_is_help=True,
    epilog=example("shuffledp series forecast daily.toml"),
)
app.add_typer(series_app, name="series")

Template = Annotated[
    Path, typer.Argument(help="A draft with a table [schedule] and a population, no deadline.")
]


@series_app.command(
    "publish",
    epilog=example(
        f"shuffledp series publish daily.toml {AT_ANALYZER} "
        "--shuffler-key state/shuffler/envelope.pub --token-key keys/{round}.json"
    ),
)
def publish(
    template: Template,
    analyzer: options.AnalyzerAddress,
    token_file: options.TokenFile,
    shuffler_key: options.ShufflerKey,
    token_key: Annotated[
        str,
        typer.Option(
            help="Path of the rounds' token keys, in which {round} stands for a round's number, "
            "from 1. Without it devices refuse the tasks by default."
        ),
    ] = "",
    authority: options.Authority = None,
    certificate: options.Certificate = None,
    key: options.CertificateKey = None,
    json: options.AsJson = False,
) -> None:
    """Publish the due round, if it is not published.

    Safe to repeat: run it from a timer. A missed round is reported and never published late. The
    first is refused if the population's budgets do not last for all rounds.
    """
    from common.task.draft import TaskDraft
    from deploy.clients.analyzer import OperatorClient
    from deploy.commands.task import with_keys
    from deploy.tasks.schedule import read_series

    series = read_series(template)
    if token_key and "{round}" not in token_key:
        raise UsageError("--token-key must contain {round}: each round needs a key of its own")

    def complete(number: int) -> TaskDraft:
        own_key = Path(token_key.replace("{round}", str(number))) if token_key else None
        return with_keys(series.draft_of(number), shuffler_key, own_key)

    connect = partial(OperatorClient.connect, analyzer, authority, token_file, certificate, key)
    folder = os.open(template.parent, os.O_RDONLY)  # the template may be replaced meanwhile
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)  # two runs could publish the round twice
        report = options.ask(connect, partial(publish_due, series, complete, SystemClock().now()))
    finally:
        os.close(folder)
    if json:
        print_json(report)
        return
    number, state, digest, missed, warning = report.values()
    text = f"No round is open: the series {state}."
    if digest:
        text = f"Round {number}: {state}, task {digest}."
    if missed:
        text += f" Missed, since not published in time: round {', round '.join(map(str, missed))}."
    if warning:
        text += f" Warning: {warning}"
    terminal().print(text, soft_wrap=True, highlight=False)


async def publish_due(
    series: "Series", complete: "Callable[[int], TaskDraft]", now: float, operator: "OperatorClient"
) -> dict[str, Any]:
    """
    Publish the round that is open at `now` unless it has a task, and return a report for JSON.

    `complete` returns a round's draft with others' keys. Raises BudgetError before the first round
    if the budgets do not last, and TaskError as in `Series.rounds`.
    """
    from deploy.tasks import forecast as forecasts
    from deploy.tasks import task_view
    from deploy.tasks.population_budgets import releases_to

    rounds, number = series.rounds(await operator.tasks(), now), series.open_round(now)
    current = next((each for each in rounds if each.number == number), None)
    digest, done, warning = None, "has ended" if number else "has not started", ""
    if current is not None and current.task is not None:
        digest, done = current.task.task_digest.hex(), "already published"
    elif current is not None:
        if not any(each.task for each in rounds):
            task = task_view.preview(series.draft, now=0.0)
            spent = await releases_to(series.draft.population, operator)
            costs, limits = forecasts.forecast(task, rounds, task.n_min, spent)
            forecasts.check_budget(limits, len(costs))
            warning = forecasts.shortfall(limits, len(costs))
        digest = (await operator.create_task(complete(number))).digest().hex()
        done = "published"
    missed = [each.number for each in rounds if each.state == "missed"]
    report = {"round": current and number, "state": done, "task_digest": digest, "missed": missed}
    return {**report, "warning": warning}


@series_app.command(
    "forecast",
    epilog=example(
        "shuffledp series forecast daily.toml --users 20000",
        f"shuffledp series forecast daily.toml {AT_ANALYZER}",
    ),
)
def forecast(
    template: Template,
    users: Annotated[
        int | None, typer.Option(help="Users of each round.  [n_min, which costs most]")
    ] = None,
    analyzer: options.AnalyzerAddress = "",
    token_file: Annotated[Path | None, typer.Option(help="File of the operator token.")] = None,
    authority: options.Authority = None,
    certificate: options.Certificate = None,
    key: options.CertificateKey = None,
    json: options.AsJson = False,
) -> None:
    """Compute each round's cost and the end of budgets.

    Costs are composed; a device's caps are the default ones. Needs no service. With --analyzer and
    --token-file it counts the population's releases so far, and only the rounds to come.
    """
    from analyzer.budgets import BudgetedRelease
    from deploy.clients.analyzer import OperatorClient
    from deploy.tasks import forecast as forecasts
    from deploy.tasks import task_view
    from deploy.tasks.population_budgets import releases_to
    from deploy.tasks.schedule import read_series

    series, spent = read_series(template), list[BudgetedRelease]()
    now, rounds = SystemClock().now(), series.rounds([], 0.0)
    task = task_view.preview(series.draft, now=0.0)  # checks the draft
    users = series.draft.n_min if users is None else users
    check_int_range("users", users, series.draft.n_min, series.draft.target_size)
    if analyzer:
        if token_file is None:
            raise UsageError("--analyzer needs the operator's --token-file")
        connect = partial(OperatorClient.connect, analyzer, authority, token_file, certificate, key)
        rounds = series.rounds(options.ask(connect, OperatorClient.tasks), now)
        spent = options.ask(connect, partial(releases_to, series.draft.population))
    if series.open_round(now) > series.n_rounds:
        raise SettingsError("all rounds of the series are over: set first to a later time")
    costs, lasts = forecasts.forecast(task, rounds, users, spent)
    if json:
        print_json({"earlier_releases": len(spent), "limits": lasts, "rounds": costs})
        return
    terminal().print(task_view.describe_claim(task))
    forecasts.show(costs, lasts, series.every, terminal())


@series_app.command(
    "show", epilog=example(f"shuffledp series show daily.toml {AT_ANALYZER} --html daily.html")
)
def show(
    template: Template,
    analyzer: options.AnalyzerAddress,
    token_file: options.TokenFile,
    authority: options.Authority = None,
    certificate: options.Certificate = None,
    key: options.CertificateKey = None,
    top: Annotated[int, typer.Option(min=1, help="Number of largest values.")] = 6,
    html: options.Page = None,
    json: options.AsJson = False,
) -> None:
    """Print all rounds and the smoothed values."""
    from common.task.task import Task
    from deploy.clients.analyzer import OperatorClient
    from deploy.pages.series_page import series_page
    from deploy.results.series import SeriesResults
    from deploy.tasks.schedule import read_series

    check_folder(html)
    series = read_series(template)

    async def read(operator: OperatorClient) -> SeriesResults:
        rounds = series.rounds(await operator.tasks(), SystemClock().now())
        numbers = {each.task.task_digest: each.number for each in rounds if each.task}
        released = {}
        for entry in (await operator.ledger())[0]:
            if isinstance(entry, LedgerEntry) and entry.task_digest in numbers:
                result = await operator.result(entry.task_digest)
                signed, _ = await operator.describe(entry.task_digest)
                task = Task.from_bytes(signed.task_bytes)
                released[numbers[entry.task_digest]] = (task, result, entry)
        return SeriesResults.of(rounds, top, dict(sorted(released.items())))

    connect = partial(OperatorClient.connect, analyzer, authority, token_file, certificate, key)
    results = options.ask(connect, read)
    if html is not None:
        write(html, series_page(series, results, version=VERSION))
    if json:
        print_json({"rounds": results.rows(), "values": results.columns()})
        return
    results.show(terminal())
    print_written([html], terminal())
