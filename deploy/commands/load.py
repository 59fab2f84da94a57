"""The command load: many simulated users against running services."""

import asyncio
import sys
from pathlib import Path
from typing import Annotated, cast

import typer

from common.errors import PlanError
from common.task_digest import DIGEST_BYTES, TaskDigest
from deploy.commands.example import example
from deploy.commands.options import (
    AsJson,
    Authority,
    Certificate,
    CertificateKey,
    hexadecimal,
)
from deploy.datasets.catalogue import IPUMS_1940_CITY
from deploy.load import report
from deploy.load.arrivals import Pattern
from deploy.load.behaviour import MISBEHAVING, shares_from
from deploy.load.ignored import refuse_ignored
from deploy.load.job import DEFAULT_USERS, Job, Remote, execute
from deploy.load.plan import Crowd, LoadPlan, Mode, Ramp, ramp_from
from deploy.load.progress import Bars
from deploy.load.run import Finished
from deploy.load.target import TargetKind
from deploy.load.usage import pages_from
from deploy.terminal.console import terminal
from deploy.terminal.escape import escaped
from deploy.terminal.json_output import dumps
from deploy.terminal.output_file import check_folder

app = typer.Typer()

_KINDS = ", ".join(kind.name.lower() for kind in MISBEHAVING)


