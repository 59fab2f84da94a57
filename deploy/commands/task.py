"""`shuffledp task`: create, list, show and close tasks."""

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from common.crypto.signing import SignedTask
from common.errors import UsageError
from common.messages.batch import BatchStatus, TaskSummary
from deploy.commands import options
from deploy.terminal.console import terminal
from deploy.terminal.files import check_folder
from deploy.terminal.help_examples import AT_ANALYZER, AT_SHUFFLER, example
from deploy.terminal.json_output import print_answer, print_json

app = typer.Typer()
task_app = typer.Typer(
    help="Tasks: signed, immutable definitions of a collection and its guarantee.",
    no_args_is_help=True,
    epilog=example("shuffledp task create draft.toml --dry-run"),
)
app.add_typer(task_app, name="task")


@task_app.command(
    "create",
    epilog=example(
        f"shuffledp task create draft.toml {AT_ANALYZER} "
        "--shuffler-key state/shuffler/envelope.pub --token-key token-key.json",
        "shuffledp task create draft.toml --dry-run",
    ),
)
def create(
    draft: Annotated[Path, typer.Argument(help="A TOML file: your own, or from shuffledp plan.")],
    analyzer: options.AnalyzerAddress = "",
    token_file: Annotated[Path | None, typer.Option(help="File of the operator token.")] = None,
    shuffler_key: options.ShufflerKey = None,
    token_key: Annotated[
        Path | None,
        typer.Option(
            help="The task's token key, from `shuffledp issuer new-key`. Without it anybody may "
            "submit any number of times, and devices refuse the task by default."
        ),
    ] = None,
    authority: options.Authority = None,
    certificate: options.Certificate = None,
    key: options.CertificateKey = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the task's guarantees; publish nothing.")
    ] = False,
    json: options.AsJson = False,
) -> None:
    """Publish a task, signed by the analyzer. Needs the operator token, except for a dry run.

    A dry run needs no service: it computes the guarantees locally.
    """
    from deploy.clients.analyzer import OperatorClient
    from deploy.commands.publication import preview, publish, with_keys
    from deploy.tasks import drafts as draft_file

    if dry_run:
        preview(with_keys(draft_file.read(draft, b""), shuffler_key, token_key), json=json)
        return
    if not (analyzer and token_file and shuffler_key):
        raise UsageError(
            "publishing needs --analyzer, --token-file and --shuffler-key; use --dry-run otherwise"
        )
    connect = partial(OperatorClient.connect, analyzer, authority, token_file, certificate, key)
    task_draft = with_keys(draft_file.read(draft, b""), shuffler_key, token_key)
    published = options.ask(connect, partial(publish, task_draft))
    if json:
        print_json(published.as_json())
        return
    terminal().print(f"Task {published.signed.digest().hex()}", soft_wrap=True)
    published.show(terminal())


@task_app.command("list", epilog=example(f"shuffledp task list {AT_ANALYZER}"))
def list_tasks(
    analyzer: options.AnalyzerAddress,
    token_file: options.TokenFile,
    authority: options.Authority = None,
    certificate: options.Certificate = None,
    key: options.CertificateKey = None,
    json: options.AsJson = False,
) -> None:
    """List all tasks with their state, the earliest deadline first."""
    from deploy.clients.analyzer import OperatorClient
    from deploy.tasks import task_view

    connect = partial(OperatorClient.connect, analyzer, authority, token_file, certificate, key)
    summaries = options.ask(connect, OperatorClient.tasks)
    if json:
        print_json(summaries)
        return
    task_view.print_list(summaries, terminal())


@task_app.command(
    "show",
    epilog=example(
        f"shuffledp task show DIGEST {AT_ANALYZER}",
        f"shuffledp task show DIGEST {AT_ANALYZER} --analyzer-identity identity.pub --save agreed",
    ),
)
def show(
    task: options.TaskArgument,
    analyzer: options.AnalyzerAddress,
    token_file: options.TokenFile,
    shuffler: Annotated[
        str, typer.Option(help="Address of the shuffler, to show the batch's progress too.")
    ] = "",
    analyzer_identity: Annotated[
        Path | None, typer.Option(help="The analyzer's identity.pub, to verify the signature.")
    ] = None,
    save: Annotated[
        Path | None, typer.Option(help="Folder for the task's exact bytes and signature.")
    ] = None,
    authority: options.Authority = None,
    certificate: options.Certificate = None,
    key: options.CertificateKey = None,
    json: options.AsJson = False,
) -> None:
    """Print one task, its guarantees and its state.

    Also prints its population's spent and remaining budgets.
    """
    from common.task.task import Task
    from deploy.clients.analyzer import OperatorClient
    from deploy.clients.shuffler import ShufflerClient
    from deploy.tasks import drafts as draft_file
    from deploy.tasks import population_budgets, task_view
    from deploy.tasks.population_budgets import PopulationBudgets, budgets_of_task

    check_folder(save)
    digest = options.task_digest(task)
    signer = options.read_identity(analyzer_identity) if analyzer_identity else None

    async def read(
        operator: OperatorClient,
    ) -> tuple[SignedTask, TaskSummary, PopulationBudgets | None]:
        signed, summary = await operator.describe(digest)
        if signer is not None:
            signer.verify(signed)
        return signed, summary, await budgets_of_task(Task.from_bytes(signed.task_bytes), operator)

    connect = partial(OperatorClient.connect, analyzer, authority, token_file, certificate, key)
    signed, summary, budgets = options.ask(connect, read)
    found = Task.from_bytes(signed.task_bytes)

    def batch() -> BatchStatus | None:
        at_shuffler = partial(ShufflerClient.connect, shuffler, authority)
        ask_status = partial(ShufflerClient.status_or_none, digest=digest)
        return options.ask(at_shuffler, ask_status)

    if save is not None:
        draft_file.save_task(save, signed)
    if json:
        fields = {
            **asdict(summary),
            "task": task_view.as_json(found),
            "guarantees": task_view.task_guarantees(found),
            "signature_checked": signer is not None,
            **({"population_budgets": population_budgets.as_json(budgets)} if budgets else {}),
            **(task_view.batch_as_json(batch()) if shuffler else {}),
        }
        print_json(fields)
        return
    console = terminal()
    task_view.print_state(digest, found, summary, console)
    if budgets:
        population_budgets.show([budgets], console)
    console.print(
        f"Signature verified with {analyzer_identity}."
        if analyzer_identity
        else "Signature not verified: use --analyzer-identity.",
        markup=False,
    )
    if save is not None:
        console.print(f"Written to {save}: {', '.join(draft_file.TASK_FILES)}.", markup=False)
    if shuffler:  # last, so that the rest is shown even if the shuffler does not answer
        task_view.print_batch(batch(), console)


@task_app.command("close", epilog=example(f"shuffledp task close DIGEST {AT_SHUFFLER}"))
def close(
    task: options.TaskArgument,
    shuffler: options.ShufflerAddress,
    token_file: options.TokenFile,
    authority: options.Authority = None,
    json: options.AsJson = False,
) -> None:
    """Close a task's batch now if it has enough users. Needs the shuffler's operator token.

    The result is released as it would be after the deadline. A batch that has enough users only if
    sentinels are counted closes too, but is never released.
    """
    from deploy.clients.shuffler import ShufflerClient

    digest = options.task_digest(task)
    connect = partial(ShufflerClient.connect, shuffler, authority, token_file)
    options.ask(connect, lambda client: client.close_batch(digest))
    fields = {"task_digest": digest.hex(), "closed": True}
    print_answer(fields, "The batch is closed: no more users can take part.", json=json)
