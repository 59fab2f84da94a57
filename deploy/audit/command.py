"""What `shuffledp audit` does, with its options read; to load it is to load all three services."""

import shlex
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from analyzer.task_builder import complete
from common.crypto.hpke import HpkePrivateKey
from common.errors import SettingsError, TaskError
from common.task.task import MAX_TASK_BYTES, NONCE_BYTES, Task
from common.version import VERSION
from deploy.audit.audited import FULL, QUICK, Audited
from deploy.audit.catalogue import SCENARIOS
from deploy.audit.faults.catalogue import FAULTS, fault_named
from deploy.audit.report import AuditReport
from deploy.audit.report_json import as_json
from deploy.audit.report_table import show_rehearsal, show_report
from deploy.audit.run import audit, faults_for, rehearse, scenarios_named
from deploy.datasets.catalogue import IPUMS_1940_CITY, load
from deploy.pages.audit_page import audit_page
from deploy.tasks import drafts as draft_file
from deploy.tasks.demo_task import demo_draft
from deploy.terminal.console import show_in_browser
from deploy.terminal.json_output import dumps
from deploy.terminal.output_file import write

_DEMO_USERS: Final = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditOptions:
    """What was asked for; `shuffledp audit --help` explains each."""

    task_file: Path | None
    draft: Path | None
    users: int | None
    full: bool
    scenarios: list[str]
    seed: int
    processes: int
    plant: str
    output: Path
    html: Path
    open_it: bool
    json: bool


def play(options: AuditOptions, console: Console) -> bool:
    """
    Play the audit, write both reports, and show it.

    Returns:
        Whether everything is as it must be.
    """
    if options.plant:
        fault_named(options.plant)
    chosen, audited = scenarios_named(options.scenarios), _audited(options)
    with _bar(console) as progress:
        report = audit(
            audited,
            seed=options.seed,
            scenarios=chosen,
            processes=options.processes,
            fault=options.plant,
            command=_command(),
            progress=progress,
        )
    write(options.output, dumps(as_json(report)))
    write(options.html, audit_page(report))
    _show(report, options, console)
    return report.passed


def _show(report: AuditReport, options: AuditOptions, console: Console) -> None:
    if options.json:
        sys.stdout.write(dumps(as_json(report)) + "\n")
        return
    show_report(report, console)
    console.print(f"Written to {options.output}.", markup=False, soft_wrap=True)
    address = options.html.resolve().as_uri()
    opened = options.open_it and show_in_browser(address)
    page = f"{address}{' (opened)' * opened}"
    console.print(f"The report as a page: {page}", markup=False, soft_wrap=True)


def play_rehearsal(options: AuditOptions, console: Console) -> bool:
    """
    Plant every fault in turn, and show which were found.

    Returns:
        Whether all were.
    """
    if options.plant:
        raise SettingsError("give --rehearse, which plants every fault, or --plant, not both")
    if options.full:
        raise SettingsError("a rehearsal draws as little as shows the faults: leave --full out")
    chosen, audited = scenarios_named(options.scenarios), _audited(options)
    faults = faults_for(audited, chosen)
    if not faults:
        named = sorted(scenario.name for scenario in chosen)
        raise SettingsError(
            f"no fault is known that {' or '.join(named)} must find in a task for "
            f"{audited.task.kind} data; --list names them"
        )
    with _bar(console) as progress:
        rehearsed = rehearse(
            audited,
            seed=options.seed,
            faults=faults,
            processes=options.processes,
            progress=progress,
        )
    if options.json:
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
    return all(each.caught for each in rehearsed)


def show_names(console: Console) -> None:
    """Show what can be played, and what can be planted."""
    console.print("Scenarios:")
    for scenario in SCENARIOS:
        console.print(f"  {scenario.name:<20} {scenario.title}", markup=False, highlight=False)
    console.print("Faults, and the scenario that finds each:")
    for fault in FAULTS.values():
        found = f"  {fault.name:<26} {fault.says} ({fault.scenario})"
        console.print(found, markup=False, highlight=False, soft_wrap=True)
    console.print(f"shuffledp {VERSION}", highlight=False)


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


def _command() -> str:
    """Give what was typed, to be typed again."""
    return shlex.join(["shuffledp", *sys.argv[1:]])


def _audited(options: AuditOptions) -> Audited:
    if options.task_file is not None and options.draft is not None:
        raise SettingsError("give --task-file or --draft, not both")
    found = _drafted(options.draft) if options.task_file is None else _read(options.task_file)
    if options.users is not None and options.users < found.n_min:
        raise SettingsError(
            f"--users is {options.users}: a batch of fewer than n_min users, {found.n_min}, is "
            "never released"
        )
    return Audited(
        task_bytes=found.to_bytes(),
        n_users=found.n_min if options.users is None else options.users,
        effort=FULL if options.full else QUICK,
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
    try:
        return Task.from_bytes(content)
    except TaskError as error:
        raise TaskError(f"{path}: {error}; a draft is given with --draft") from error


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
