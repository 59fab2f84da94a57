"""`shuffledp series`: publish the rounds of a recurring collection, forecast and show them."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from shuffledp.common.errors import SettingsError, UsageError
from shuffledp.common.messages.ledger_entry import LedgerEntry
from shuffledp.common.runtime.clock import SystemClock
from shuffledp.common.task.specs import check_int_range
from shuffledp.deploy.commands import options
from shuffledp.deploy.terminal.console import print_written
from shuffledp.deploy.terminal.files import write

app = options.command_group(
    "series",
    "Repeat a task on a schedule: one draft, and a task for each round.",
    "shuffledp series forecast daily.toml",
)

Template = Annotated[
    Path, typer.Argument(help="A draft with a table [schedule] and a population, no deadline.")
]


@options.command(app, "shuffledp series publish daily.toml --token-key keys/{round}.json")
def publish(
    template: Template,
    connections: options.Connections,
    shuffler_key: options.ShufflerKey = None,
    relay_key: options.RelayKey = None,
    token_key: str = "",
) -> options.Printed:
    """
    Publish the due round, if it is not published.

    Safe to repeat: run it from a timer. A missed round is reported and never published late. The
    first is refused if the population's budgets do not last for all rounds.

    Options:
        token_key: Path of the rounds' token keys, in which {round} stands for a round's number,
            from 1. Without it devices refuse the tasks by default.
    """
    from shuffledp.common.task.draft import TaskDraft
    from shuffledp.deploy.clients.analyzer import OperatorClient
    from shuffledp.deploy.commands.publication import Publication, with_keys
    from shuffledp.deploy.commands.rounds import publish_due
    from shuffledp.deploy.tasks import drafts, schedule

    series = schedule.read_series(template)
    if token_key and "{round}" not in token_key:
        raise UsageError("--token-key must contain {round}: each round needs a key of its own")
    keyed = with_keys(series.draft, connections, shuffler_key, relay_key)

    def complete(number: int) -> TaskDraft:
        file = Path(token_key.replace("{round}", str(number))) if token_key else None
        tokens = None if file is None else drafts.read_token_key(file)
        draft = replace(series.draft_of(number), tokens=tokens, relay=keyed.relay)
        return replace(draft, shuffler_key=keyed.shuffler_key)

    async def publish_now(operator: OperatorClient) -> tuple[dict[str, Any], Publication | None]:
        now = SystemClock().now()
        schedule.check_same_time(now, await operator.now())
        return await publish_due(series, complete, now, operator)

    report, task = options.ask(connections.analyzer, publish_now)
    text = f"No round is open: the series {report['state']}."
    if task:
        text = f"Round {report['round']}: {report['state']}."
    if missed := report["missed"]:
        text += f" Missed, since not published in time: round {', round '.join(map(str, missed))}."
    if report["warning"]:
        text += f" Warning: {report['warning']}"

    def show_all(console: Console) -> None:
        console.print(text, markup=False)
        if task:
            task.show(console)

    return report, show_all


@options.command(
    app,
    "shuffledp series forecast daily.toml --users 20000",
    "shuffledp series forecast daily.toml",
)
def forecast(
    template: Template, connections: options.Connections, users: int | None = None
) -> options.Printed:
    """
    Compute each round's cost and the end of budgets.

    Costs are composed; a device's caps are the default ones. With the analyzer's
    address, it counts the population's releases so far, and only the rounds to come. Without it, or
    with --address analyzer=, it needs no service.

    Options:
        users: Users of each round.  [n_min, which costs most]
    """
    from shuffledp.analyzer.budgets import BudgetedRelease
    from shuffledp.deploy.commands.rounds import mark_expired, tasks_of
    from shuffledp.deploy.tasks import forecast as forecasts
    from shuffledp.deploy.tasks import population_budgets, schedule, task_view

    series, spent = schedule.read_series(template), list[BudgetedRelease]()
    now, rounds = SystemClock().now(), series.rounds([], 0.0)
    task = task_view.preview(series.draft, now=0.0)  # checks the draft
    users = series.draft.n_min if users is None else users
    check_int_range("users", users, series.draft.n_min, series.draft.target_size)
    if connections.knows("analyzer"):
        rounds = series.rounds(options.ask(connections.analyzer, partial(tasks_of, series)), now)
        rounds = mark_expired(rounds, connections)
        spent = options.ask(
            connections.analyzer, partial(population_budgets.releases_to, series.draft.population)
        )
    if series.open_round(now) > series.n_rounds:
        raise SettingsError("all rounds of the series are over: set first to a later time")
    costs, lasts = forecasts.forecast(task, rounds, users, spent)
    basis = forecasts.basis(task, len(costs), users, spent)

    def show_all(console: Console) -> None:
        console.print(task_view.describe_claim(task))
        forecasts.show(costs, lasts, series.every, console)
        console.print(basis, soft_wrap=True, highlight=False, end="\n" * bool(basis))

    fields = {"earlier_releases": len(spent), "limits": lasts, "rounds": costs, "basis": basis}
    return fields, show_all


@options.command(app, "shuffledp series show daily.toml --html daily.html")
def show(
    template: Template,
    connections: options.Connections,
    top: Annotated[int, typer.Option(min=1)] = 6,
    html: options.Page = None,
    csv: options.OptionalOutput = None,
    parquet: options.OptionalOutput = None,
) -> options.Printed:
    """
    Print all rounds, smoothed values and budgets.

    With the shuffler's address, it also shows which overdue rounds expired.

    Options:
        top: Number of largest values.
        csv: Write the values of all rounds as CSV.
        parquet: Write them as Parquet; needs pyarrow.
    """
    from shuffledp.common.task.task import Task
    from shuffledp.deploy.clients.analyzer import OperatorClient
    from shuffledp.deploy.commands.rounds import mark_expired, tasks_of
    from shuffledp.deploy.pages.series_page import series_page
    from shuffledp.deploy.results.export import write_csv, write_parquet
    from shuffledp.deploy.results.series import SeriesResults
    from shuffledp.deploy.tasks import population_budgets, schedule, task_view

    series = schedule.read_series(template)

    async def read(operator: OperatorClient) -> SeriesResults:
        rounds = series.rounds(await tasks_of(series, operator), SystemClock().now())
        numbers = {each.task.task_digest: each.number for each in rounds if each.task}
        released = {}
        for entry in (await operator.ledger())[0]:
            if isinstance(entry, LedgerEntry) and entry.task_digest in numbers:
                result = await operator.result(entry.task_digest)
                signed, _ = await operator.describe(entry.task_digest)
                task = Task.from_bytes(signed.task_bytes)
                released[numbers[entry.task_digest]] = (task, result, entry)
        asked = task_view.preview(series.draft, now=0.0)
        budgets = await population_budgets.budgets_of_task(asked, operator)
        found = dict(sorted(released.items()))
        return SeriesResults.of(rounds, top, found, budgets, series.people)

    results = options.ask(connections.analyzer, read)
    results = replace(results, rounds=mark_expired(results.rounds, connections))
    if html is not None:
        write(html, series_page(series, results))
    if csv is not None:
        write_csv(csv, results.columns())
    if parquet is not None:
        write_parquet(parquet, None, results.columns())

    def show_all(console: Console) -> None:
        results.show(console)
        print_written([html, csv, parquet], console)

    return results.as_json(), show_all
