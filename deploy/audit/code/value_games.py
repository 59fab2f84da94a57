"""
Whether reports on texts, numbers and pairs keep their local ε, and have their laws.

Two people who are told apart most easily send reports; a distinguisher learns from one half of them
how much likelier each kind of report is from the first, and is judged by the other half.
"""

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from common.accounting.guarantees import local_guarantee
from common.mechanisms.base import Reports, Vector
from common.messages.value import Value
from common.task.specs import KeyValueSpec, RapporSpec, spec_as
from common.task.task import Task
from deploy.audit import fit
from deploy.audit.audited import Audited
from deploy.audit.checks import Checks
from deploy.audit.code.value_reports import draw, name_of, set_bits, views
from deploy.audit.finding import Finding, Outcome
from deploy.audit.game import Played, play
from deploy.audit.game_rows import game_row
from deploy.audit.laws.kind_panel import kind_panel
from deploy.audit.laws.kind_values import usual_values, worst_values
from deploy.audit.laws.value_laws import bit_law

_OF_GAMES: Final = 30
"""As many times fewer reports are drawn than games that are cheap to draw."""
_LEAST: Final = 80_000
_OF_TEXTS: Final = 1000
_LEAST_TEXTS: Final = 24_000
"""A text's permanent response takes ten microseconds."""
_SHARE: Final = 0.7
"""Of a claim that is known to be reached: eight standard deviations or more below what is seen."""
_LOW, _HIGH = 1.4, 2.5
_FEW: Final = 8
_CELLS: Final = 64
"""Kinds of reports that are told apart, of a fine grid."""
_SURE: Final = 4.0
"""Standard deviations from which a bit is taken to tell something."""
_REACHING: Final = frozenset(
    {"duchi", "harmony", "mean-est", "piecewise", "hybrid", "laplace", "rappor"}
)

_Scores = Callable[[Reports], Vector]


def play_values(audited: Audited, rng: np.random.Generator) -> Outcome:
    """Play on every small task, and on the audited one if it is of such a kind."""
    rows = [_of_task(audited, rng)] if audited.task.kind != "categorical" else []
    kept, lawful = Checks(), Checks()
    own = (audited.task,) if rows else ()
    for task in (*own, *kind_panel()):
        _check_task(kept, lawful, task, audited, rng)
    return Outcome(
        findings=(
            *rows,
            kept.finding(
                scenario="kinds",
                title="Reports on texts, numbers and pairs keep their local ε",
                heading="correctness",
                sentence="Of two people who are told apart most easily no attack learnt more than "
                "is claimed; and where the claim can be reached, seven tenths of it or more "
                "were, so that no more noise is added than must be.",
                trials=_number(audited, None),
                advice="Do not collect with this version: its claims do not describe it.",
            ),
            lawful.finding(
                scenario="kinds",
                title="Reports on texts, numbers and pairs have their laws",
                heading="correctness",
                sentence="Every randomizer of texts, numbers and pairs draws with the "
                "probabilities that follow from its paper and the task's integers.",
                trials=_number(audited, None),
                advice="Do not collect with this version: its claims do not describe it.",
            ),
        )
    )


