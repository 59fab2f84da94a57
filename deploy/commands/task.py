"""`shuffledp task`: create, list, show and close tasks."""

import asyncio
import errno
import os
import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from common.crypto.hpke import HpkePrivateKey, HpkePublicKey
from common.crypto.signing import SignedTask
from common.crypto.suites import DEFAULT_SUITE
from common.errors import SettingsError, WireError
from common.messages.batch import BatchStatus
from common.messages.task_summary import TaskSummary
from common.runtime.clock import SystemClock
from common.task.draft import TaskDraft
from common.task.task import Task
from deploy.clients.analyzer import OperatorClient
from deploy.clients.shuffler import ShufflerClient
from deploy.commands.example import example
from deploy.commands.options import (
    AnalyzerAddress,
    AsJson,
    Authority,
    Certificate,
    CertificateKey,
    ShufflerAddress,
    TaskArgument,
    TokenFile,
    read_identity,
    task_digest,
)
from deploy.tasks import drafts as draft_file
from deploy.tasks import population_budgets, task_view
from deploy.tasks.population_budgets import PopulationBudgets, of_task
from deploy.terminal.console import terminal
from deploy.terminal.json_output import dumps, guarantee_as_json
from deploy.terminal.output_file import check_folder

app = typer.Typer()
task_app = typer.Typer(
    help="Tasks: what is collected, under which promise. Published once, never changed.",
    no_args_is_help=True,
    epilog=example(
        "shuffledp task create draft.toml --dry-run",
    ),
)
app.add_typer(task_app, name="task")

_TO_PUBLISH: Final = "needed to publish; without them use --dry-run"


@task_app.command(
    "create",
    epilog=example(
        "shuffledp task create draft.toml --analyzer 127.0.0.1:7001 --token-file "
        "state/analyzer/operator.token --authority state/tls/authority.pem --shuffler-key "
        "state/shuffler/envelope.pub",
        "shuffledp task create draft.toml --dry-run",
    ),
)
def create(
    draft: Annotated[
        Path, typer.Argument(help="A TOML file: your own, or what shuffledp plan wrote.")
    ],
    analyzer: Annotated[str, typer.Option(help="Address of the analyzer, host:port.")] = "",
    token_file: Annotated[
        Path | None,
        typer.Option(
            help="The operator's token: operator.token in the analyzer's state directory."
        ),
    ] = None,
    shuffler_key: Annotated[
        Path | None,
        typer.Option(
            help="The shuffler's public key: envelope.pub in its state directory, or "
            "envelope-SUITE.pub if the draft names a suite."
        ),
    ] = None,
    authority: Authority = None,
    certificate: Certificate = None,
    key: CertificateKey = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Print what users will be promised, and publish nothing."),
    ] = False,
    json: AsJson = False,
) -> None:
    """Publish a task, signed by the analyzer. Needs the operator's token, unless it is a dry run.

    A dry run needs no service: it works out by itself what the task would promise.
    """
    if dry_run:
        _preview(_read(draft, shuffler_key), json=json)
        return
    if not (analyzer and token_file and shuffler_key):
        raise SettingsError(f"--analyzer, --token-file and --shuffler-key are {_TO_PUBLISH}")
    wanted = _read(draft, shuffler_key)

    async def publish() -> None:
        async with OperatorClient.connect(
            analyzer, authority, token_file, certificate, key
        ) as operator:
            signed = await operator.create_task(wanted)
        task = Task.from_bytes(signed.task_bytes)
        if json:
            fields = {"task_digest": signed.digest().hex(), "task": task_view.as_json(task)}
            sys.stdout.write(dumps(fields) + "\n")
            return
        terminal().print(
            f"Task {signed.digest().hex()}\n{task_view.describe_claim(task)}", soft_wrap=True
        )

    asyncio.run(publish())


@task_app.command(
    "list",
    short_help="List every task and what became of it.",
    epilog=example(
        "shuffledp task list --analyzer 127.0.0.1:7001 --token-file "
        "state/analyzer/operator.token --authority state/tls/authority.pem",
    ),
)
def list_tasks(
    analyzer: AnalyzerAddress,
    token_file: TokenFile,
    authority: Authority = None,
    certificate: Certificate = None,
    key: CertificateKey = None,
    json: AsJson = False,
) -> None:
    """List every task and what became of it, the earliest deadline first."""

    async def read() -> None:
        async with OperatorClient.connect(
            analyzer, authority, token_file, certificate, key
        ) as operator:
            summaries = await operator.tasks()
        if json:
            fields = [task_view.summary_as_json(summary) for summary in summaries]
            sys.stdout.write(dumps(fields) + "\n")
            return
        task_view.print_list(summaries, terminal())

    asyncio.run(read())


