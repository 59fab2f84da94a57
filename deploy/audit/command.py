"""Run `shuffledp audit`; imports all three services."""

import dataclasses
import shlex
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console

from analyzer.task_builder import complete
from common.crypto.hpke import HpkePrivateKey
from common.errors import SettingsError, TaskError
from common.task.task import MAX_TASK_BYTES, NONCE_BYTES, Task
from deploy.audit.report.audit_page import audit_page
from deploy.audit.report.audit_report import as_json
from deploy.audit.report.report_table import show_alarms, show_report
from deploy.audit.runner import Progress, audit, scenarios_named, self_test
from deploy.audit.scenario import FULL, QUICK, SMALL, AuditSubject
from deploy.audit.scenarios import SCENARIOS
from deploy.datasets.catalogue import IPUMS_1940_CITY, load
from deploy.tasks import drafts as draft_file
from deploy.tasks.demo_task import HASHED, closing_draft
from deploy.terminal.console import show_in_browser
from deploy.terminal.json_output import dumps, print_json
from deploy.terminal.output_file import write

_DEMO_USERS: Final = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditOptions:
    """The command's options; see `shuffledp audit --help`."""

    task_file: Path | None
    draft: Path | None
    users: int | None
    full: bool
    scenarios: list[str]
    seed: int
    processes: int
    output: Path
    html: Path
    open_it: bool
    json: bool


def run(options: AuditOptions, console: Console) -> bool:
    """Run the audit, write both reports, show the result; return whether all checks passed."""
    report = audit(
        _subject(options),
        seed=options.seed,
        scenarios=scenarios_named(options.scenarios),
        processes=options.processes,
        command=shlex.join(["shuffledp", *sys.argv[1:]]),
        progress=_progress(),
    )
    write(options.output, dumps(as_json(report)))
    write(options.html, audit_page(report))
    address = options.html.resolve().as_uri()
    if options.json:
        print_json(as_json(report))
    else:
        show_report(report, console)
        console.print(f"Written to {options.output}.", markup=False, soft_wrap=True)
        console.print(f"The report as a page: {address}", markup=False, soft_wrap=True)
        if options.open_it:
            show_in_browser(address)
    return report.passed


def run_self_test(options: AuditOptions, console: Console) -> bool:
    """Break every scenario in turn; return whether every alarm that applies rang."""
    if options.full:
        raise SettingsError("--self-test draws as little as shows the weaknesses: drop --full")
    alarms = self_test(
        dataclasses.replace(_subject(options), sizes=SMALL),
        seed=options.seed,
        scenarios=scenarios_named(options.scenarios),
        processes=options.processes,
        progress=_progress(),
    )
    if options.json:
        fields = [
            {
                "scenario": alarm.scenario.name,
                "weakness": alarm.scenario.weakness,
                "applies": alarm.applies,
                "rang": alarm.rang,
                "said": [row.sentence for row in alarm.failed],
            }
            for alarm in alarms
        ]
        print_json(fields)
    else:
        show_alarms(alarms, console)
    return all(alarm.rang for alarm in alarms if alarm.applies or alarm.failed_before)


def show_names(console: Console) -> None:
    """List the scenarios, and the weakness of each in the self-test."""
    for scenario in SCENARIOS:
        console.print(f"{scenario.name:<22} {scenario.title}", markup=False, highlight=False)
        console.print(f"{'':<22} self-test: {scenario.weakness}", markup=False, highlight=False)


def _progress() -> Progress:
    """Print progress as plain lines on standard error, terminal or not."""
    started = time.monotonic()

    def show(title: str, done: int, total: int) -> None:
        ended = f": {title}" if title else ""
        sys.stderr.write(f"[{time.monotonic() - started:3.0f} s] {done} of {total} done{ended}\n")
        sys.stderr.flush()

    return show


def _subject(options: AuditOptions) -> AuditSubject:
    if options.task_file is not None and options.draft is not None:
        raise SettingsError("give --task-file or --draft, not both")
    found = _drafted(options.draft) if options.task_file is None else _read(options.task_file)
    if options.users is not None and options.users < found.n_min:
        raise SettingsError(
            f"--users is {options.users}: a batch of fewer than n_min users, {found.n_min}, is "
            "never released"
        )
    return AuditSubject(
        task_bytes=found.to_bytes(),
        n_users=found.n_min if options.users is None else options.users,
        sizes=FULL if options.full else QUICK,
    )


def _read(path: Path) -> Task:
    """Read a task as it was published."""
    try:
        with path.open("rb") as file:
            return Task.from_bytes(file.read(MAX_TASK_BYTES + 1))
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}") from error
    except TaskError as error:
        raise TaskError(f"{path}: {error}; a draft is given with --draft") from error


def _drafted(path: Path | None) -> Task:
    """Complete a draft, or the demo's, with throw-away keys."""
    analyzer, shuffler = (HpkePrivateKey.generate().public_key().raw for _ in range(2))
    if path is not None:
        wanted = draft_file.read(path, shuffler)
    else:
        labels = load(IPUMS_1940_CITY).labels
        fields = {"domain_size": len(labels), "labels": labels, **HASHED}
        wanted = closing_draft(fields, _DEMO_USERS, now=time.time(), shuffler_key=shuffler)
    return complete(wanted, analyzer_key=analyzer, nonce=bytes(NONCE_BYTES))
