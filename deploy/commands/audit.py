"""`shuffledp audit`."""

import shlex
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from analyzer.registry import complete
from common.errors import SettingsError, TaskError
from common.hpke import HpkePrivateKey
from common.task import MAX_TASK_BYTES, NONCE_BYTES, Task
from common.version import VERSION
from deploy import draft_file
from deploy.audit.audited import FULL, QUICK, Audited
from deploy.audit.catalogue import SCENARIOS
from deploy.audit.faults.catalogue import FAULTS, fault_named
from deploy.audit.report import AuditReport
from deploy.audit.report_json import as_json
from deploy.audit.report_table import show_rehearsal, show_report
from deploy.audit.run import audit as play
from deploy.audit.run import rehearse, scenarios_named
from deploy.commands.example import example
from deploy.commands.options import AsJson
from deploy.datasets.catalogue import IPUMS_1940_CITY, load
from deploy.demo_task import demo_draft
from deploy.output_file import check_folder, write
from deploy.pages.audit_page import audit_page
from deploy.result_json import dumps
from deploy.screen import show_in_browser, terminal

app = typer.Typer()

_DEMO_USERS: Final = 20_000
_FAILED: Final = 1


@app.command(
    short_help="Play what each coalition could learn or spoil, and check the running code.",
    epilog=example("shuffledp audit --quick --html audit.html"),
)
def audit(
    quick: Annotated[
        bool, typer.Option("--quick", help="Draw so much that it takes a minute.  [the default]")
    ] = False,
    full: Annotated[
        bool,
        typer.Option("--full", help="Draw ten times as much: higher ceilings, smaller faults."),
    ] = False,
    task_file: Annotated[
        Path | None,
        typer.Option(help="A published task, as `shuffledp task show --save` writes task.json."),
    ] = None,
    draft: Annotated[
        Path | None, typer.Option(help="A task's draft.  [the demo's task, without --task-file]")
    ] = None,
    users: Annotated[
        int | None,
        typer.Option(min=1, help="For how many users guarantees are stated.  [n_min of the task]"),
    ] = None,
    scenario: Annotated[
        list[str] | None,
        typer.Option(help="Only this one; may be repeated. --list names them.  [all]"),
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, help="Chooses every draw: the same number, the same figures.")
    ] = 1,
    processes: Annotated[
        int, typer.Option(min=0, help="Scenarios played at once.  [one for each core]")
    ] = 0,
    plant: Annotated[
        str, typer.Option(help="Plant a fault, to see that it is found. --list names them.")
    ] = "",
    rehearsal: Annotated[
        bool,
        typer.Option(
            "--rehearse", help="Plant every fault in turn instead, and see that each is found."
        ),
    ] = False,
    list_them: Annotated[
        bool, typer.Option("--list", help="Print scenarios and faults, and exit.")
    ] = False,
    output: Annotated[Path, typer.Option(help="Where the findings are written.")] = Path(
        "audit.json"
    ),
    html: Annotated[Path, typer.Option(help="Where the report's page is written.")] = Path(
        "audit.html"
    ),
    open_it: Annotated[
        bool, typer.Option("--open", help="Open the page in this machine's browser.")
    ] = False,
    json: AsJson = False,
) -> None:
    """
    Play the coalitions' attacks on the deployed code, and test that it draws what it promises.

    The exit status is 1 if anything is not as it must be.
    """
    if list_them:
        _list(terminal())
        return
    if quick and full:
        raise SettingsError("give --quick or --full, not both")
    for path in (output, html):
        check_folder(path)
    if plant:
        fault_named(plant)
    chosen = scenarios_named(scenario or [])
    console = terminal(stderr=json)
    audited = _audited(task_file, draft, users, full=full)
    if rehearsal:
        _rehearse(audited, seed, processes, console, json=json)
        return
    with _bar(console) as progress:
        report = play(
            audited,
            seed=seed,
            scenarios=chosen,
            processes=processes,
            fault=plant,
            command=_command(),
            progress=progress,
        )
    _write(report, output, html)
    if json:
        sys.stdout.write(dumps(as_json(report)) + "\n")
    else:
        show_report(report, console)
        console.print(f"Written to {output}.", markup=False, soft_wrap=True)
        opened = open_it and show_in_browser(html.resolve().as_uri())
        page = f"{html.resolve().as_uri()}{' (opened)' * opened}"
        console.print(f"The report as a page: {page}", markup=False, soft_wrap=True)
    if not report.passed:
        raise typer.Exit(_FAILED)


