"""What an operator reads from the analyzer: released results and the ledger."""

import asyncio
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from common.messages.result import Result
from common.task.task import Task
from common.version import VERSION
from deploy.clients.analyzer import OperatorClient
from deploy.commands.example import example
from deploy.commands.options import (
    AnalyzerAddress,
    AsJson,
    Authority,
    Certificate,
    CertificateKey,
    TaskArgument,
    TokenFile,
)
from deploy.pages.estimates_page import estimates_page
from deploy.pages.releases_page import releases_page
from deploy.pages.result_page import result_page
from deploy.results import histogram_table as result_rows
from deploy.results import ledger as ledger_table
from deploy.results.decoded_texts import read_candidates
from deploy.results.estimate_columns import columns_of
from deploy.results.estimate_table import print_table
from deploy.results.result_json import as_json
from deploy.results.result_tables import MOST_LINES, ReadOut, read_out
from deploy.results.verification import check_fits, check_guarantees
from deploy.tasks.guarantee_table import show_promises
from deploy.tasks.population_budgets import of_populations
from deploy.terminal.console import terminal
from deploy.terminal.escape import shown
from deploy.terminal.json_output import dumps
from deploy.terminal.output_file import check_folder, write

app = typer.Typer()


@app.command(
    short_help="Print a released result, or write it.",
    epilog=example(
        "shuffledp result 5b1f --analyzer 127.0.0.1:7001 --token-file "
        "state/analyzer/operator.token --authority state/tls/authority.pem",
    ),
)
def result(
    task: TaskArgument,
    analyzer: AnalyzerAddress,
    token_file: TokenFile,
    authority: Authority = None,
    certificate: Certificate = None,
    key: CertificateKey = None,
    top: Annotated[int, typer.Option(min=1, help="How many of the largest values to print.")] = 20,
    html: Annotated[
        Path | None, typer.Option(help="Write one page that a browser shows, without network.")
    ] = None,
    csv: Annotated[Path | None, typer.Option(help="Write every value as CSV.")] = None,
    parquet: Annotated[
        Path | None,
        typer.Option(help="Write every value as Parquet, a table for programs; needs pyarrow."),
    ] = None,
    candidates: Annotated[
        Path | None,
        typer.Option(
            help="A file of texts to look for, one a line: of a task that collects texts. Files "
            "then hold what was found of each."
        ),
    ] = None,
    json: AsJson = False,
) -> None:
    """Print a released result with 95 % intervals, or write it. Needs the operator's token."""
    for path in (html, csv, parquet):
        check_folder(path)
    looked_for = () if candidates is None else read_candidates(candidates)

    async def read() -> tuple[Task, Result]:
        async with OperatorClient.connect(
            analyzer, authority, token_file, certificate, key
        ) as operator:
            return await read_checked(operator, task)

    published, found = asyncio.run(read())
    # Before anything is written: candidates that cannot be decoded leave no file.
    report = read_out(found, published, looked_for, most=top)
    if csv is not None or parquet is not None:
        columns = report.columns or columns_of(found.estimate, published.labels)
        if csv is not None:
            result_rows.write_csv(csv, columns)
        if parquet is not None:
            result_rows.write_parquet(parquet, found, columns)
    if html is not None:
        whole = read_out(found, published, looked_for, most=MOST_LINES)
        write(html, page_of(found, published, whole))
    if json:
        fields = {**as_json(found), "labels": published.labels, **report.fields}
        sys.stdout.write(dumps(fields) + "\n")
        return
    console = terminal()
    show_result(found, published, report, console, top)
    for path in (html, csv, parquet):
        if path is not None:
            console.print(f"Written to {path}.", markup=False)


async def read_checked(operator: OperatorClient, digits: str) -> tuple[Task, Result]:
    """
    Read a result and its task, and check all that the one says of the other.

    Args:
        operator: The analyzer.
        digits: What the task's digest begins with.

    Raises:
        WireError: They do not fit, or the result promises what the task does not.
    """
    digest = await operator.find(digits)
    found = await operator.result(digest)
    signed, _ = await operator.describe(digest)
    published = Task.from_bytes(signed.task_bytes)
    check_fits(found, published)
    check_guarantees(found, published)
    return published, found


def page_of(found: Result, published: Task, report: ReadOut) -> str:
    """Make the page of a result, of whatever kind it is."""
    if published.kind == "categorical":
        return result_page(found, published, version=VERSION)
    return estimates_page(
        found,
        published,
        report.tables,
        notes=report.notes,
        size=report.size,
        version=VERSION,
    )


def show_result(
    found: Result, published: Task, report: ReadOut, console: Console, top: int
) -> None:
    """Print a result for a reader; no text of it, whoever wrote it, steers the terminal."""
    console.print(f"Task {found.task_digest.hex()}", soft_wrap=True)
    n_refused = sum(found.refused.values())
    causes = ", ".join(f"{n:,} {shown(cause)}" for cause, n in found.refused.items() if n)
    console.print(
        f"{found.n_users:,} users by {shown(found.protocol)}; {found.n_reports:,} reports, of them "
        f"{n_refused:,} refused{f': {causes}' * bool(n_refused)}."
    )
    if published.kind == "categorical":
        result_rows.show(found, published.labels, console, most=top)
        console.print(
            "Each interval covers its true share with 95 % probability, by itself: of many values, "
            "some are missed. Refined shares are no less than 0 and sum to 1."
        )
    for table in report.tables:
        print_table(table, console)
    for note in report.notes:
        console.print(note)
    title = "What each user is promised"
    show_promises(found.guarantees, title, console)


@app.command(
    short_help="Print what every release cost, and what is left of budgets.",
    epilog=example(
        "shuffledp ledger --analyzer 127.0.0.1:7001 --token-file state/analyzer/operator.token "
        "--authority state/tls/authority.pem",
    ),
)
def ledger(
    analyzer: AnalyzerAddress,
    token_file: TokenFile,
    authority: Authority = None,
    certificate: Certificate = None,
    key: CertificateKey = None,
    html: Annotated[
        Path | None, typer.Option(help="Write one page that a browser shows, without network.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Print what every release cost, and what each population has left of its budgets.

    Checks that no entry was changed, and needs the operator's token.
    """
    check_folder(html)

    async def read() -> None:
        async with OperatorClient.connect(
            analyzer, authority, token_file, certificate, key
        ) as operator:
            entries, head = await operator.ledger()
            populations = await of_populations(entries, operator)
        if html is not None:
            write(html, releases_page(entries, head, populations, version=VERSION))
        if json:
            sys.stdout.write(dumps(ledger_table.as_json(entries, head, populations)) + "\n")
            return
        console = terminal()
        ledger_table.show(entries, head, populations, console)
        if html is not None:
            console.print(f"Written to {html}.", markup=False)

    asyncio.run(read())
