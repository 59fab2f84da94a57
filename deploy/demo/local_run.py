"""A batch that services on this machine collected: its task, its result, and their files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from shuffledp.common.errors import ArgumentError
from shuffledp.common.messages.guarantee import claimed, rounded_up
from shuffledp.common.messages.result import BitTable, Result
from shuffledp.common.task.task import Task
from shuffledp.deploy.notebook.arguments import checked
from shuffledp.deploy.pages.result_page import result_page
from shuffledp.deploy.results import distribution_view, estimate_table, export, result_view
from shuffledp.deploy.terminal import files, json_output

_Path = Annotated[str | Path, "the path of a file to write"]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class LocalRun:
    """A task and its released result."""

    task: Task
    result: Result
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Durations of submitting and shuffling."""

    def __repr__(self) -> str:
        """Return one line, for notebooks."""
        epsilon = rounded_up(claimed(self.result.guarantees).epsilon)
        return f"<{self.result.n_users:,} users by {self.task.protocol}, central ε {epsilon}>"

    def view(self) -> estimate_table.ResultView:
        """Return the estimates."""
        return self.estimates()

    def estimates(
        self, most: int = result_view.MAX_ROWS, candidates: Sequence[str] = ()
    ) -> estimate_table.ResultView:
        """Return the estimates; of texts those of candidates, by default the task's labels."""
        estimate, task = self.result.estimate, self.task
        texts = (candidates or task.labels) if isinstance(estimate, BitTable) else ()
        asked = distribution_view.Questions(batch=self.result, task=task)
        return result_view.result_view(estimate, task, most=most, candidates=texts, questions=asked)

    @property
    def columns(self) -> estimate_table.Columns:
        """The view's columns."""
        return self.view().columns

    def as_json(self) -> dict[str, Any]:
        """Return the content of a result's file."""
        fields, view = export.as_json(self.result), self.view()
        seconds = {**self.seconds, **fields["seconds"]}
        return {**fields, **export.task_as_json(self.task), "seconds": seconds, **view.fields}

    @checked
    def save(self, json: _Path, html: _Path | None = None, *, quiet: bool = True) -> None:
        """Write the result to `json` and its page to `html`; `quiet` if the caller names them."""
        if html is not None and Path(json).resolve() == Path(html).resolve():
            raise ArgumentError("json and html are the same file")
        files.write(Path(json), json_output.dumps(self.as_json()), quiet=quiet)
        if html is not None:
            files.write(Path(html), result_page(self.result, self.task, self.view()), quiet=quiet)