@task_app.command(
    "show",
    short_help="Print one task, its promise and its state.",
    epilog=example(
        "shuffledp task show DIGEST --analyzer 127.0.0.1:7001 --token-file "
        "state/analyzer/operator.token --authority state/tls/authority.pem",
        "shuffledp task show DIGEST --analyzer 127.0.0.1:7001 --token-file "
        "state/analyzer/operator.token --authority state/tls/authority.pem --analyzer-identity "
        "identity.pub --save agreed",
    ),
)
def show(
    task: TaskArgument,
    analyzer: AnalyzerAddress,
    token_file: TokenFile,
    shuffler: Annotated[
        str, typer.Option(help="Address of the shuffler: also show how far the batch is there.")
    ] = "",
    analyzer_identity: Annotated[
        Path | None,
        typer.Option(help="Check that the task is signed by this: the analyzer's identity.pub."),
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option(
            help="Folder to write the task's exact bytes and signature to: task.json, task.sig."
        ),
    ] = None,
    authority: Authority = None,
    certificate: Certificate = None,
    key: CertificateKey = None,
    json: AsJson = False,
) -> None:
    """Print a task's parameters, what its users are promised, and what became of it.

    Of its population also what all releases have spent, and what is left.
    """
    check_folder(save)
    digest = task_digest(task)
    signer = read_identity(analyzer_identity) if analyzer_identity else None

    async def read() -> tuple[SignedTask, TaskSummary, PopulationBudgets | None]:
        async with OperatorClient.connect(
            analyzer, authority, token_file, certificate, key
        ) as operator:
            signed, summary = await operator.describe(digest)
            if signer is not None:
                signer.verify(signed)
            return signed, summary, await of_task(Task.from_bytes(signed.task_bytes), operator)

    async def status() -> BatchStatus | None:
        async with ShufflerClient.connect(shuffler, authority) as client:
            return await client.status_or_none(signed.digest())

    signed, summary, budgets = asyncio.run(read())
    found = Task.from_bytes(signed.task_bytes)
    batch = asyncio.run(status()) if shuffler else None
    if save is not None:
        draft_file.save_task(save, signed)
    if json:
        fields = {
            **task_view.summary_as_json(summary),
            "task": task_view.as_json(found),
            "guarantees": [guarantee_as_json(one) for one in task_view.task_guarantees(found)],
            "signature_checked": signer is not None,
            **({"population_budgets": population_budgets.as_json(budgets)} if budgets else {}),
            **(task_view.batch_as_json(batch) if shuffler else {}),
        }
        sys.stdout.write(dumps(fields) + "\n")
        return
    console = terminal()
    task_view.print_state(signed.digest(), found, summary, console)
    if budgets:
        population_budgets.show([budgets], console)
    if shuffler:
        task_view.print_batch(batch, console)
    console.print(
        f"It is signed by the identity in {analyzer_identity}."
        if analyzer_identity
        else "Its signature is not checked: name the signer with --analyzer-identity.",
        markup=False,
    )
    if save is not None:
        console.print(f"Written to {save}: {', '.join(draft_file.TASK_FILES)}.", markup=False)


@task_app.command(
    "close",
    epilog=example(
        "shuffledp task close DIGEST --shuffler 127.0.0.1:7002 --token-file "
        "state/shuffler/operator.token --authority state/tls/authority.pem",
    ),
)
def close(
    task: TaskArgument,
    shuffler: ShufflerAddress,
    token_file: TokenFile,
    authority: Authority = None,
    json: AsJson = False,
) -> None:
    """Close a task's batch now, if it has enough users. Needs the token of the shuffler's operator.

    Nothing of the batch is told but that it is closed; the result comes as it would have after the
    deadline.
    """
    digest = task_digest(task)

    async def ask() -> None:
        async with ShufflerClient.connect(shuffler, authority, token_file) as client:
            await client.close_batch(digest)

    asyncio.run(ask())
    if json:
        sys.stdout.write(dumps({"task_digest": digest.hex(), "closed": True}) + "\n")
        return
    terminal().print("The batch is closed: nobody else is taken in.")


def _read(draft: Path, shuffler_key: Path | None) -> TaskDraft:
    """Read a draft; without the shuffler's key, for a dry run, with one that nobody has."""
    if shuffler_key is None:
        suite = draft_file.read(draft, b"").suite or DEFAULT_SUITE
        return draft_file.read(draft, HpkePrivateKey.generate(suite).public_key().raw)
    _check_no_identity(shuffler_key)
    wanted = draft_file.read(draft, _hexadecimal_file(shuffler_key))
    HpkePublicKey(wanted.suite, wanted.shuffler_key)  # said here, where the file was named
    return wanted


def _preview(wanted: TaskDraft, *, json: bool) -> None:
    task = task_view.preview(wanted, now=SystemClock().now())
    if json:
        fields = {
            "task": task_view.as_json(task),
            "guarantees": [guarantee_as_json(one) for one in task_view.task_guarantees(task)],
        }
        sys.stdout.write(dumps(fields) + "\n")
        return
    console = terminal()
    console.print("A dry run: nothing is published.")
    console.print(task_view.describe_claim(task))
    task_view.print_task(task, console)
    if task.population:
        console.print("Not looked at: what the population has left of its budget.")


def _check_no_identity(path: Path) -> None:
    """
    Refuse the file beside the right one, which looks like it: no envelope would ever open.

    Raises:
        SettingsError: It is, or says the same as, a signing identity.
    """
    identity = path.with_name("identity.pub")
    if identity.exists() and path.exists() and identity.read_bytes() == path.read_bytes():
        raise SettingsError(
            f"{path} holds the shuffler's signing identity; the key that tasks name is in "
            "envelope.pub"
        )


def _hexadecimal_file(path: Path) -> bytes:
    """
    Read the shuffler's key, which is published.

    The file lies where the shuffler writes: as a link it could lead to a secret of the operator's.

    Raises:
        SettingsError: It cannot be read, or is a link.
        WireError: It does not hold hexadecimal digits.
    """
    try:
        with open(path, encoding="ascii", opener=_no_link) as file:
            text = file.read().strip()
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise SettingsError(
                f"{path} is a link; --shuffler-key takes the file itself, which is published"
            ) from error
        raise SettingsError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise WireError(f"{path} must hold hexadecimal digits") from error
    try:
        return bytes.fromhex(text)
    except ValueError as error:
        raise WireError(f"{path} must hold hexadecimal digits") from error


def _no_link(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW)
