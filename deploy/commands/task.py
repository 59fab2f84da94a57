"""`shuffledp task`: create, list, show and close tasks."""

from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from shuffledp.common.crypto.signing import SignedTask
from shuffledp.common.messages.batch import BatchStatus, TaskSummary
from shuffledp.deploy.commands import options

app = options.command_group(
    "task",
    "Create, list, show and close tasks: signed, immutable definitions of a collection.",
    "shuffledp task create draft.toml --dry-run",
)


@options.command(
    app,
    "shuffledp task create draft.toml --token-key token-key.json",
    "shuffledp task create two-shufflers.toml --shuffler-key envelope.pub --relay-key relay.pub "
    "--token-key token-key.json",
    "shuffledp task create draft.toml --dry-run",
)
def create(
    draft: Annotated[Path, typer.Argument()],
    connections: options.Connections,
    shuffler_key: options.ShufflerKey = None,
    relay_key: options.RelayKey = None,
    token_key: Path | None = None,
    dry_run: options.Flag = False,
) -> options.Printed:
    """
    Publish a task, signed by the analyzer. Needs the operator token, except for a dry run.

    A dry run needs no service: it computes the guarantees locally.

    Options:
        draft: A TOML file: your own, with the keys of docs/tasks.md, or from shuffledp plan.
        token_key: The task's token key, from `shuffledp issuer new-key`. Without it anybody may
            submit any number of times, and devices refuse the task by default.
        dry_run: Print the task's guarantees; publish nothing.
    """
    from shuffledp.deploy.commands.publication import Publication, preview, with_keys
    from shuffledp.deploy.tasks import drafts as draft_file

    task_draft = draft_file.read(draft)
    files = (shuffler_key, relay_key)
    task_draft = with_keys(task_draft, connections, *files, publishing=not dry_run)
    if token_key is not None:
        task_draft = replace(task_draft, tokens=draft_file.read_token_key(token_key))
    if dry_run:
        return preview(task_draft)
    answer = options.ask(connections.analyzer, lambda peer: peer.publish_task(task_draft))
    published = Publication(*answer)
    return published.as_json(), published.show


@options.command(app, "shuffledp task list", name="list")
def list_tasks(connections: options.Connections) -> options.Printed:
    """List all tasks with their state, the earliest deadline first."""
    from shuffledp.deploy.clients.analyzer import OperatorClient
    from shuffledp.deploy.tasks import task_view

    summaries = options.ask(connections.analyzer, OperatorClient.tasks)
    return summaries, partial(task_view.print_list, summaries)


@options.command(
    app,
    "shuffledp task show DIGEST",
    "shuffledp task show DIGEST --analyzer-identity identity.pub --save agreed",
)
def show(
    task: options.TaskArgument,
    connections: options.Connections,
    analyzer_identity: Path | None = None,
    save: options.OutputName = None,
) -> options.Printed:
    """
    Print one task, its guarantees and its state.

    Also prints its population's spent and remaining budgets and, with the shuffler's address, the
    batch's progress.

    Options:
        analyzer_identity: The analyzer's identity.pub, to verify the signature.  [the profile's]
        save: Folder for the task's exact bytes and signature.
    """
    from shuffledp.common.task.task import Task
    from shuffledp.deploy.clients.analyzer import OperatorClient
    from shuffledp.deploy.clients.shuffler import ShufflerClient
    from shuffledp.deploy.tasks import drafts as draft_file
    from shuffledp.deploy.tasks import population_budgets, task_view
    from shuffledp.deploy.tasks.population_budgets import PopulationBudgets, budgets_of_task

    pinned = connections.file("analyzer_identity", analyzer_identity)
    signer = options.read_identity(pinned) if pinned else None

    async def read(
        operator: OperatorClient,
    ) -> tuple[SignedTask, TaskSummary, PopulationBudgets | None]:
        signed, summary = await operator.describe(task)
        if signer is not None:
            signer.verify(signed)
        return signed, summary, await budgets_of_task(Task.from_bytes(signed.task_bytes), operator)

    signed, summary, budgets = options.ask(connections.analyzer, read)
    found, at_shuffler = Task.from_bytes(signed.task_bytes), connections.knows("shuffler")

    def batch() -> BatchStatus | None:
        client = partial(connections.shuffler, operator=False)
        return options.ask(client, partial(ShufflerClient.status_or_none, digest=task))

    if save is not None:
        draft_file.save_task(save, signed)

    def fields() -> dict[str, Any]:
        return {
            **asdict(summary),
            "task": task_view.as_json(found),
            "guarantees": task_view.task_guarantees(found),
            "signature_checked": signer is not None,
            **({"population_budgets": population_budgets.as_json(budgets)} if budgets else {}),
            **(task_view.batch_as_json(batch()) if at_shuffler else {}),
        }

    def show_all(console: Console) -> None:
        task_view.print_state(task, found, summary, console)
        if budgets:
            population_budgets.show([budgets], console)
        console.print(options.verified("Signature", pinned), markup=False)
        if save is not None:
            console.print(f"Written to {save}: {', '.join(draft_file.TASK_FILES)}.", markup=False)
        if at_shuffler:  # last, so that the rest is shown even if the shuffler does not answer
            task_view.print_batch(batch(), console, found)

    return fields, show_all


@options.command(app, "shuffledp task close DIGEST")
def close(task: options.TaskArgument, connections: options.Connections) -> options.Printed:
    """Close a task's batch now if it has enough users. Needs the shuffler's operator token.

    The result is released as it would be after the deadline. Sentinels count for closing, but not
    for the release: a batch with fewer real users than n_min is never released.
    """
    options.ask(connections.shuffler, lambda client: client.close_batch(task))
    fields = {"task_digest": task.hex(), "closed": True}
    return fields, "The batch is closed: no more users can take part."
