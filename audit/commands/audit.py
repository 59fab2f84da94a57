"""`shuffledp audit`: simulate attacks by every coalition."""

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from shuffledp.common.errors import UsageError
from shuffledp.deploy.commands import options
from shuffledp.deploy.terminal.console import show_in_browser, terminal
from shuffledp.deploy.terminal.files import write
from shuffledp.deploy.terminal.json_output import dumps, print_json

app = typer.Typer()


@options.command(app, "shuffledp audit --quick --html audit.html")
def audit(
    quick: options.Flag = False,
    full: options.Flag = False,
    task_file: Path | None = None,
    draft: Path | None = None,
    users: Annotated[int | None, typer.Option(min=1)] = None,
    scenario: list[str] | None = None,
    seed: Annotated[int, typer.Option(min=0)] = 1,
    processes: Annotated[int, typer.Option(min=0)] = 0,
    self_test: options.Flag = False,
    list_them: Annotated[bool, typer.Option("--list")] = False,
    output: Path = Path("audit.json"),
    html: Path | None = None,
    open_it: options.OpenPage = False,
    json: options.AsJson = False,
) -> None:
    """
    Simulate attacks by every coalition against the deployed code.

    The exit status is 1 if a check fails.

    Options:
        quick: Small samples: 20 seconds on two cores.  [default]
        full: Samples at least ten times larger, to detect smaller faults.
        task_file: A published task: task.json from `shuffledp task show --save`.
        draft: A task's draft.  [a built-in task: od-hp, 915 values, and one with two shufflers]
        users: Number of users for whom guarantees are stated.  [n_min of the task]
        scenario: Run only this scenario; repeatable. See --list.  [all]
        seed: Random seed; the same seed repeats the figures.
        processes: Parallel processes; 0: one per core.
        self_test: Instead of an audit, run every scenario (or those of --scenario) with a
            deliberate weakness and check that it fails; writes no files.
        list_them: List the scenarios and exit.
        output: Output file for the findings.
        html: Output file for the report as a page.  [--output, with the ending .html]
    """
    # Imported here: these load all three services, which is slow.
    from shuffledp.audit import runner
    from shuffledp.audit.report import audit_report, report_views
    from shuffledp.audit.scenario import FULL, QUICK, SMALL

    if list_them:
        report_views.show_names(runner.scenarios_named([]), terminal())
        return
    if quick and full:
        raise UsageError("use --quick or --full, not both")
    if self_test and full:
        raise UsageError("--self-test uses small samples; drop --full")
    sizes = SMALL if self_test else FULL if full else QUICK
    run = runner.AuditRun(
        subject=runner.subject_from(task_file, draft, users, sizes),
        seed=seed,
        scenarios=runner.scenarios_named(scenario or []),
        processes=processes,
        progress=runner.progress_printer(),
    )
    console = terminal(stderr=json)
    if self_test:
        results = run.self_test()
        if json:
            print_json([audit_report.self_test_json(result) for result in results])
        else:
            report_views.show_self_tests(results, console)
        if not all(result.passed for result in results):
            raise typer.Exit(1)
        return
    page = options.page_beside(output, html, "audit.html")
    report = run.audit(command=shlex.join(["shuffledp", *sys.argv[1:]]))
    fields = audit_report.as_json(report)
    write(output, dumps(fields))
    write(page, report_views.audit_page(report))
    if json:
        print_json(fields)
    else:
        report_views.show_report(report, console)
        address = page.resolve().as_uri()
        console.print(f"Written to {output}.", markup=False, soft_wrap=True)
        console.print(f"The report as a page: {address}", markup=False, soft_wrap=True)
        if open_it:
            show_in_browser(address)
    if not report.passed:
        raise typer.Exit(1)
