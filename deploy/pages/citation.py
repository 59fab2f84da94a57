"""Citations of a result: a sentence and a BibTeX entry with its task, size and cost."""

import math
import re
from typing import Final

from common.messages.guarantee import claimed, rounded_up
from common.messages.result import Histogram, KeyValues, Means, Result
from common.task.specs import RapporSpec
from common.task.task import Task

_SHORT: Final = 12
"""Hexadecimal digits of the digest in the name of an entry."""
_SPECIAL: Final = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{character: f"\\{character}" for character in "{}&%$#_"},
}


def citation(result: Result, task: Task, *, version: str) -> str:
    """Return a sentence with the kind of data, the guarantees and the task."""
    return (
        f"{_title(result, task)}. Collected with shuffledp {version} (protocol {_protocol(task)}), "
        f"{_privacy(result)}. Task {result.task_digest.hex()}."
    )


def bibtex(result: Result, task: Task, *, version: str) -> str:
    """
    Return a BibTeX entry. The name of the population stays inside its field.

    It has no author, since a task does not name one; and no date, since a result has none.
    """
    digest = result.task_digest.hex()
    note = _escaped(f"{_privacy(result)}; task {digest}")
    for letter in ("epsilon", "delta"):
        note = note.replace(letter, f"$\\{letter}$")
    fields = {
        "title": f"{{{_escaped(_title(result, task))}}}",
        "howpublished": _escaped(f"Collected with shuffledp {version}, protocol {_protocol(task)}"),
        "note": note,
    }
    body = "".join(f"  {name} = {{{value}}},\n" for name, value in fields.items())
    return f"@misc{{shuffledp-{digest[:_SHORT]},\n{body}}}"


def title_of(result: Result, task: Task) -> str:
    """Name the estimate."""
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
    if task.labels:
        return f"Texts, by a bit for each of {bits:,} labels,"
    return f"Texts, by filters of {bits:,} bits in {cohorts:,} cohort{'s' * (cohorts > 1)},"


def variant_of(spec: RapporSpec) -> str:
    """Name one of RAPPOR's four variants as its paper does [EPK14]."""
    return f"{'basic ' * (spec.encoding == 'labels')}{'one-time ' * spec.one_time}RAPPOR"


def _protocol(task: Task) -> str:
    spec = task.mechanism
    return f"{task.protocol}: {variant_of(spec)}" if isinstance(spec, RapporSpec) else task.protocol


def _title(result: Result, task: Task) -> str:
    population = f" of the population {task.population}" if task.population else ""
    return f"{title_of(result, task)} from {result.n_users:,} users{population}"


def _privacy(result: Result) -> str:
    """Return both ε: a small central one often costs a large local one."""
    central, local = claimed(result.guarantees), result.local_epsilon
    if math.isinf(central.epsilon):
        return "without a guarantee against the analyzer"
    users = " and the users whom the task does not count on" * (central.coalition != "analyzer")
    together = "no guarantee" if math.isinf(local) else f"epsilon = {rounded_up(local)}"
    return (
        f"differentially private with epsilon = {rounded_up(central.epsilon)} and delta = "
        f"{rounded_up(central.delta)} against the analyzer{users}; {together} against shuffler and "
        "analyzer together"
    )


def _escaped(text: str) -> str:
    """Escape text for LaTeX."""
    return re.sub(r"[\\{}~^&%$#_]", lambda found: _SPECIAL[found.group()], text)
