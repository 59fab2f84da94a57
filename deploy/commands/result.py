"""`shuffledp result`, `ledger`, `iterate`, `discover-labels`: releases, cost, next drafts."""

from functools import partial
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from shuffledp.common.crypto.signing import SignedTask
from shuffledp.deploy.commands import options
from shuffledp.deploy.terminal.console import print_written, terminal
from shuffledp.deploy.terminal.files import write

app = typer.Typer()

_QUANTILES: Final = "quantiles are numbers between 0 and 1, such as .5,.9"


@options.command(
    app, "shuffledp result DIGEST", "shuffledp result DIGEST --quantile .5,.9 --range 18:65"
)
def result(
    task: options.TaskArgument,
    connections: options.Connections,
    top: Annotated[int, typer.Option(min=1)] = 20,
    html: options.Page = None,
    csv: options.OptionalOutput = None,
    parquet: options.OptionalOutput = None,
    candidates: Path | None = None,
    quantile: str = ".05,.25,.5,.75,.95",
    ranges: Annotated[list[str] | None, typer.Option("--range")] = None,
    guarantees: options.AllGuarantees = False,
) -> options.Printed:
    """
    Print or write a released result with 95 % intervals. Needs the operator token.

    Options:
        top: Number of largest values to print.
        csv: Write every value as CSV.
        parquet: Write every value as Parquet; needs pyarrow.
        candidates: File of texts to look for, one per line, in a task that collects texts. Output
            files then have a row per text.
        quantile: Quantiles of ordered data, such as .5,.9.
        ranges: A range or bucket of ordered data, such as 18:65; repeatable.
    """
    from shuffledp.common.messages.result import Result
    from shuffledp.common.messages.submission import parse_numbers
    from shuffledp.common.task.task import Task
    from shuffledp.deploy.clients.analyzer import OperatorClient
    from shuffledp.deploy.pages.result_page import result_page
    from shuffledp.deploy.results import decoder, distribution_view, verification
    from shuffledp.deploy.results.export import as_json, task_as_json, write_csv, write_parquet
    from shuffledp.deploy.results.result_view import MAX_ROWS, print_result, result_view

    texts = () if candidates is None else decoder.read_candidates(candidates)

    async def read(operator: OperatorClient) -> tuple[SignedTask, Result]:
        found = await operator.result(task)
        signed, _ = await operator.describe(task)
        return signed, found

    signed, found = options.ask(connections.analyzer, read)
    published = Task.from_bytes(signed.task_bytes)
    verification.check_fits(found, published)
    found = verification.recompute_guarantees(found, published)
    # Before any output: candidates that cannot be decoded leave no file.
    asked = distribution_view.Questions(
        batch=found,
        task=published,
        quantiles=parse_numbers(quantile, _QUANTILES),
        ranges=distribution_view.asked_ranges(published, ranges or ()),
    )
    build = partial(result_view, found.estimate, published, candidates=texts, questions=asked)
    view = build(most=top)
    if csv is not None:
        write_csv(csv, view.columns)
    if parquet is not None:
        write_parquet(parquet, found, view.columns)
    if html is not None:
        write(html, result_page(found, published, build(most=MAX_ROWS)))

    def show(console: Console) -> None:
        print_result(found, view, console, guarantees=guarantees, task=published)
        print_written((html, csv, parquet), console)

    return {**as_json(found), **task_as_json(published), **view.fields}, show


@options.command(app, "shuffledp ledger")
def ledger(
    connections: options.Connections,
    analyzer_identity: Path | None = None,
    html: options.Page = None,
) -> options.Printed:
    """
    Print the cost of every release, and each population's remaining budgets.

    Also prints decisions on batches without a result. Verifies the ledger's chain and, with the
    analyzer's identity, the decisions' signatures. Needs the operator token.

    Options:
        analyzer_identity: The analyzer's identity.pub, to verify decisions.  [the profile's]
    """
    from shuffledp.deploy.clients.analyzer import OperatorClient
    from shuffledp.deploy.pages.result_page import releases_page
    from shuffledp.deploy.results.ledger import LedgerView
    from shuffledp.deploy.tasks.population_budgets import budgets_by_population

    pinned = connections.file("analyzer_identity", analyzer_identity)
    signer = options.read_identity(pinned) if pinned else None

    async def read(operator: OperatorClient) -> LedgerView:
        entries, head = await operator.ledger()
        return LedgerView(entries, head, await budgets_by_population(entries, operator))

    found = options.ask(connections.analyzer, read)
    if signer is not None:
        for decision in found.decisions:
            decision.verify(signer)
    if html is not None:
        write(html, releases_page(found))

    def show(console: Console) -> None:
        found.show(console)
        if found.decisions:
            console.print(options.verified("Signatures of decisions", pinned), markup=False)
        print_written([html], console)

    return found.as_json(), show


@options.command(
    app,
    "shuffledp iterate films.toml --iterations 3 --output first.toml",
    "shuffledp iterate films.toml --iterations 3 --number 2 --after first.json "
    "--output second.toml",
)
def iterate(
    draft: Annotated[Path, typer.Argument()],
    iterations: Annotated[int, typer.Option(min=1)],
    output: options.Output,
    number: int = 1,
    after: Path | None = None,
) -> None:
    """
    Write the draft of one PrivKVM iteration, to publish with `task create`.

    Options:
        draft: Draft for all iterations; its local_epsilon is their total cost.
        iterations: Number of iterations.
        output: Output file for the iteration's draft.
        number: Number of this iteration, from 1.
        after: Result of the previous iteration, from `shuffledp result --json`.
    """
    from shuffledp.deploy.results.next_task import Iterated, next_draft, read_result
    from shuffledp.deploy.tasks import drafts as draft_file

    whole = draft_file.read(draft)
    before = None if after is None else read_result(after, Iterated, "key-value")
    write(output, draft_file.as_toml(next_draft(whole, iterations, number, before)))
    print_written([output], terminal())


@options.command(
    app,
    "shuffledp discover-labels found.json --output labels.toml",
    "shuffledp discover-labels hashes.json --spell --output spell.toml",
)
def discover_labels(
    found: Annotated[Path, typer.Argument()], output: options.Output, spell: options.Flag = False
) -> None:
    """
    Write the values that discover found as labels, to count or spell them in a second task.

    Options:
        found: Result of discover, from `result --json`.
        output: Output file: part of a draft for `task create`.
        spell: Ask for the texts whose hashes were found.
    """
    from shuffledp.deploy.results.next_task import FoundTexts, labels_fragment, read_result

    write(output, labels_fragment(read_result(found, FoundTexts, "open"), spell=spell))
    print_written([output], terminal())
