"""How a result is cited: a sentence and a BibTeX entry with its task, its size and its cost."""

import math
import re
from typing import Final

from common.messages.estimate import Histogram, KeyValues, Means
from common.messages.guarantee import claimed, rounded_up
from common.messages.result import Result
from common.task.specs import RapporSpec
from common.task.task import Task

_SHORT: Final = 12
"""Hexadecimal digits of the digest that name an entry."""
_WHO: Final = {"analyzer+users": "the analyzer and the users whom the task does not count on"}
_SPECIAL: Final = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{character: f"\\{character}" for character in "&%$#_"},
}


def citation(result: Result, task: Task | None, *, version: str) -> str:
    """Give a sentence that says what was collected, how privately, and which task it was."""
    return (
        f"{_title(result, task)}. Collected with shuffledp {version} "
        f"(protocol {_protocol(result, task)}), {_privacy(result)}. "
        f"Task {result.task_digest.hex()}."
    )


def bibtex(result: Result, task: Task | None, *, version: str) -> str:
    """
    Give a BibTeX entry. Whatever the population is called, it stays inside its field.

    It has no author: whoever collected is not named in a task; and no date: a result does not say
    when it was released, and a batch that fills is released long before the task's deadline.
    """
    digest = result.task_digest.hex()
    fields = {"title": f"{{{_escaped(_title(result, task))}}}"}
    fields["howpublished"] = _escaped(
        f"Collected with shuffledp {version}, protocol {_protocol(result, task)}"
    )
    fields["note"] = _escaped(f"{_privacy(result)}; task {digest}").replace(
        "epsilon", "$\\epsilon$"
    )
    fields["note"] = fields["note"].replace("delta", "$\\delta$")
    body = "".join(f"  {name} = {{{value}}},\n" for name, value in fields.items())
    return f"@misc{{shuffledp-{digest[:_SHORT]},\n{body}}}"


def title_of(result: Result, task: Task | None) -> str:
    """Say what was estimated. One cohort is that of labels or of a filter: only a task tells."""
    estimate = result.estimate
    if isinstance(estimate, Histogram):
        return f"Histogram of {len(estimate.frequencies):,} values"
    if isinstance(estimate, KeyValues):
        what = "Means" if estimate.owners is None else "Shares and means"
        return f"{what} of {len(estimate.means_with_fakes):,} keys"
    if isinstance(estimate, Means):
        size = len(estimate.means)
        return "Mean of a number" if size == 1 else f"Means of {size:,} numbers"
    cohorts, bits = estimate.bit_counts.shape
    if task is not None and isinstance(task.mechanism, RapporSpec):
        if task.mechanism.encoding == "labels":
            return f"Texts, by a bit for each of {bits:,} labels,"
    elif cohorts == 1:
        return f"Texts, by {bits:,} bits in 1 cohort,"
    return f"Texts, by filters of {bits:,} bits in {cohorts:,} cohort{'s' * (cohorts > 1)},"


def variant_of(spec: RapporSpec) -> str:
    """Name one of RAPPOR's four variants as its paper does [EPK14]."""
    return f"{'basic ' * (spec.encoding == 'labels')}{'one-time ' * spec.one_time}RAPPOR"


def _protocol(result: Result, task: Task | None) -> str:
    if task is None or not isinstance(task.mechanism, RapporSpec):
        return result.protocol
    return f"{result.protocol}: {variant_of(task.mechanism)}"


def _title(result: Result, task: Task | None) -> str:
    of_whom = f" of the population {task.population}" if task and task.population else ""
    return f"{title_of(result, task)} from {result.n_users:,} users{of_whom}"


def _privacy(result: Result) -> str:
    """State both: a small central ε is often bought by a large local one."""
    promise = claimed(result.guarantees)
    if math.isinf(promise.epsilon):
        return "without a guarantee against the analyzer"
    central = (
        f"differentially private with epsilon = {rounded_up(promise.epsilon)} and "
        f"delta = {rounded_up(promise.delta)} against {_WHO.get(promise.coalition, 'the analyzer')}"
    )
    if math.isinf(result.local_epsilon):
        return f"{central}; no guarantee against shuffler and analyzer together"
    local = rounded_up(result.local_epsilon)
    return f"{central}; epsilon = {local} against shuffler and analyzer together"


def _escaped(text: str) -> str:
    """Write text so that LaTeX shows it."""
    return re.sub(r"[\\{}~^&%$#_]", lambda found: _SPECIAL[found.group()], text)
