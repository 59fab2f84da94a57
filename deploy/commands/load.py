"""`shuffledp load`: load-test services with simulated users."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shuffledp.deploy.commands import options
from shuffledp.deploy.load.scenario import EVERY_KEY, read_scenario, scenario_file
from shuffledp.deploy.terminal.console import terminal
from shuffledp.deploy.terminal.escape import escaped
from shuffledp.deploy.terminal.json_output import print_json

if TYPE_CHECKING:
    from shuffledp.deploy.load import report
app = typer.Typer()


@options.command(
    app,
    "shuffledp load misbehaving --users 1000 --rate 200",
    "shuffledp load mine.toml DIGEST --users 20000 --shuffler 127.0.0.1:7002 "
    "--shuffler-token-file state/shuffler/operator.token",
    no_args_is_help=True,
)
def load(
    *,
    scenario: Annotated[str, typer.Argument()] = "",
    task: Annotated[str | None, typer.Argument()] = None,
    users: int | None = None,
    rate: float | None = None,
    shuffler: str | None = None,
    shuffler_token_file: Path | None = None,
    tokens: Path | None = None,
    prepare: options.OptionalOutput = None,
    replay: Path | None = None,
    details: options.Flag = False,
    explain: options.Flag = False,
    json: options.AsJson = False,
) -> None:
    """
    Send many simulated users' answers to a task, and reconcile all counts.

    A scenario is a TOML file, or one of those shipped: bulk, containers, local, misbehaving, ramp,
    sink, two-shufflers. It starts services here, unless it or --shuffler names running ones: only
    their operator may send to them, with --shuffler-token-file. All submissions are sealed before
    the first is sent. The exit status is 1 if a count is wrong or missing.

    Options:
        scenario: A file such as mine.toml, or the name of a shipped scenario.
        task: The task's digest, for --shuffler; not needed with --replay.
        users: Simulated users; needed with a file for a published task of several attributes.  [all
            people of a file, or 1000, or enough for a ramp]
        rate: Users who arrive per second, whether or not the services keep up.
        shuffler: Address of running services' shuffler, host:port. Needs the digest of a task.
        shuffler_token_file: The shuffler's operator token, to check that the batch is empty, and
            its counts.
        tokens: File of tokens from `shuffledp issuer tokens`, one per user, if the task requires
            them.
        prepare: Only seal the submissions into this file; send nothing.
        replay: Send the submissions prepared in this file.
        details: Print all figures, each count and the usage of each party.
        explain: Print the scenario; without one, all keys, each with its meaning and default.
    """
    if explain:
        _explain(scenario_file(scenario) if scenario else EVERY_KEY)
        return
    given = {**locals()}
    from shuffledp.deploy.clients.issuer import read_tokens
    from shuffledp.deploy.datasets.sources import dataset as read_dataset
    from shuffledp.deploy.datasets.sources import is_file
    from shuffledp.deploy.load import report, run
    from shuffledp.deploy.load import target as targets
    from shuffledp.deploy.load.behaviour import LoadPlan
    from shuffledp.deploy.load.users import SealedUsers

    digest = None if task is None else options.task_digest(task)
    asked = read_scenario(scenario, given)
    target, wanted = asked.target, asked.people
    people = None
    # A published task says only later which columns it needs.
    if is_file(wanted.dataset) and replay is None and not (wanted.users and target.shuffler):
        people = read_dataset(wanted.dataset, column=targets.columns_of(target.draft))
    plan = LoadPlan.of(asked, None if people is None else people.n_users)
    replayed = None if replay is None else SealedUsers.load(replay)
    with report.ProgressBars(terminal(stderr=True)) as bars:
        finished = asyncio.run(
            run.execute(
                targets.target_of(asked, plan, digest, replayed),
                plan,
                bars=bars,
                replayed=replayed,
                prepare=prepare,
                close=asked.checks.close,
                tokens=() if wanted.tokens is None else read_tokens(wanted.tokens),
            )
        )
        bars.finish()
    remarks = [] if people is None else people.remarks
    if finished is None:
        lines = (*remarks, f"Users prepared in {prepare}: {plan.n_users:,}.")
        terminal().print("\n".join(map(escaped, lines)), soft_wrap=True)
        return
    finished.notes.extend(remarks)
    print_report(finished, details=details, json=json)


def _explain(file: Path) -> None:
    typer.echo(file.read_text(encoding="utf-8", errors="replace"), nl=False)


def print_report(finished: "report.LoadReport", *, details: bool = False, json: bool) -> None:
    """Print a run's report; raise the run's failure, or Exit if a count is wrong."""
    from shuffledp.deploy.load import report

    if json:
        print_json(report.as_json(finished))
    else:
        report.show(finished, terminal(), details=details)
    if finished.failure is not None:
        raise finished.failure
    if not finished.counts_match:
        raise typer.Exit(1)
