"""What an operator reads of a result that is no histogram: tables, and what to know of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from common.errors import SettingsError
from common.messages.estimate import BitTable, Histogram, KeyValues, Means
from common.messages.result import Result
from common.task.specs import KeyValueSpec, NumberSpec, spec_as
from common.task.task import Task
from deploy.results.decoded_texts import (
    columns_of_decoded,
    decode_candidates,
    decoded_as_json,
    of_decoded,
)
from deploy.results.estimate_columns import Columns
from deploy.results.estimate_table import EstimateTable, of_key_values, of_means

MOST_LINES: Final = 2000
"""Most lines of a page's table."""
_NO_CANDIDATES: Final = (
    "Texts are read from these counts with candidates: give a file of them with --candidates, one "
    "a line."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOut:
    """Tables, sentences, and fields for programs."""

    tables: tuple[EstimateTable, ...] = ()
    notes: tuple[str, ...] = ()
    fields: Mapping[str, Any] = field(default_factory=dict)
    size: int = 0
    """How many things were estimated."""
    columns: Columns | None = None
    """What files hold in place of the estimate: of candidates that were asked for."""


def read_out(result: Result, task: Task, candidates: Sequence[str], *, most: int) -> ReadOut:
    """
    Give what is read of a result; nothing of a histogram, which has a look of its own.

    Args:
        result: What was released.
        task: Under which it was collected.
        candidates: Texts to look for, in a task that collects texts.
        most: Lines of each table.

    Raises:
        SettingsError: There are candidates, and the task collects no texts.
    """
    estimate = result.estimate
    if candidates and not isinstance(estimate, BitTable):
        raise SettingsError(f"candidates are texts; the task collects {task.kind} data")
    if isinstance(estimate, Histogram):
        return ReadOut()
    if isinstance(estimate, Means):
        return ReadOut(
            tables=(of_means(estimate, task.labels, most=most),),
            fields=_range(spec_as(task.mechanism, NumberSpec)),
            size=len(estimate.means),
        )
    if isinstance(estimate, KeyValues):
        spec = spec_as(task.mechanism, KeyValueSpec)
        return ReadOut(
            tables=of_key_values(estimate, spec, task.labels, most=most),
            fields=_range(spec) | {"population": task.population},
            size=len(estimate.means_with_fakes),
        )
    wanted = candidates or task.labels
    if not wanted:
        return ReadOut(notes=(_NO_CANDIDATES,))
    decoded = decode_candidates(task, estimate, wanted)
    return ReadOut(
        tables=(of_decoded(decoded, most=most),),
        fields=decoded_as_json(decoded),
        size=len(wanted),
        columns=columns_of_decoded(decoded) if candidates else None,
    )


def _range(spec: NumberSpec | KeyValueSpec) -> dict[str, float]:
    return {"low": spec.low, "high": spec.high}