@contextmanager
def _bar(console: Console) -> Iterator[Callable[[str, int, int], None]]:
    """Show how far it is, and give what is to be told so."""
    with Progress(
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}", markup=False),
        console=console,
        transient=True,
    ) as bar:
        shown = bar.add_task("", total=None)
        yield lambda what, done, total: bar.update(
            shown, description=what, completed=done, total=total
        )


def _rehearse(audited: Audited, seed: int, processes: int, console: Console, *, json: bool) -> None:
    with _bar(console) as progress:
        rehearsed = rehearse(audited, seed=seed, processes=processes, progress=progress)
    if json:
        fields = [
            {
                "fault": each.fault.name,
                "says": each.fault.says,
                "scenario": each.fault.scenario,
                "caught": each.caught,
                "said": each.said,
            }
            for each in rehearsed
        ]
        sys.stdout.write(dumps(fields) + "\n")
    else:
        show_rehearsal(rehearsed, console)
    if not all(each.caught for each in rehearsed):
        raise typer.Exit(_FAILED)


def _write(report: AuditReport, output: Path, html: Path) -> None:
    write(output, dumps(as_json(report)))
    write(html, audit_page(report))


def _command() -> str:
    """Give what was typed, to be typed again."""
    return shlex.join(["shuffledp", *sys.argv[1:]])


def _audited(
    task_file: Path | None, draft: Path | None, users: int | None, *, full: bool
) -> Audited:
    if task_file is not None and draft is not None:
        raise SettingsError("give --task-file or --draft, not both")
    found = _read(task_file) if task_file is not None else _drafted(draft)
    return Audited(
        task_bytes=found.to_bytes(),
        n_users=found.n_min if users is None else users,
        effort=FULL if full else QUICK,
    )


def _read(path: Path) -> Task:
    """
    Read a task as it was published.

    Raises:
        SettingsError: The file cannot be read.
        TaskError: It holds no task.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_TASK_BYTES + 1)
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}") from error
    if len(content) > MAX_TASK_BYTES:
        raise TaskError(f"{path} is longer than a task may be, {MAX_TASK_BYTES} bytes")
    return Task.from_bytes(content)


def _drafted(path: Path | None) -> Task:
    """Complete a draft, or the demo's, with keys that nobody keeps."""
    analyzer, shuffler = (HpkePrivateKey.generate().public_key().raw for _ in range(2))
    if path is not None:
        wanted = draft_file.read(path, shuffler)
    else:
        labels = load(IPUMS_1940_CITY).labels
        wanted = demo_draft(
            len(labels), _DEMO_USERS, now=time.time(), shuffler_key=shuffler, labels=labels
        )
    return complete(wanted, analyzer_key=analyzer, nonce=bytes(NONCE_BYTES))


def _list(console: Console) -> None:
    console.print("Scenarios:")
    for scenario in SCENARIOS:
        console.print(f"  {scenario.name:<20} {scenario.title}", markup=False, highlight=False)
    console.print("Faults, and the scenario that finds each:")
    for fault in FAULTS.values():
        found = f"  {fault.name:<26} {fault.says} ({fault.scenario})"
        console.print(found, markup=False, highlight=False, soft_wrap=True)
    console.print(f"shuffledp {VERSION}", highlight=False)
