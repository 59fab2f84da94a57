"""`shuffledp load`: many simulated users against services."""

import asyncio
import math
from pathlib import Path
from typing import Annotated

import typer

from common.errors import PlanError
from deploy.commands.example import example
from deploy.commands.options import AsJson, Authority, Certificate, CertificateKey, task_digest
from deploy.datasets.catalogue import IPUMS_1940_CITY
from deploy.load import report
from deploy.load import target as targets
from deploy.load.behaviour import MISBEHAVING, shares_from
from deploy.load.plan import LoadPlan, Mode, Pattern, TargetKind, check_options, ramp_from
from deploy.load.run import execute
from deploy.load.users import SealedUsers
from deploy.terminal.console import terminal
from deploy.terminal.escape import escaped
from deploy.terminal.json_output import print_json
from deploy.terminal.output_file import check_folder

app = typer.Typer()

_KINDS = ", ".join(kind.name.lower() for kind in MISBEHAVING)
_DEFAULT_USERS = 1000
_MIN = 1e-6
_MAX_SECONDS = 1e7


@app.command(
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
        int | None,
        typer.Option(
            min=1, max=10**9, help=f"Simulated users; {_DEFAULT_USERS}, or as a ramp needs."
        ),
    ] = None,
    dataset: Annotated[
        str, typer.Option(help="Source of their values: a shipped name, a file, or zipf:SIZE.")
    ] = IPUMS_1940_CITY,
    seed: Annotated[
        int | None,
        typer.Option(min=0, help="Chooses people, behaviours and arrival times, repeatably."),
    ] = None,
    mode: Annotated[
        Mode, typer.Option(help="users: a connection each. bulk: many users in a call.")
    ] = "users",
    rate: Annotated[
        float | None,
        typer.Option(min=_MIN, max=1e9, help="Users a second, however slow the services are."),
    ] = None,
    concurrency: Annotated[
        int | None,
        typer.Option(
            min=1, max=100_000, help="Without a rate: users (calls, in bulk) in flight. [64; 4]"
        ),
    ] = None,
    pattern: Annotated[
        Pattern,
        typer.Option(help="Arrivals at a rate. steady: at random. burst: many at the same moment."),
    ] = "steady",
    burst: Annotated[
        int, typer.Option(min=1, help="With --pattern burst: users who arrive at the same moment.")
    ] = 100,
    ramp: Annotated[
        str | None,
        typer.Option(
            help="FROM:TO:STEPS users a second: raise the rate step by step, until the services "
            "fall behind."
        ),
    ] = None,
    step_seconds: Annotated[
        float, typer.Option(min=_MIN, max=_MAX_SECONDS, help="Length of a step of --ramp.")
    ] = 10.0,
    p99_limit: Annotated[
        float,
        typer.Option(min=_MIN, help="Milliseconds: --ramp ends where 1 of 100 users waits longer."),
    ] = math.inf,
    misbehaving: Annotated[
        str,
        typer.Option(help=f"Share of users who misbehave: 0.1, or malformed=0.02,… ({_KINDS})."),
    ] = "0",
    processes: Annotated[int, typer.Option(min=1, max=256, help="Processes that send.")] = 1,
    patience: Annotated[
        float,
        typer.Option(
            min=0,
            max=_MAX_SECONDS,
            help="Seconds for which a user retries while services do not answer.",
        ),
    ] = 120.0,
    fetch_task: Annotated[
        bool, typer.Option("--fetch-task", help="Let each user fetch the task first.")
    ] = False,
    prepare: Annotated[
        Path | None, typer.Option(help="Only seal, into this file, and send nothing.")
    ] = None,
    replay: Annotated[
        Path | None, typer.Option(help="Send the users that were prepared in this file.")
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
            help="The shuffler operator's token: the batch must be empty, and the shuffler's "
            "counts are compared."
        ),
    ] = None,
    i_run_these_services: Annotated[  # noqa: ARG001  # `check_options` sees that it is given
        bool,
        typer.Option(
            "--i-run-these-services",
            help="Send without that token. Simulated users spoil a batch that holds real ones.",
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
    """Send many simulated users' answers to a task, and compare all counts with what was sent.

    Everything is sealed before anything is sent. Only the operator of running services may send:
    with --shuffler-token-file, or, where that is not at hand, --i-run-these-services. The exit
    status is 1 if a count differs from the expected one, or is missing.
    """
    if (shuffler is not None) + local + sink != 1:
        raise PlanError("choose a target: --shuffler ADDRESS with a task, --local, or --sink")
    kind: TargetKind = "local" if local else "sink" if sink else "services"
    sources = {name: context.get_parameter_source(name) for name in context.params}
    given = [name for name, source in sources.items() if source and source.name != "DEFAULT"]
    check_options(kind, mode, pattern, given)
    check_folder(prepare)
    climb = None
    if ramp is not None:
        climb = ramp_from(ramp, step_seconds=step_seconds, p99_limit=p99_limit)
    if users is None:
        users = _DEFAULT_USERS if climb is None else sum(count for _, count in climb.phases) + 1
    plan = LoadPlan(
        n_users=users,
        shares=shares_from(misbehaving),
        dataset=dataset,
        mode=mode,
        rate=rate,
        concurrency=concurrency,
        pattern=pattern,
        burst=burst,
        ramp=climb,
        processes=processes,
        patience=patience,
        fetch_task=fetch_task,
        seed=seed,
    )
    replayed = None if replay is None else SealedUsers.load(replay)
    if local:
        connecting = targets.local(plan, draft)
    elif sink:
        connecting = targets.sink(
            targets.unpublished(plan, draft) if replayed is None else replayed.signed
        )
    else:
        connecting = targets.connect(
            kind,
            shuffler or "",
            replayed.signed.digest() if replayed and task is None else task_digest(task or ""),
            authority=authority,
            analyzer=analyzer,
            token_file=token_file,
            certificate=certificate,
            key=key,
            shuffler_token_file=shuffler_token_file,
            metrics=metrics or [],
        )
    with report.Bars(terminal(stderr=True)) as bars:
        finished = asyncio.run(
            execute(connecting, plan, bars=bars, replayed=replayed, prepare=prepare, close=close)
        )
        bars.finish()
    if finished is None:
        where = escaped(str(prepare))
        terminal().print(f"{users} users are prepared in {where}.", soft_wrap=True)
        return
    tell(finished, json=json)


def tell(finished: report.Finished, *, json: bool) -> None:
    """Print the outcome of a run; raise its failure, or Exit if a count differs."""
    if json:
        print_json(report.as_json(finished))
    else:
        report.show(finished, terminal())
    if finished.failure is not None:
        raise finished.failure
    if not finished.counts_match:
        raise typer.Exit(1)