@app.command(
    short_help="Let simulated users answer, and compare all counts.",
    epilog=example(
        "shuffledp load --local --users 1000 --rate 200 --misbehaving 0.1",
        "shuffledp load DIGEST --shuffler 127.0.0.1:7002 --authority state/tls/authority.pem "
        "--shuffler-token-file state/shuffler/operator.token --users 20000 --mode bulk",
    ),
)
def load(
    context: typer.Context,
    task: Annotated[
        str | None,
        typer.Argument(help="The task's digest, with --shuffler; --replay knows its file's."),
    ] = None,
    shuffler: Annotated[
        str | None, typer.Option(help="Address of the shuffler under load, host:port.")
    ] = None,
    local: Annotated[
        bool, typer.Option("--local", help="Start the services here, publish a task, load them.")
    ] = False,
    sink: Annotated[
        bool,
        typer.Option("--sink", help="Send to a server that stores nothing: this program's limit."),
    ] = False,
    authority: Authority = None,
    draft: Annotated[
        Path | None,
        typer.Option(help="With --local or --sink: the task's draft. Without: the demo's task."),
    ] = None,
    users: Annotated[
        int | None, typer.Option(help=f"Simulated users; {DEFAULT_USERS}, or as a ramp needs.")
    ] = None,
    dataset: Annotated[
        str, typer.Option(help="Whose values they have: a shipped name, a file, or zipf:SIZE.")
    ] = IPUMS_1940_CITY,
    seed: Annotated[
        int | None,
        typer.Option(
            min=0, help="Chooses people, behaviours and moments; the same number, the same ones."
        ),
    ] = None,
    mode: Annotated[
        str, typer.Option(help="users: a connection each. bulk: many users in a call.")
    ] = "users",
    rate: Annotated[
        float | None, typer.Option(help="Users a second, whether others are answered or not.")
    ] = None,
    concurrency: Annotated[
        int | None,
        typer.Option(help="Without a rate: users (calls, in bulk) under way at once. [64; 4]"),
    ] = None,
    pattern: Annotated[
        str,
        typer.Option(
            help="How a rate is spread. steady: each user at random. burst: many at once."
        ),
    ] = "steady",
    burst: Annotated[
        int, typer.Option(help="Users who arrive at once, with --pattern burst.")
    ] = 100,
    ramp: Annotated[
        str | None,
        typer.Option(
            help="FROM:TO:STEPS users a second: raise the rate step by step, until the services do "
            "not follow."
        ),
    ] = None,
    step_seconds: Annotated[float, typer.Option(help="How long a step of --ramp lasts.")] = 10.0,
    p99_limit: Annotated[
        float, typer.Option(help="Milliseconds: --ramp ends where 1 of 100 users waits longer.")
    ] = float("inf"),
    misbehaving: Annotated[
        str,
        typer.Option(help=f"Share of users who misbehave: 0.1, or malformed=0.02,… ({_KINDS})."),
    ] = "0",
    processes: Annotated[int, typer.Option(help="Processes that send.")] = 1,
    patience: Annotated[
        float, typer.Option(help="Seconds for which a user tries again while nobody answers.")
    ] = 120.0,
    fetch_task: Annotated[
        bool, typer.Option("--fetch-task", help="Let each user fetch the task first.")
    ] = False,
    prepare: Annotated[
        Path | None, typer.Option(help="Only seal, into this file, and send nothing.")
    ] = None,
    replay: Annotated[
        Path | None, typer.Option(help="Send what was prepared in this file.")
    ] = None,
    analyzer: Annotated[
        str | None, typer.Option(help="Address of the analyzer: then the result is compared.")
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(help="Its operator's token: operator.token in its state directory."),
    ] = None,
    certificate: Certificate = None,
    key: CertificateKey = None,
    shuffler_token_file: Annotated[
        Path | None,
        typer.Option(
            help="The token of the shuffler's operator: its batch must be empty, and what it "
            "refused is compared, too."
        ),
    ] = None,
    i_run_these_services: Annotated[
        bool,
        typer.Option(
            "--i-run-these-services",
            help="Send without that token. Simulated users spoil a batch in which real ones are.",
        ),
    ] = False,
    close: Annotated[
        bool, typer.Option("--close", help="Close the batch at the end, if it has enough users.")
    ] = False,
    metrics: Annotated[
        list[str] | None,
        typer.Option(help="PARTY=http://HOST:PORT/metrics of a service; may be repeated."),
    ] = None,
    json: AsJson = False,
) -> None:
    """Let many simulated users answer a task, and compare what was counted with what was sent.

    Everything is sealed before anything is sent. To running services only their operator may send:
    with --shuffler-token-file, or, where that is not at hand, --i-run-these-services. The exit
    status is 1 if a count differs from what it must be, or did not come.
    """
    kind = _kind(shuffler, local=local, sink=sink)
    refuse_ignored(kind, _given(context), bursts=pattern == "burst")
    climbed = None if ramp is None else ramp_from(ramp, seconds=step_seconds, p99_limit=p99_limit)
    plan = LoadPlan(
        mode=cast("Mode", mode),
        rate=rate,
        concurrency=concurrency,
        pattern=cast("Pattern", pattern),
        burst=burst,
        ramp=climbed,
        processes=processes,
        patience=patience,
        fetch_task=fetch_task,
        seed=seed,
    )
    check_folder(prepare)
    crowd = Crowd(n_users=_users(users, climbed), shares=shares_from(misbehaving))
    remote = None
    if shuffler is not None:
        remote = Remote(
            shuffler=shuffler,
            authority=authority,
            digest=None if task is None else _digest(task),
            analyzer=analyzer,
            token_file=token_file,
            certificate=certificate,
            key=key,
            shuffler_token_file=shuffler_token_file,
            are_mine=i_run_these_services,
            metrics=pages_from(metrics or []),
        )
    job = Job(
        kind=kind,
        plan=plan,
        crowd=None if replay is not None else crowd,
        dataset_name=dataset,
        draft=draft,
        remote=remote,
        prepare=prepare,
        replay=replay,
        close=close,
    )
    with Bars(terminal(stderr=True)) as bars:
        finished = asyncio.run(execute(job, bars))
    if finished is None:
        where = escaped(str(prepare))
        terminal().print(f"{crowd.n_users} users are prepared in {where}.", soft_wrap=True)
        return
    tell(finished, json=json)


def tell(finished: Finished, *, json: bool) -> None:
    """
    Print what a run came to.

    Raises:
        Exit: A count differs from what it must be.
        ShuffleDpError: Counts or the result did not come: why.
    """
    if json:
        sys.stdout.write(dumps(report.as_json(finished)) + "\n")
    else:
        report.show(finished, terminal())
    if finished.failure is not None:
        raise finished.failure
    if not finished.counts_match:
        raise typer.Exit(1)


def _given(context: typer.Context) -> list[str]:
    """Name the parameters that somebody gave, also where they are the default."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return [name for name, source in sources.items() if source and source.name != "DEFAULT"]


def _digest(task: str) -> TaskDigest:
    return TaskDigest(hexadecimal("the task's digest", task, DIGEST_BYTES))


def _kind(shuffler: str | None, *, local: bool, sink: bool) -> TargetKind:
    if (shuffler is not None) + local + sink != 1:
        raise PlanError("say what is loaded: --shuffler ADDRESS with a task, --local, or --sink")
    return "local" if local else "sink" if sink else "services"


def _users(users: int | None, ramp: Ramp | None) -> int:
    if users is not None:
        return users
    return DEFAULT_USERS if ramp is None else sum(ramp.users) + 1
