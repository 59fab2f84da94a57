"""Rates at which the analyzer detects lost reports and an unshuffled batch."""

import math
from typing import Final, Literal

from numpy.random import Generator
from scipy import stats

from analyzer.sentinels import FALSE_ALARM, SentinelMatches, match_part
from analyzer.storage.task_table import Sentinel
from audit.finding import Checks, Finding, Rows
from audit.harness.tasks import with_shufflers
from audit.scenario import AuditSubject
from audit.statistics import p_binomial, p_poisson
from common.errors import SuspectBatchError
from common.messages.inclusion_proof import leaf
from common.task.shuffler_spec import KEEP_SUM
from common.task.task import Task

Loss = Literal["dropped", "replaced"]
"""How a dishonest shuffler loses submissions: without or with others in their place."""

_REPORT_BYTES: Final = 64
_SUBMISSIONS: Final = 200
_SENTINELS: Final = 10
_DROPPED: Final = 20
_SAMPLED_SENTINELS: Final = 600
_SAMPLED_SHARE: Final = 0.9
"""Share of the reports kept by the task's sampling that a dishonest shuffler loses."""
_ORDERS: Final = 100
_ORDERS_PER_TRIAL: Final = 2000
ORDER_SENTINELS: Final = 16
"""Sentinels in the order test, which detects a kept order from 13 sentinels on."""


def sentinel_rate(subject: AuditSubject, rng: Generator, *, loss: Loss) -> Finding:
    """
    Drop or replace m of N submissions, s of them sentinels; test how often this is detected.

    A sentinel is missing with probability 1 - C(N-s, m) / C(N, m). If the task lets the shuffler
    keep each report with probability κ, and a share φ of those is lost, Bin(s, κ(1-φ)) sentinels
    remain, and numbers outside quantiles of Bin(s, κ) are rejected.
    """
    task, trials = subject.task, max(_ORDERS, subject.sizes.orders // _ORDERS_PER_TRIAL)
    kept, s = task.shuffler.keep_probability, _SENTINELS
    others, lost = _SUBMISSIONS - s, _DROPPED
    expected = 1 - math.comb(others, lost) / math.comb(_SUBMISSIONS, lost)
    share = f"{_DROPPED / _SUBMISSIONS:.0%} of the submissions"
    if kept < 1:
        share = f"{_SAMPLED_SHARE:.0%} of the reports that the task's sampling keeps"
        s, others = _SAMPLED_SENTINELS, 0
        honest, cheated = stats.binom(s, kept), stats.binom(s, kept * (1 - _SAMPLED_SHARE))
        fewest, most = honest.ppf(FALSE_ALARM / 2), honest.isf(FALSE_ALARM / 2)
        expected = float(cheated.cdf(fewest - 1) + cheated.sf(most))
    sentinels = _draw_reports(s, rng)
    batch, rejected = sentinels + _draw_reports(others, rng), 0
    for _ in range(trials):
        places = rng.permutation(len(batch))
        if kept < 1:
            lost = s - int(rng.binomial(s, kept * (1 - _SAMPLED_SHARE)))
        remaining = [batch[place] for place in places[lost:].tolist()]
        remaining += _draw_reports(lost, rng) if loss == "replaced" else []
        rejected += _rejects(subject, remaining, sentinels, task)
    checks = Checks()
    checks.test("rate of rejected batches", p_binomial(rejected, trials, expected))
    return checks.finding(
        title=f"Detection by {s} sentinels if {share} are {loss}",
        heading="server disruption",
        coalition="shuffler",
        sentence="The analyzer detects lost submissions by missing sentinels, with the calculated "
        "probability.",
        expected=expected,
        measured=rejected / trials,
        trials=trials,
    )


def run_kept_order(subject: AuditSubject, rng: Generator) -> Rows:
    """Check that unshuffled batches of sentinels are rejected and shuffled ones are not."""
    # The order test does not depend on sampling.
    task, checks = with_shufflers(subject.task, {"keep_weight": KEEP_SUM}), Checks()
    sentinels = _draw_reports(ORDER_SENTINELS, rng)
    for order in (sentinels, sentinels[::-1]):
        checks.require(
            "a kept or reversed order is detected", _rejects(subject, order, sentinels, task)
        )
    alarms = sum(
        _rejects(subject, [sentinels[place] for place in order], sentinels, task)
        for order in (rng.permutation(ORDER_SENTINELS) for _ in range(_ORDERS))
    )
    checks.test("false alarms", p_poisson(alarms, FALSE_ALARM * _ORDERS))
    yield checks.finding(
        title=f"{ORDER_SENTINELS} sentinels in a batch that was not shuffled",
        heading="server disruption",
        coalition="shuffler",
        sentence="The analyzer does not release a batch in which thirteen or more sentinels are in "
        "sending order. A shuffler that shuffles but reveals the permutation is never detected; "
        "against it, only the local epsilon protects users.",
        theorem="Kendall's tau, exact",
        trials=_ORDERS,
    )


def _rejects(subject: AuditSubject, batch: list[bytes], sentinels: list[bytes], task: Task) -> bool:
    """Return whether an analyzer that knows these sentinels rejects a batch."""
    known = [Sentinel(leaves=(leaf(report),), acknowledged=True) for report in sentinels]
    found = match_part(b"".join(batch), _REPORT_BYTES, list(map(leaf, sentinels)))
    try:
        subject.ports.check_sentinels(SentinelMatches.joined(known, [found]), task)
    except SuspectBatchError:
        return True
    return False


def _draw_reports(count: int, rng: Generator) -> list[bytes]:
    return [rng.bytes(_REPORT_BYTES) for _ in range(count)]
