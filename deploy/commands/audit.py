"""`shuffledp audit`."""

from pathlib import Path
from typing import Annotated, Final

import typer

from common.errors import SettingsError
from deploy.commands.example import example
from deploy.commands.options import AsJson
from deploy.terminal.console import terminal
from deploy.terminal.output_file import check_folder

app = typer.Typer()

_FAILED: Final = 1


@app.command(
    epilog=example("shuffledp audit --quick --html audit.html"),
)
def audit(
    quick: Annotated[
        bool, typer.Option("--quick", help="Small samples: 20 seconds on two cores.  [the default]")
    ] = False,
    full: Annotated[
        bool,
        typer.Option("--full", help="Ten times larger samples: they show smaller faults."),
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
        int, typer.Option(min=0, help="Seed: the same number gives the same figures.")
    ] = 1,
    processes: Annotated[
        int, typer.Option(min=0, help="Scenarios run at once; 0: one for each core.")
    ] = 0,
    self_test: Annotated[
        bool,
        typer.Option(
            "--self-test",
            help="Break every scenario in turn instead, or those of --scenario, and show that each "
            "notices; writes no files.",
        ),
    ] = False,
    list_them: Annotated[
        bool, typer.Option("--list", help="Print the scenarios, and exit.")
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
    Simulate attacks by every coalition against the running code.

    The exit status is 1 if a check fails.
    """
    # These load all three services, for which no other command should wait.
    from deploy.audit import command  # noqa: PLC0415
    from deploy.audit.runner import scenarios_named  # noqa: PLC0415
    from deploy.audit.scenario import FULL, QUICK  # noqa: PLC0415

    console = terminal(stderr=json)
    if list_them:
        command.show_names(terminal())
        return
    if quick and full:
        raise SettingsError("give --quick or --full, not both")
    if self_test and full:
        raise SettingsError("--self-test needs small samples only: drop --full")
    for path in (output, html):
        check_folder(path)
    subject = command.audited(task_file, draft, users, FULL if full else QUICK)
    chosen = scenarios_named(scenario or [])
    if self_test:
        passed = command.run_self_test(
            subject, chosen, console, seed=seed, processes=processes, json=json
        )
    else:
        passed = command.run(
            subject,
            chosen,
            console,
            seed=seed,
            processes=processes,
            output=output,
            html=html,
            open_it=open_it,
            json=json,
        )
    if not passed:
        raise typer.Exit(_FAILED)
