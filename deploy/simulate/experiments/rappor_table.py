"""RAPPOR's settings side by side as a table for people."""

from collections.abc import Collection, Sequence
from functools import partial
from typing import Final

from rich.box import SIMPLE_HEAD
from rich.console import Console, JustifyMethod
from rich.table import Table

from common.messages.guarantee import rounded_up
from deploy.simulate.experiments.rappor_comparison import Line, RapporComparison
from deploy.terminal.escape import escaped
from deploy.terminal.tables import add_columns, fitting, print_whole

_HEADINGS: Final[dict[str, JustifyMethod]] = {
    "k": "right",
    "h": "right",
    "m": "right",
    "f": "right",
    "p": "right",
    "q": "right",
    "ε report": "right",
    "ε for good": "right",
    "L1": "right",
    "RMSE": "right",
    "found": "right",
    "false": "right",
    "found (FDR)": "right",
    "false (FDR)": "right",
    "off the list": "right",
    "seconds": "right",
}
_DISPENSABLE: Final = ("seconds", "off the list", "RMSE", "false (FDR)", "found (FDR)")


def show(table: RapporComparison, console: Console) -> None:
    """Print one line a setting, and what its figures are."""
    people = table.population
    held = int((people.people > 0).sum())
    console.print(
        f"[bold]{escaped(people.title)}:[/bold] {people.n_users:,} reports, "
        f"{held} of {len(people.candidates)} candidates held by anybody; seed {table.seed}."
    )
    made, left_out = fitting(partial(_table, table.lines), list(_HEADINGS), _DISPENSABLE, console)
    print_whole(made, console)
    headings = {str(column.header) for column in made.columns}
    for level in sorted({line.level for line in table.lines}):
        console.print(" ".join(_notes(headings, level)), style="dim", highlight=False)
    if left_out:
        console.print("A wider terminal shows more figures.", style="dim")


def _notes(headings: Collection[str], level: float) -> list[str]:
    """Explain the columns that are shown, and no others."""
    notes = [f"Found: the chance of any false one is at most {level:g} (Bonferroni)."]
    if "found (FDR)" in headings or "false (FDR)" in headings:
        notes.append(
            f"(FDR): of what is found, an expected share of {level:g} at most is false (Benjamini "
            "and Hochberg)."
        )
    notes.append("L1 is how far shares are off, the sum over all candidates.")
    if "RMSE" in headings:
        notes.append("RMSE is how far counts are off, the root of the mean square over these.")
    if "off the list" in headings:
        notes.append("Off the list: people whose string is no candidate, ± one standard error.")
    return notes


def _table(lines: Sequence[Line], headings: Sequence[str]) -> Table:
    made = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    add_columns(made, {heading: _HEADINGS[heading] for heading in headings})
    for line in lines:
        cells = _cells(line)
        made.add_row(*(cells[heading] for heading in headings))
    return made


def _cells(line: Line) -> dict[str, str]:
    letters, decoding = line.letters, line.decoding
    strict, lenient = line.found(strictly=True), line.found(strictly=False)
    return {
        "k": str(letters.k),
        "h": str(letters.h),
        "m": str(letters.m),
        "f": f"{float(letters.f):g}",
        "p": f"{float(letters.p):g}",
        "q": f"{float(letters.q):g}",
        "ε report": rounded_up(line.local_epsilon),
        "ε for good": rounded_up(line.permanent_epsilon),
        "L1": f"{line.l1:.4f}",
        "RMSE": f"{line.rmse:,.0f}",
        "found": str(strict[0]),
        "false": str(strict[1]),
        "found (FDR)": str(lenient[0]),
        "false (FDR)": str(lenient[1]),
        "off the list": f"{decoding.unexplained:,.0f} ± {decoding.unexplained_error:,.0f}",
        "seconds": f"{line.seconds:.2f}",
    }
