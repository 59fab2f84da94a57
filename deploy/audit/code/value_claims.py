"""
Whether what is claimed of texts, numbers and pairs is no less than is true.

Local claims are held to the laws of reports; those of which nothing but the local ε is used to the
formula of clones, summed over every number of clones and every count.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from scipy import stats

from common.accounting.guarantees import Terms, claimable_epsilon, claimed_guarantee, guarantees
from common.mechanisms.base import Vector
from common.mechanisms.reduction import MatchCountReduction, PureReduction
from common.mechanisms.registry import randomizer_of
from common.task.specs import KeyValueSpec, NumberSpec, RapporSpec, spec_as
from common.task.task import Task
from deploy.audit.audited import Audited
from deploy.audit.checks import Checks
from deploy.audit.code.value_reports import FEW_CORNERS, name_of
from deploy.audit.finding import Outcome
from deploy.audit.laws.kind_panel import asked_again, kind_panel
from deploy.audit.laws.value_laws import (
    answer_law,
    bit_chances,
    corner_law,
    pair_law,
    report_epsilon,
)

_USERS: Final = 1500
"""So few that every number of clones and every count is a term of a sum."""
_CLOSE: Final = 0.02
"""How much more δ, or ε, than need be is let pass; bins are charged at their edges."""
_EXACT: Final = 1e-6
_DEVIATIONS: Final = 9.0


def play_value_claims(audited: Audited, rng: np.random.Generator) -> Outcome:
    """Work every claim out a second way; nothing is drawn."""
    del rng
    checks = Checks()
    own = (audited.task,) if audited.task.kind != "categorical" else ()
    for task in (*own, *kind_panel()):
        _check_local(checks, task)
        _check_blanket(checks, task)
        _check_central(checks, task, as_it_is=task in own)
        if task.kind == "string":
            _check_asked_again(checks, task)
    finding = checks.finding(
        scenario="kind-claims",
        title="Claims of texts, numbers and pairs are no less than is true",
        heading="correctness",
        coalition="analyzer",
        sentence="Local claims are the odds of the reports' own laws. Where no more than the local "
        "ε is used, the central ε is that of clones with a coin, summed term by term; where a "
        "question keeps its permanent responses, nothing but the local ε is claimed.",
        advice="Believe no figure of this version that is not about items.",
    )
    return Outcome(findings=(finding,))


def _check_local(checks: Checks, task: Task) -> None:
    """No two values' laws of a report differ by more than a task claims."""
    name, worst = name_of(task), _worst_odds(task)
    if worst is None:
        return
    low, stated = math.log(worst), randomizer_of(task).local_epsilon
    checks.must(
        f"{name}: the local ε is no less than its law's odds",
        min(stated, task.local_epsilon) >= low * (1 - _EXACT),
    )
    if not isinstance(task.mechanism, KeyValueSpec):  # of pairs the sum of both parts is claimed
        checks.must(f"{name}: and hardly more", stated <= low * (1 + _EXACT))


def _worst_odds(task: Task) -> float | None:
    """Give the largest ratio of two values' chances of one report; None of too many corners."""
    spec = task.mechanism
    if isinstance(spec, RapporSpec):
        return math.exp(report_epsilon(spec))
    if isinstance(spec, KeyValueSpec):
        keys = range(task.domain_size)
        everything, least = (dict.fromkeys(keys, end) for end in (spec.high, spec.low))
        people: tuple[dict[int, float], ...] = (everything, least, {})
        return _odds([pair_law(spec, task.domain_size, owned) for owned in people])
    if spec.name == "mean-est":
        if task.domain_size > FEW_CORNERS:
            return None
        ends = ([one] * task.domain_size for one in (1.0, -1.0))
        return _odds([corner_law(spec, corner)[0] for corner in ends])
    numbers = spec_as(spec, NumberSpec)
    laws = [answer_law(numbers, end).chances for end in (-1.0, 1.0)]
    likely = np.minimum(*laws) > np.finfo(float).tiny  # of what is cut, rounding is all there is
    return float(_odds([law[likely] for law in laws]) ** numbers.sampled)


def _odds(laws: Sequence[Vector]) -> float:
    table = np.stack(laws)
    return float((table.max(axis=0) / table.min(axis=0)).max())


