"""The page of one result: what was found, how sure it is, and who is promised what."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from common.errors import WireError
from common.guarantee import claimed
from common.result import Histogram, RefusalCause, Result, interval_reach
from common.task import Task
from deploy.pages import figures
from deploy.pages.citation import bibtex, citation
from deploy.pages.collection_story import refinement_in_words, story
from deploy.pages.histogram_data import MOST_VALUES, histogram_data
from deploy.pages.page import render
from deploy.pages.parameters import parameter_groups
from deploy.pages.promises import neighbours_in_words, promises
from deploy.promise_table import CLAIM_ROOM_IN_WORDS
from deploy.result_check import check_fits
from deploy.result_rows import TOO_FEW

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
_CAUSES: Final[tuple[tuple[RefusalCause, str, str], ...]] = (
    (
        "repeated",
        "Repeated",
        "the very same sealed report came a second time, and was counted once",
    ),
    (
        "unreadable",
        "Unreadable",
        "it did not open: it was sealed to another key or for another task, or damaged on its way",
    ),
    (
        "malformed",
        "Malformed",
        "it opened, to something that no device which follows this task can have made",
    ),
)


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
    told = promises(result.guarantees)
    error = float(np.sqrt(histogram.mse_theory))
    reach = interval_reach(confidence) * error
    return render(
        "result.html",
        version=version,
        styles=("result.css",),
        scripts=_SCRIPTS,
        data=histogram_data(
            histogram,
            n_users=result.n_users,
            labels=task.labels if task else (),
            truth=truth,
            confidence=confidence,
        ),
        title=f"Histogram of {size:,} values from {result.n_users:,} users",
        result=result,
        task=task,
        digest=result.task_digest.hex(),
        size=size,
        too_few="" if histogram.tells_values_apart(confidence) else TOO_FEW,
        long_names=_long_names(task),
        held=min(size, MOST_VALUES),
        confidence=f"{100 * confidence:.4g}\N{NO-BREAK SPACE}%",
        missed=f"{100 * (1 - confidence):.4g}\N{NO-BREAK SPACE}%",
        expected_misses=_about((1 - confidence) * size),
        typical_share=figures.percent(reach, error),
        typical_users=figures.count(math.ceil(reach * result.n_users)),
        story=story(result, task),
        refinement=refinement_in_words(result),
        promises=told,
        main=next(promise for promise in told if promise.charged),
        pooled=next((p for p in told if p.coalition == "shuffler+analyzer"), None),
        neighbouring=neighbours_in_words(claimed(result.guarantees).neighbouring),
        causes=[(name, result.refused.get(cause, 0), why) for cause, name, why in _CAUSES],
        n_refused=sum(result.refused.values()),
        facts=_facts(histogram, truth),
        coverage=_coverage(histogram, truth, confidence),
        parameters=parameter_groups(task) if task else (),
        claim_room=CLAIM_ROOM_IN_WORDS if _has_room(task) else "",
        open_seconds=figures.seconds(result.open_seconds),
        estimate_seconds=figures.seconds(result.estimate_seconds),
        citation=citation(result, task, version=version),
        bibtex=bibtex(result, task, version=version),
    )


def _has_room(task: Task | None) -> bool:
    """Say whether a task's claim is more than what is computed."""
    return task is not None and task.central_epsilon < task.local_epsilon


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
