"""`shuffledp load`: load-test services with simulated users."""

import asyncio
import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shuffledp.common.errors import UsageError
from shuffledp.deploy.commands import options
from shuffledp.deploy.commands.connection import Authority, CommandConnections
from shuffledp.deploy.load.sending import MAX_SECONDS, MIN_POSITIVE, Sending
from shuffledp.deploy.terminal.console import terminal
from shuffledp.deploy.terminal.escape import escaped
from shuffledp.deploy.terminal.json_output import print_json

if TYPE_CHECKING:
    from shuffledp.deploy.load import report
app = typer.Typer()

_DEFAULT_USERS = 1000


@options.command(
    app,
    "shuffledp load --local --users 1000 --rate 200 --misbehaving 0.1",
    "shuffledp load --local --draft two-shufflers.toml --users 1000",
    "shuffledp load DIGEST --shuffler 127.0.0.1:7002 --authority state/tls/authority.pem "
    "--shuffler-token-file state/shuffler/operator.token --users 20000 --mode bulk",
)
def load(
    context: typer.Context,
    *,
    task: Annotated[str | None, typer.Argument()] = None,
    shuffler: str | None = None,
    local: options.Flag = False,
    sink: options.Flag = False,
    draft: Path | None = None,
    users: Annotated[int | None, typer.Option(min=1, max=10**9)] = None,
    sending: Sending,
    ramp: str | None = None,
    step_seconds: Annotated[float, typer.Option(min=MIN_POSITIVE, max=MAX_SECONDS)] = 10.0,
    p99_limit: Annotated[float, typer.Option(min=MIN_POSITIVE)] = math.inf,
    misbehaving: str = "0",
    prepare: options.OptionalOutput = None,
    replay: Path | None = None,
    tokens: Path | None = None,
    analyzer: str = "",
    analyzer_token_file: Annotated[Path | None, typer.Option("--token-file")] = None,
    authority: Authority = None,
    certificate: Path | None = None,
    key: Path | None = None,
    shuffler_token_file: Path | None = None,
    i_run_these_services: options.Flag = False,  # noqa: ARG001  # `check_options` sees it
    close: options.Flag = False,
    metrics: list[str] | None = None,
    json: options.AsJson = False,
) -> None:
    """
    Send many simulated users' answers to a task, and reconcile all counts.

    All submissions are sealed before the first is sent. Only the operator may send to running
    services, with --shuffler-token-file or --i-run-these-services. The exit status is 1 if a count
    is wrong or missing.

    Options:
        task: The task's digest, for --shuffler; not needed with --replay.
        shuffler: Address of the shuffler under load, host:port.
        local: Start services here, publish a task and test them.
        sink: Send to a server that stores nothing, to measure this program.
        draft: Draft, for --local or --sink, published as it is; a table [relay] in it starts a
            second shuffler.  [a built-in task: od-hp, 915 values]
        users: Simulated users; needed with a file for a published task of several attributes.  [all
            people of a file, or {_DEFAULT_USERS}, or enough for --ramp]
        ramp: FROM:TO:STEPS users per second: raise the rate stepwise until the services fall
            behind.
        step_seconds: Seconds per step of --ramp.
        p99_limit: Milliseconds; --ramp ends when 1 in 100 users waits longer.
        misbehaving: Share of users who misbehave: 0.1, or malformed=0.02,… (duplicate, flooding,
            conflict, malformed, oversized, dropping).
        prepare: Only seal the submissions into this file; send nothing.
        replay: Send the submissions prepared in this file.
        tokens: File of tokens from `shuffledp issuer tokens`, one per user, if the task requires
            them.
        analyzer: Address of the analyzer, to check the result too.
        analyzer_token_file: The analyzer's operator token: operator.token in its state directory.
        certificate: Your certificate.  [operator.pem beside the authority]
        key: Key of the certificate.  [operator.key beside the authority]
        shuffler_token_file: The shuffler's operator token, to check that the batch is empty and to
            check the shuffler's counts.
        i_run_these_services: Send without --shuffler-token-file. Simulated answers spoil a real
            collection.
        close: Close the batch at the end if it has enough users.
        metrics: A service's metrics, PARTY=http://HOST:PORT/metrics; repeatable.
    """
    from shuffledp.deploy.clients.issuer import read_tokens
    from shuffledp.deploy.datasets.sources import dataset as read_dataset
    from shuffledp.deploy.datasets.sources import is_file
    from shuffledp.deploy.load import report
    from shuffledp.deploy.load import target as targets
    from shuffledp.deploy.load.behaviour import shares_from
    from shuffledp.deploy.load.plan import LoadPlan, TargetKind, check_options, ramp_from
    from shuffledp.deploy.load.run import execute
    from shuffledp.deploy.load.users import SealedUsers

    if (shuffler is not None) + local + sink != 1:
        raise UsageError("choose a target: --shuffler ADDRESS with a task, --local, or --sink")
    kind: TargetKind = "local" if local else "sink" if sink else "services"
    check_options(kind, sending.mode, sending.pattern, options.given_options(context))
    climb = None
    if ramp is not None:
        climb = ramp_from(ramp, step_seconds=step_seconds, p99_limit=p99_limit)
    named = is_file(sending.dataset) and replay is None
    # A published task says only later which columns it needs.
    counted = named and (users is None or kind != "services")
    people = read_dataset(sending.dataset, column=targets.columns_of(draft)) if counted else None
    if users is None:
        users = _DEFAULT_USERS if people is None else people.n_users
        users = users if climb is None else sum(count for _, count in climb.phases) + 1
    shares = shares_from(misbehaving)
    plan = LoadPlan(n_users=users, shares=shares, ramp=climb, **asdict(sending))
    replayed = None if replay is None else SealedUsers.load(replay)
    if local:
        connecting = targets.local(plan, draft)
    elif sink:
        connecting = targets.sink(
            targets.unpublished(plan, draft) if replayed is None else replayed.signed
        )
    else:
        if replayed is not None and task is None:
            digest = replayed.signed.digest()
        else:
            digest = options.task_digest(task or "")
        own = {
            "analyzer": analyzer,
            "shuffler": shuffler,
            "authority": authority,
            "certificate": certificate,
            "key": key,
            "analyzer_token_file": analyzer_token_file,
            "shuffler_token_file": shuffler_token_file,
        }
        connections = CommandConnections({name: str(value) for name, value in own.items() if value})
        connecting = targets.connect(
            kind,
            shuffler or "",
            digest,
            authority=authority,
            operator=connections.analyzer if analyzer else None,
            watcher=None if shuffler_token_file is None else connections.shuffler,
            metrics=metrics or [],
        )
    with report.ProgressBars(terminal(stderr=True)) as bars:
        finished = asyncio.run(
            execute(
                connecting,
                plan,
                bars=bars,
                replayed=replayed,
                prepare=prepare,
                close=close,
                tokens=() if tokens is None else read_tokens(tokens),
            )
        )
        bars.finish()
    remarks = [] if people is None else people.remarks
    if finished is None:
        for remark in remarks:
            terminal().print(escaped(remark), soft_wrap=True)
        where = escaped(str(prepare))
        terminal().print(f"{users} users prepared in {where}.", soft_wrap=True)
        return
    finished.notes.extend(remarks)
    print_report(finished, json=json)


def print_report(finished: "report.LoadReport", *, json: bool) -> None:
    """Print a run's report; raise the run's failure, or Exit if a count is wrong."""
    from shuffledp.deploy.load import report

    if json:
        print_json(report.as_json(finished))
    else:
        report.show(finished, terminal())
    if finished.failure is not None:
        raise finished.failure
    if not finished.counts_match:
        raise typer.Exit(1)
