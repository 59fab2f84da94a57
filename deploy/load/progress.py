"""A load run as it goes, for a person: users through, their rate, and what failed."""

from types import TracebackType
from typing import Final, Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

from deploy.load.tally import Tally

_BAR: Final = 6
"""Columns: count, failures and time stay whole on a terminal of 80."""


class Bars:
    """An `Observer` that draws a bar for each phase."""

    def __init__(self, console: Console) -> None:
        self._bars = Progress(
            SpinnerColumn(finished_text=" "),
            TextColumn("{task.description}"),
            BarColumn(bar_width=_BAR),
            MofNCompleteColumn(),
            TextColumn("{task.fields[seen]}"),
            TimeElapsedColumn(),
            console=console,
        )
        self._shown: TaskID | None = None

    def begins(self, what: str, users: int | None) -> None:
        """Finish the last bar and draw another."""
        self._finish()
        self._shown = self._bars.add_task(what, total=users, seen="")

    def sees(self, tally: Tally) -> None:
        """Draw how far it is."""
        if self._shown is not None:
            failed = tally.failures.total() + tally.refusals.total()
            seen = f"{failed:,} failed" if failed else ""
            self._bars.update(self._shown, completed=tally.finished, seen=seen)

    def advance(self, users: int) -> None:
        """Draw that so many more users are done."""
        if self._shown is not None:
            self._bars.advance(self._shown, users)

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self._finish()
        self._bars.stop()

    def _finish(self) -> None:
        if self._shown is not None:
            total = self._bars.tasks[-1].total
            self._bars.update(self._shown, total=total or 1, completed=total or 1)
