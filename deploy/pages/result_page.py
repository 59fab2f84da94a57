"""The page of one result: what was found, how sure it is, and who is promised what."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from common.errors import WireError
from common.messages.estimate import Histogram, interval_reach
from common.messages.result import Result
from common.task.task import Task
from deploy.pages import figures
from deploy.pages.collection_fields import collection_fields
from deploy.pages.collection_story import refinement_in_words
from deploy.pages.histogram_data import MOST_VALUES, histogram_data
from deploy.pages.page import render
from deploy.results.histogram_table import TOO_FEW
from deploy.results.verification import check_fits

_SCRIPTS: Final = (
    "values.js",
    "numbers.js",
    "scale.js",
    "canvas.js",
    "tooltip.js",
    "overview.js",
    "comparison.js",
    "bars.js",
    "download.js",
    "result.js",
)
_SHORT_NAME: Final = 12
"""Characters of a name that need no wide column."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One line of the comparison of refined and unrefined shares."""

    name: str
    unrefined: str
    refined: str


def result_page(
    result: Result,
    task: Task | None,
    *,
    truth: NDArray[np.float64] | None = None,
    confidence: float = 0.95,
    version: str,
) -> str:
    """
    Make the page of a result: one file, which shows itself without any network.

    Args:
        result: What was released.
        task: Under which it was collected, for labels and parameters; None if it is not at hand.
        truth: True shares, shape (domain_size,): known in a demo only.
        confidence: Of the intervals, above 0 and below 1.
        version: Of this program.

    Raises:
        WireError: The result does not fit the task, or the lists differ in length. What it
            promises is checked where it was read: see `check_guarantees`.
    """
    _check(result, task, truth)
    histogram = result.histogram
    size = len(histogram.frequencies)
    error = float(np.sqrt(histogram.mse_theory))
    reach = interval_reach(confidence) * error
    return render(
        "result.html",
        styles=("result.css",),
        scripts=_SCRIPTS,
        data=histogram_data(
            histogram,
            n_users=result.n_users,
            labels=task.labels if task else (),
            truth=truth,
            confidence=confidence,
        ),
        size=size,
        too_few="" if histogram.tells_values_apart(confidence) else TOO_FEW,
        long_names=_long_names(task),
        held=min(size, MOST_VALUES),
        confidence=f"{100 * confidence:.4g}\N{NO-BREAK SPACE}%",
        missed=f"{100 * (1 - confidence):.4g}\N{NO-BREAK SPACE}%",
        expected_misses=_about((1 - confidence) * size),
        typical_share=figures.percent(reach, error),
        typical_users=figures.count(math.ceil(reach * result.n_users)),
        refinement=refinement_in_words(result),
        facts=_facts(histogram, truth),
        coverage=_coverage(histogram, truth, confidence),
        **collection_fields(result, task, version=version),
    )


def _long_names(task: Task | None) -> bool:
    """Say whether names need a wide column."""
    return task is not None and max(map(len, task.labels), default=0) > _SHORT_NAME


def _check(result: Result, task: Task | None, truth: NDArray[np.float64] | None) -> None:
    size = len(result.histogram.frequencies)
    if truth is not None and len(truth) != size:
        raise WireError(f"there are {len(truth)} true shares for a result of {size} values")
    if task is not None:
        check_fits(result, task)


def _facts(histogram: Histogram, truth: NDArray[np.float64] | None) -> tuple[Fact, ...]:
    """Compare the two estimates in numbers."""
    both = (histogram.frequencies, histogram.refined)
    facts = [
        Fact(
            name="Sum of all shares",
            **_columns(f"{100 * x.sum():.2f}\N{NO-BREAK SPACE}%" for x in both),
        ),
        Fact(name="Values below 0", **_columns(f"{int((x < 0).sum()):,}" for x in both)),
    ]
    if (histogram.refined == 0).any():
        zeros = (f"{int((x == 0).sum()):,}" for x in both)
        facts.append(Fact(name="Values at exactly 0", **_columns(zeros)))
    if truth is not None:
        errors = [figures.scientific(float(np.mean((x - truth) ** 2))) for x in both]
        facts.append(Fact(name="Mean squared error against the truth", **_columns(errors)))
    in_theory = figures.scientific(histogram.mse_theory)
    facts.append(Fact(name="Mean squared error in theory", unrefined=in_theory, refined="–"))
    return tuple(facts)


def _about(number: float) -> str:
    """Write a number that need not be exact."""
    return f"{number:,.0f}" if number >= 10 else f"{number:.2g}"  # noqa: PLR2004  # two digits


def _columns(texts: Iterable[str]) -> dict[str, str]:
    unrefined, refined = texts
    return {"unrefined": unrefined.replace("-", "\N{MINUS SIGN}"), "refined": refined}


def _coverage(
    histogram: Histogram, truth: NDArray[np.float64] | None, confidence: float
) -> str | None:
    """Say how many intervals hold the truth, where it is known."""
    if truth is None:
        return None
    low, high = histogram.interval(confidence)
    held = int(((low <= truth) & (truth <= high)).sum())
    return f"{held:,} of {len(truth):,} ({100 * held / len(truth):.1f}\N{NO-BREAK SPACE}%)"