def _number(audited: Audited, task: Task | None) -> int:
    """Give how many reports are drawn of each value."""
    if task is None or task.kind != "string":
        return max(_LEAST, audited.effort.games // _OF_GAMES)
    hashes = spec_as(task.mechanism, RapporSpec).hashes
    return max(_LEAST_TEXTS, audited.effort.games // _OF_TEXTS) // hashes


def _of_task(audited: Audited, rng: np.random.Generator) -> Finding:
    task = audited.task
    drawn = [draw(task, value, _number(audited, task), rng) for value in worst_values(task)[0]]
    return game_row(
        _played(task, drawn),
        claimed=local_guarantee("shuffler+analyzer", audited.terms),
        exact=None,
        scenario="kinds",
        title="Your own report, recognised",
        heading="anonymity",
        statistic="likelihood ratio of the one report, learnt from other reports",
        sentence="If shuffler and analyzer pool what they saw, they know which report is yours; "
        "only the noise that your own device put into it still protects you.",
        advice="Put more noise into reports: it is all that holds against these two together.",
    )


def _check_task(
    kept: Checks, lawful: Checks, task: Task, audited: Audited, rng: np.random.Generator
) -> None:
    """Play on every pair of values that may be the worst, and compare the same reports."""
    name, claim, shown = name_of(task), task.local_epsilon, 0.0
    for pair in worst_values(task):
        drawn = [draw(task, value, _number(audited, task), rng) for value in pair]
        got = _played(task, drawn).epsilon_lower
        shown = max(shown, got)
        # A bound that errs with TEST_LEVEL is a test that errs with it.
        what = f"{name}: no pair of values is told apart by more than its claim"
        kept.test(what, float(got <= claim))
        _check_laws(lawful, task, pair[1], drawn[1])
    if _reaches(task):
        what = f"{name}: nearly as much noise as is claimed, and not more"
        kept.test(what, float(shown >= _SHARE * claim))
    if task.kind != "string":
        usual = usual_values(task)[0]
        _check_laws(lawful, task, usual, draw(task, usual, _number(audited, task), rng))


def _reaches(task: Task) -> bool:
    """Say whether the worst pair is known to come to the claim, often enough to be seen."""
    spec = task.mechanism
    if isinstance(spec, KeyValueSpec):
        return set(spec.fakes) == {spec.low}
    hashes = spec.hashes if isinstance(spec, RapporSpec) else 1
    # A report on many numbers, or of little noise, shows what it may too seldom to be sure of.
    usual = _LOW < task.local_epsilon < _HIGH and task.domain_size <= _FEW
    return spec.name in _REACHING and hashes == 1 and usual


def _played(task: Task, drawn: list[Reports]) -> Played:
    """Learn from the first half of both people's reports, and play the game on the second."""
    half = len(drawn[0]) // 2
    learnt = [reports[:half] for reports in drawn]
    scores = _learnt_bits(task, learnt) if task.kind == "string" else _learnt_cells(task, learnt)
    first, second = (scores(reports[half:]) for reports in drawn)
    return play(first, second)


def _learnt_bits(task: Task, learnt: list[Reports]) -> _Scores:
    """Learn what each bit of each cohort speaks for; given the cohort they are independent."""
    spec = spec_as(task.mechanism, RapporSpec)
    shares, sizes = [], []
    for reports in learnt:
        cohort, bits = reports["cohort"].astype(np.int64), set_bits(spec, reports)
        size = np.bincount(cohort, minlength=spec.cohorts)[:, np.newaxis] + 1.0
        shown = np.stack([bits[cohort == one].sum(axis=0) for one in range(spec.cohorts)])
        shares.append((shown + 0.5) / size)
        sizes.append(size)
    first, second = shares
    spread = np.sqrt(first * (1 - first) / sizes[0] + second * (1 - second) / sizes[1])
    tells = np.abs(first - second) > _SURE * spread
    of_set = np.where(tells, np.log(first / second), 0.0)
    of_unset = np.where(tells, np.log((1 - first) / (1 - second)), 0.0)

    def scores(reports: Reports) -> Vector:
        cohort = reports["cohort"].astype(np.int64)
        bits = set_bits(spec, reports)
        return np.asarray(np.where(bits, of_set[cohort], of_unset[cohort]).sum(axis=1))

    return scores


def _learnt_cells(task: Task, learnt: list[Reports]) -> _Scores:
    """Learn how much likelier each kind of report is from the first; of several answers, each."""
    kinds = _Kinds(task, np.concatenate(learnt))
    first, second = (kinds.counts(reports) + 0.5 for reports in learnt)
    ratio = np.log(first / first.sum()) - np.log(second / second.sum())
    return lambda reports: ratio[kinds.of(reports)].sum(axis=1)


class _Kinds:
    """Tells reports apart, places of a grid by ranges that are as likely as each other."""

    def __init__(self, task: Task, reports: Reports) -> None:
        self._size = task.domain_size
        self._edges = np.empty(0, dtype=np.int64)
        _, answers = self._parts(reports)
        known = np.unique(answers)
        if len(known) > _CELLS:
            known = np.unique(np.quantile(answers, np.linspace(0, 1, _CELLS), method="lower"))
        self._edges = known[1:]

    def _parts(self, reports: Reports) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Give what a report is about and what it says of that, each of shape (n, answers)."""
        names = reports.dtype.names or ()
        if "bits" in names:  # of opposite corners all that counts is how many bits are whose
            said = np.bitwise_count(reports["bits"]).sum(axis=1, dtype=np.int64)
            return np.zeros((len(said), 1), dtype=np.int64), said[:, np.newaxis]
        if "coordinates" in names:
            return reports["coordinates"].astype(np.int64), reports["codes"].astype(np.int64)
        if "key" in names:
            about, said = reports["key"], reports["said"]
            return about.astype(np.int64)[:, np.newaxis], said.astype(np.int64)[:, np.newaxis]
        said = reports[names[0]].astype(np.int64)[:, np.newaxis]
        return np.zeros_like(said), said

    def of(self, reports: Reports) -> NDArray[np.int64]:
        """Give the kinds of each report's answers, shape (n, answers)."""
        about, said = self._parts(reports)
        return about * (len(self._edges) + 1) + np.searchsorted(self._edges, said, side="right")

    def counts(self, reports: Reports) -> Vector:
        """Count answers by kind."""
        number = self._size * (len(self._edges) + 1)
        return np.bincount(self.of(reports).ravel(), minlength=number).astype(np.float64)


def _check_laws(checks: Checks, task: Task, value: Value, reports: Reports) -> None:
    """Compare reports on one value with their law."""
    name = name_of(task)
    for view in views(task, value, reports):
        seen = np.bincount(view.cells, minlength=len(view.chances))
        within = len(seen) == len(view.chances)
        checks.must(f"{name}: {view.name} that there are", within)
        if within:
            checks.test(f"{name}: {view.name} as their law says", fit.of_cells(seen, view.chances))
    if task.kind == "string":
        _check_bits(checks, task, str(value), reports)


def _check_bits(checks: Checks, task: Task, text: str, reports: Reports) -> None:
    """Compare how often each bit of each cohort is set with its own exact chance."""
    spec = spec_as(task.mechanism, RapporSpec)
    law, cohort = bit_law(spec, task.labels, text), reports["cohort"].astype(np.int64)
    bits = set_bits(spec, reports)
    sizes = np.bincount(cohort, minlength=spec.cohorts)[:, np.newaxis]
    shown = np.stack([bits[cohort == one].sum(axis=0) for one in range(spec.cohorts)])
    low, high = stats.binom.cdf(shown, sizes, law), stats.binom.sf(shown - 1, sizes, law)
    least = 2 * float(np.minimum(low, high).min())
    checks.test(f"{name_of(task)}: bits as their law says", min(1.0, law.size * least))
