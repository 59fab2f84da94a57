"""Run `shuffledp audit`. Imports all three services."""

import shlex
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from audit.finding import failed
from audit.harness.tasks import sample_chain
from audit.report.audit_report import as_json
from audit.report.report_views import audit_page, show_report, show_self_tests
from audit.runner import AuditRun, Progress
from audit.scenario import AuditSubject, SampleSizes
from audit.scenarios import SCENARIOS
from common.crypto.signing import KeyUse, SigningIdentity, prove_key
from common.crypto.token_signing import TokenSigningKey
from common.errors import TaskError, UsageError
from common.runtime.validation import read_file
from common.task.task import Task
from common.task.token_spec import TokenSpec
from deploy.datasets.names import IPUMS_1940_CITY
from deploy.datasets.sources import load
from deploy.tasks import drafts as draft_file
from deploy.tasks.drafts import DEMO_PARAMETERS, closing_draft
from deploy.tasks.task_view import preview
from deploy.terminal.console import show_in_browser
from deploy.terminal.files import write
from deploy.terminal.json_output import dumps, print_json

_DEMO_USERS: Final = 20_000


def run_audit(
    run: AuditRun, console: Console, *, output: Path, html: Path, open_it: bool, json: bool
) -> bool:
    """Run the audit, write and print its reports, and return whether all checks passed."""
    report = run.audit(command=shlex.join(["shuffledp", *sys.argv[1:]]))
    write(output, dumps(as_json(report)))
    write(html, audit_page(report))
    address = html.resolve().as_uri()
    if json:
        print_json(as_json(report))
    else:
        show_report(report, console)
        console.print(f"Written to {output}.", markup=False, soft_wrap=True)
        console.print(f"The report as a page: {address}", markup=False, soft_wrap=True)
        if open_it:
            show_in_browser(address)
    return report.passed


def run_self_test(run: AuditRun, console: Console, *, json: bool) -> bool:
    """Run all self-tests, print the results, and return whether all passed."""
    results = run.self_test()
    if json:
        fields = [
            {
                "scenario": result.scenario.name,
                "weakness": result.scenario.weakness.sentence,
                "applies": result.applies,
                "rang": result.detected,
                "said": [row.sentence for row in failed(result.weakened)],
            }
            for result in results
        ]
        print_json(fields)
    else:
        show_self_tests(results, console)
    return all(result.passed for result in results)


def show_names(console: Console) -> None:
    """Print the scenarios, each with its title and the weakness of its self-test."""
    table = Table.grid("name", "title", padding=(0, 2, 0, 0))
    for scenario in SCENARIOS:
        table.add_row(scenario.name, f"{scenario.title}\nself-test: {scenario.weakness.sentence}")
    console.print(table)


def progress_printer() -> Progress:
    """Return a callback that prints progress as plain lines on standard error."""
    started = time.monotonic()

    def show(title: str, done: int, total: int) -> None:
        name = f": {title}" if title else ""
        sys.stderr.write(f"[{time.monotonic() - started:3.0f} s] {done} of {total} done{name}\n")
        sys.stderr.flush()

    return show


def subject_from(
    task_file: Path | None, draft: Path | None, users: int | None, sizes: SampleSizes
) -> AuditSubject:
    """
    Return the subject: a task (default: the demo's) and a number of users (default: n_min).

    Without a file, it has a sample of a task with two shufflers too.

    Raises UsageError if both files are given, or `users` is below n_min; SettingsError if one
    cannot be read; TaskError if a file does not contain a valid task or draft.
    """
    if task_file is not None and draft is not None:
        raise UsageError("use --task-file or --draft, not both")
    task = _from_draft(draft) if task_file is None else _read(task_file)
    if users is not None and users < task.n_min:
        raise UsageError(f"--users is {users}; it must be at least n_min, {task.n_min}")
    sample = sample_chain() if task_file is None and draft is None else None
    return AuditSubject(task=task, n_users=users or task.n_min, sizes=sizes, sample=sample)


def _read(path: Path) -> Task:
    """Read a published task."""
    try:
        return Task.from_bytes(read_file(path))
    except TaskError as error:
        raise TaskError(f"{path}: {error}; use --draft for a draft") from error


def _throwaway_tokens(end: int) -> TokenSpec:
    """Return a token key, as of the demo's issuer, whose private half is dropped."""
    key, name = TokenSigningKey(TokenSigningKey.generate()).token_key().der, "issuer.localhost"
    proof = prove_key(SigningIdentity.generate(), KeyUse.TOKENS, name, key, end)
    return TokenSpec(issuer=name, key=key, proof=proof)


def _from_draft(path: Path | None) -> Task:
    """Complete a draft (default: the demo's) with throwaway keys."""
    if path is not None:
        return preview(draft_file.read(path), now=0.0)
    labels = load(IPUMS_1940_CITY).labels
    fields = {"domain_size": len(labels), "labels": labels, **DEMO_PARAMETERS}
    draft = closing_draft(fields, _DEMO_USERS, now=time.time())
    return preview(replace(draft, tokens=_throwaway_tokens(draft.deadline)), now=0.0)
