"""Detection of lost reports and of a kept order: the analyzer's judgement against exact rates."""

import math
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from analyzer.intake import FALSE_ALARM, check_batch, match_sentinels
from analyzer.storage.task_table import Sentinel
from common.crypto.merkle import leaf
from common.errors import SuspectBatchError
from common.task.shuffler_spec import KEEP_SUM
from common.task.task import Task
from deploy.audit.finding import Checks, Finding, Findings
from deploy.audit.scenario import AuditSubject
from deploy.audit.statistics import p_binomial, p_poisson

Reports = list[bytes]

_REPORT_BYTES: Final = 64
_SUBMISSIONS: Final = 200
_SENTINELS: Final = 10
_DROPPED: Final = 20
_ORDERS: Final = 100
_ORDERS_PER_TRIAL: Final = 2000
IN_ORDER: Final = 16
"""Sentinels whose order is judged; a kept order is noticed from thirteen on."""
_TOO_FEW: Final = 12


def sentinel_rate(
    scenario: str, subject: AuditSubject, rng: np.random.Generator, *, planted: bool = True
) -> Finding:
    """
    Drop m of N submissions at random, s of them sentinels, and let the analyzer judge the batch.

    A sentinel is missing with probability 1 - C(N-s, m) / C(N, m). Where the task lets the shuffler
    sample, Bin(s, κ(1-φ)) sentinels' reports remain, φ the share dropped beside the task's own. The
    analyzer rejects the batch if their number is outside quantiles of Bin(s, κ); φ is chosen so
    that it does so about every other time.

    Args:
        scenario: Its name.
        subject: The audited task.
        rng: Draws reports and losses.
        planted: Whether the analyzer knows the sentinels.
    """
    task, trials = subject.task, max(_ORDERS, subject.sizes.orders // _ORDERS_PER_TRIAL)
    if task.shuffler.kept == 1:
        expected = 1 - math.comb(_SUBMISSIONS - _SENTINELS, _DROPPED) / math.comb(
            _SUBMISSIONS, _DROPPED
        )
        n_sentinels, n_others = _SENTINELS, _SUBMISSIONS - _SENTINELS
        lost = f"{_DROPPED} of {_SUBMISSIONS} submissions lost"

        def remaining(n: int) -> NDArray[np.int64]:
            return rng.permutation(n)[_DROPPED:]

    else:
        trials //= 4
        n_sentinels, share, expected = _sampled_design(task.shuffler.kept)
        n_others, lost = 0, f"{share:.0%} of the reports lost beside those that the task drops"

        def remaining(n: int) -> NDArray[np.int64]:
            there = rng.random(n) < task.shuffler.kept * (1 - share)
            return rng.permutation(np.flatnonzero(there))

    sentinels = _draw_reports(n_sentinels, rng)
    batch, known = sentinels + _draw_reports(n_others, rng), sentinels if planted else []
    rejected = sum(
        rejects([batch[place] for place in remaining(len(batch)).tolist()], known, task)
        for _ in range(trials)
    )
    checks = Checks()
    checks.test("rate of rejected batches", p_binomial(rejected, trials, expected))
    return checks.finding(
        scenario=scenario,
        title=f"Detection by sentinels: {lost}, {n_sentinels} sentinels",
        heading="server disruption",
        coalition="shuffler",
        sentence="A shuffler that loses submissions is noticed as often as it hits sentinels by "
        "chance, as calculated.",
        expected=expected,
        measured=rejected / trials,
        trials=trials,
    )


def _sampled_design(kept: float) -> tuple[int, float, float]:
    """Return the sentinels to plant, the share to drop, and the rate of rejected batches."""
    s = math.ceil(min(600.0, max(24.0, 2.5 * math.log(FALSE_ALARM / 2) / math.log1p(-kept))))
    fewest, most = (
        stats.binom.ppf(FALSE_ALARM / 2, s, kept),
        stats.binom.isf(FALSE_ALARM / 2, s, kept),
    )
    rates: dict[float, float] = {}
    for share in np.linspace(0.05, 1.0, 20).tolist():
        remaining = stats.binom(s, kept * (1 - share))
        rates[share] = float(remaining.cdf(fewest - 1) + remaining.sf(most))
    share = min(rates, key=lambda dropped: abs(rates[dropped] - 1 / 2))
    return s, share, rates[share]


def keeping_the_order(
    subject: AuditSubject, rng: np.random.Generator, *, planted: bool = True
) -> Findings:
    """Deliver sentinels in order and shuffled. `planted`: the analyzer knows them."""
    # The order of those that a sampling shuffler kept is judged alike.
    spec = replace(subject.task.shuffler, keep_weight=KEEP_SUM)
    task, scenario = replace(subject.task, shuffler=spec), "shuffler-keeps-order"
    checks, unnoticed, sentinels = Checks(), Checks(), _draw_reports(IN_ORDER, rng)
    known = sentinels if planted else []
    for order in (sentinels, sentinels[::-1]):
        checks.must("a kept or reversed order is noticed", rejects(order, known, task))
    alarms = sum(
        rejects([sentinels[place] for place in rng.permutation(IN_ORDER)], known, task)
        for _ in range(_ORDERS)
    )
    checks.test("false alarms", p_poisson(alarms, FALSE_ALARM * _ORDERS))
    finding = checks.finding(
        scenario=scenario,
        title=f"{IN_ORDER} sentinels in a batch that was not shuffled",
        heading="server disruption",
        coalition="shuffler",
        sentence="The analyzer does not release a batch in which thirteen sentinels or more stand "
        "in the order of sending, and it accuses no honest shuffler.",
        theorem="Kendall's tau, exact",
        trials=_ORDERS,
    )
    few = sentinels[:_TOO_FEW]
    unnoticed.must("few sentinels in the order of sending pass", not rejects(few, few, task))
    limit = unnoticed.finding(
        scenario=scenario,
        known_limit=True,
        title=f"A batch that was not shuffled, {_TOO_FEW} sentinels; an order that is passed on",
        heading="server disruption",
        coalition="shuffler",
        sentence="A shuffler that shuffles and passes the order on is never noticed, nor is one "
        f"that does not shuffle where there are {_TOO_FEW} sentinels or fewer; against it only "
        "the local epsilon holds. Plant sixteen sentinels or more in every batch.",
    )
    return Findings((finding, limit))


def rejects(batch: Reports, sentinels: Reports, task: Task) -> bool:
    """Return whether the analyzer rejects a batch, for the sentinels that it knows."""
    known = [Sentinel(leaves=(leaf(report),), acknowledged=True) for report in sentinels]
    try:
        check_batch(match_sentinels([b"".join(batch)], _REPORT_BYTES, known), task)
    except SuspectBatchError:
        return True
    return False


def _draw_reports(count: int, rng: np.random.Generator) -> Reports:
    return [rng.bytes(_REPORT_BYTES) for _ in range(count)]