def _check_blanket(checks: Checks, task: Task) -> None:
    """What two opposite people's reports have in common is what the accountant hides others in."""
    reduction, spec, name = randomizer_of(task).reduction, task.mechanism, name_of(task)
    if not isinstance(reduction, MatchCountReduction):
        return
    if isinstance(spec, RapporSpec):
        # A report leaves a bit unset with chance 1 - p*, and one that its text sets with 1 - q*.
        unset, shown = bit_chances(spec)
        shared = (1 - shown) / (1 - unset)
    elif spec.name == "mean-est":
        if task.domain_size > FEW_CORNERS:
            return
        laws = [corner_law(spec, [one] * task.domain_size)[0] for one in (-1.0, 1.0)]
        shared = float(np.minimum(*laws).sum())
    else:
        ends = [answer_law(spec_as(spec, NumberSpec), one).chances for one in (-1.0, 1.0)]
        shared = float(np.minimum(*ends).sum())
    checks.must(
        f"{name}: the blanket of its law", math.isclose(reduction.blanket, shared, rel_tol=_EXACT)
    )


def _check_central(checks: Checks, task: Task, *, as_it_is: bool) -> None:
    """
    Claims that rest on the local ε alone are no less than a second sum says, of more people too.

    Those that rest on a blanket are held to formula 1, summed once more, by `accountant`.
    """
    name = name_of(task)
    reduction = randomizer_of(task).reduction
    if not isinstance(reduction, PureReduction) or not task.amplified:
        return
    larger = dataclasses.replace(
        task,
        n_min=_USERS,
        target_size=_USERS,
        assumed_honest_fraction=1.0,
        central_epsilon=0.0,
    )
    claim = claimable_epsilon(larger)
    sums = [(claim, _USERS)]
    if as_it_is and task.n_min <= _USERS:
        sums.append((task.central_epsilon, task.honest_users(task.n_min)))
    for epsilon, users in sums:
        if not 0 < epsilon < task.local_epsilon:
            continue
        right = clones_by_hand(reduction.local_epsilon, users, epsilon)
        checks.must(
            f"{name}: the central claim is no less than by another sum",
            right <= task.delta * (1 + _CLOSE),
        )
        checks.must(
            f"{name}: and hardly more than by another sum",
            clones_by_hand(reduction.local_epsilon, users, (1 - _CLOSE) * epsilon)
            > task.delta * (1 - _CLOSE),
        )
    promised = claimed_guarantee(Terms.of(larger), _USERS).epsilon
    checks.must(f"{name}: what is claimed is what is promised", promised <= claim)


def clones_by_hand(local_epsilon: float, users: int, epsilon: float) -> float:
    """
    Sum δ of hiding among clones with a coin, as it is written [FMT21], [FMT23].

    One of two worlds draws J, how many of m = 1 + Bin(users-1, e^-ε0) coins fell on the second
    side, where one of them, the victim's, falls there with odds 1 : e^ε0, and with e^ε0 : 1 in the
    other. δ is Σ over m and J of the excess of the first chance over e^ε times the second.

    Args:
        local_epsilon: ε0.
        users: Who hide each other, at least 1.
        epsilon: At which δ is wanted.
    """
    odds = math.exp(local_epsilon)
    others, chance = users - 1, 1 / odds
    mean, spread = others * chance, math.sqrt(others * chance * (1 - chance))
    low = max(0, math.floor(mean - _DEVIATIONS * spread))
    high = min(others, math.ceil(mean + _DEVIATIONS * spread))
    total = 0.0
    for clones in range(low, high + 1):
        counts = np.arange(clones + 2)
        fair = stats.binom.pmf(counts, clones, 0.5)
        before = np.concatenate([[0.0], fair[:-1]])
        one = (odds * fair + before) / (odds + 1)
        other = (fair + odds * before) / (odds + 1)
        excess = np.maximum(one - math.exp(epsilon) * other, 0).sum()
        total += float(stats.binom.pmf(clones, others, chance)) * float(excess)
    return total


def _check_asked_again(checks: Checks, task: Task) -> None:
    """Of people who may be asked the same again nothing is claimed but the local ε."""
    again = dataclasses.replace(asked_again(task), n_min=_USERS, target_size=_USERS)
    checks.must(
        "texts that are asked for again claim their local ε",
        claimable_epsilon(dataclasses.replace(again, central_epsilon=0.0)) == task.local_epsilon,
    )
    promised = min(
        row.epsilon for row in guarantees(again, _USERS, 0) if row.coalition == "analyzer"
    )
    checks.must("and are promised no more", promised == task.local_epsilon)
