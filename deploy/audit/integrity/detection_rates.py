"""How often a dishonest shuffler is noticed: the deployed comparisons, against exact formulas."""

import math
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from analyzer.batch_checks import judge
from analyzer.deduplication import Repeats
from analyzer.sentinel_matching import look
from analyzer.storage.sentinel_table import Sentinel
from common.crypto.merkle import HASH_BYTES, SALT_BYTES, Tree, leaf, split
from common.crypto.signing import SigningIdentity
from common.errors import SuspectBatchError
from common.messages.batch import BatchId
from common.messages.inclusion_proof import BatchCommitment, InclusionProof
from common.task.shuffler_spec import KEEP_SUM
from common.task.task import Task
from common.task_digest import DIGEST_BYTES, TaskDigest
from deploy.audit.audited import Effort
from deploy.audit.checks import Checks
from deploy.audit.finding import Finding
from deploy.audit.fit import of_chance, of_number
from deploy.audit.integrity.known_limit import known_limit
from deploy.audit.raw_bytes import pieces
from deploy.audit.significance import TEST_LEVEL
from user_agent.evidence import Inclusion
from user_agent.inclusion_monitor import conclusion, counted, to_ask

_REPORT_BYTES: Final = 64
_BATCHES: Final = 10
_REPORTS: Final = 1000
_ORDERS: Final = 100
_ORDERS_A_REPEAT: Final = 2000
"""Of an effort: a thousand batches are dropped from where two million orders are drawn."""

_ALARMS: Final = 1e-9
"""The most of honest batches that either test of the analyzer holds back, as it promises."""
_USERS: Final = 1500
"""Enough for a tree of several buckets."""
_LOST: Final = 20
_CHECKING: Final = 0.05

_SUBMISSIONS: Final = 200
_SENTINELS: Final = 10
_DROPPED: Final = 20
_IN_ORDER: Final = 16
_TOO_FEW: Final = 12
_WINDOWS: Final = (2, 4, 8)


def of_devices(scenario: str, rng: np.random.Generator) -> Finding:
    """
    Drop some users' reports, and let the devices concerned check, and as many others.

    How many devices are there to check is not the code's to decide: of a share a of them that is,
    somebody notices with probability 1 - (1-a)^k, k the users who were dropped.
    """
    checks = Checks()
    for _ in range(_BATCHES):
        lost, kept = _verdicts(rng)
        checks.must("a device whose reports are gone comes to know it", all(lost))
        checks.must("no device whose reports are there is told otherwise", not any(kept))
    noticed = -math.expm1(_LOST * math.log1p(-_CHECKING))
    finding = checks.finding(
        scenario=scenario,
        title=f"{_LOST} users dropped, and their devices check",
        heading="server disruption",
        coalition="shuffler",
        sentence="That answers were dropped is noticed as soon as one of the devices concerned "
        "checks, and no device raises a false alarm.",
        trials=2 * _LOST * _BATCHES,
    )
    worked_out = (
        f"not measured: where {_CHECKING:.0%} of the devices check, somebody notices with "
        f"probability {noticed:.0%}"
    )
    return replace(finding, statistic=f"{finding.statistic}; {worked_out}")


def _verdicts(rng: np.random.Generator) -> tuple[list[bool], list[bool]]:
    """Say of users who were dropped, and of as many others, who is told to be missing."""
    identity = SigningIdentity(rng.bytes(32))
    digest, salt = TaskDigest(rng.bytes(DIGEST_BYTES)), rng.bytes(SALT_BYTES)
    leaves = split(rng.bytes(HASH_BYTES * _USERS))
    tree = Tree.over(bytearray(b"".join(leaves[_LOST:])), salt)
    commitment = BatchCommitment.sign(identity, digest, BatchId(rng.bytes(16)), tree, salt)

    def missing(own: bytes) -> bool:
        [asked] = to_ask(own, rng)
        proof = InclusionProof.of(tree, commitment, commitment.prefix_of(asked))
        found = counted(asked, proof, commitment, identity.public_identity(), digest)
        return conclusion([found]) is Inclusion.MISSING

    return [missing(own) for own in leaves[:_LOST]], [
        missing(own) for own in leaves[_LOST : 2 * _LOST]
    ]


def of_sentinels(scenario: str, task: Task, effort: Effort, rng: np.random.Generator) -> Finding:
    """
    Drop m of N submissions at random, s of them sentinels, and let the analyzer judge.

    One is missing with probability 1 - C(N-s, m) / C(N, m). Where the shuffler samples, what is
    judged is how many came; see `_of_sampled`.
    """
    if task.shuffler.kept < 1:
        return _of_sampled(scenario, task, _repeats(effort), rng)
    checks, accused, repeats = Checks(), 0, _repeats(effort)
    sentinels = _reports(_SENTINELS, rng)
    others = _reports(_SUBMISSIONS - _SENTINELS, rng)
    batch = [*sentinels, *others]
    for _ in range(repeats):
        order = rng.permutation(_SUBMISSIONS)[_DROPPED:]
        accused += _accused([batch[place] for place in order], sentinels, task)
    expected = 1 - math.comb(_SUBMISSIONS - _SENTINELS, _DROPPED) / math.comb(
        _SUBMISSIONS, _DROPPED
    )
    checks.test("how often the batch is held back", of_chance(accused, repeats, expected))
    checks.must("a whole batch is not held back", not _accused(batch[::-1], sentinels, task))
    finding = checks.finding(
        scenario=scenario,
        title=f"{_DROPPED} of {_SUBMISSIONS} submissions dropped, {_SENTINELS} are sentinels",
        heading="server disruption",
        coalition="shuffler",
        sentence="A shuffler that drops submissions at random is noticed as often as it must hit "
        "a sentinel by chance.",
        expected=expected,
        measured=accused / repeats,
        trials=repeats,
    )
    return replace(finding, statistic=f"{finding.statistic}; {_seen_from(repeats, expected)}")


def _seen_from(trials: int, rate: float) -> str:
    """Say how far off a rate must be for its test to see it every other time."""
    low, high = stats.binom.interval(1 - TEST_LEVEL, trials, rate)
    return f"a rate below {low / trials:.0%} or above {high / trials:.0%} would be seen"


def _of_sampled(scenario: str, task: Task, repeats: int, rng: np.random.Generator) -> Finding:
    """
    Drop more reports than the task lets the shuffler drop: as many as are noticed every other time.

    Of s sentinels Bin(s, κ(1-φ)) are there, φ dropped beside the task's share: the batch is held
    back where they are fewer, or more, than all but half of _ALARMS of honest batches have on that
    side: beyond quantiles of Bin(s, κ).
    """
    kept = task.shuffler.kept
    s = math.ceil(min(600.0, max(24.0, 2.5 * math.log(_ALARMS / 2) / math.log1p(-kept))))
    fewest, most = stats.binom.ppf(_ALARMS / 2, s, kept), stats.binom.isf(_ALARMS / 2, s, kept)
    rates: dict[float, float] = {}
    for share in np.linspace(0.05, 1.0, 20).tolist():
        law = stats.binom(s, kept * (1 - share))
        rates[share] = float(law.cdf(fewest - 1) + law.sf(most))
    share = min(rates, key=lambda dropped: abs(rates[dropped] - 1 / 2))
    checks, accused, sentinels, trials = Checks(), 0, _reports(s, rng), repeats // 4
    for _ in range(trials):
        there = rng.random(s) < kept * (1 - share)
        came = [one for one, is_there in zip(sentinels, there, strict=True) if is_there]
        accused += _accused([came[place] for place in rng.permutation(len(came))], sentinels, task)
    checks.test("how often the batch is held back", of_chance(accused, trials, rates[share]))
    finding = checks.finding(
        scenario=scenario,
        title=f"{share:.0%} of the reports dropped beside those that the task lets it drop, {s} "
        "sentinels",
        heading="server disruption",
        coalition="shuffler",
        sentence="Where the task lets the shuffler drop reports, dropping more is noticed only "
        "where there are many sentinels, and by their number.",
        expected=rates[share],
        measured=accused / trials,
        trials=trials,
    )
    return replace(finding, statistic=f"{finding.statistic}; {_seen_from(trials, rates[share])}")


def of_repeats(scenario: str, rng: np.random.Generator) -> Finding:
    """Repeat reports of a batch, near and far: every copy is dropped, and nothing else."""
    checks, planted, found = Checks(), 0, 0
    for _ in range(_BATCHES):
        fresh = _reports(_REPORTS, rng)
        copies = [fresh[place] for place in rng.integers(0, _REPORTS, size=_LOST)]
        batch = [*fresh, *copies]
        batch = [batch[place] for place in rng.permutation(len(batch))]
        repeats, left = Repeats(_REPORT_BYTES), list[bytes]()
        for start in range(0, len(batch), 300):
            chunk = repeats.without(b"".join(batch[start : start + 300]))
            left += pieces(chunk, _REPORT_BYTES)
        planted, found = planted + _LOST, found + len(batch) - len(left)
        checks.must("every report is left once", sorted(left) == sorted(fresh))
    return checks.finding(
        scenario=scenario,
        title="Copies of reports among others",
        heading="server disruption",
        coalition="shuffler",
        sentence="Every copy of a sealed report is dropped, and no other report is.",
        expected=1.0,
        measured=found / planted,
        trials=planted,
    )


def of_order(scenario: str, task: Task, rng: np.random.Generator) -> tuple[Finding, Finding]:
    """Deliver sentinels in the order in which they were sent, near it, and shuffled."""
    # Of those that the shuffler kept, the order is judged alike.
    task = replace(task, shuffler=replace(task.shuffler, keep_weight=KEEP_SUM))
    checks, noticed_orders = Checks(), 0
    for _ in range(_BATCHES):
        sentinels = _reports(_IN_ORDER, rng)
        as_sent = _accused(sentinels, sentinels, task)
        turned = _accused(sentinels[::-1], sentinels, task)
        checks.must("an order that was kept is noticed", as_sent)
        checks.must("so is one that was turned round", turned)
        noticed_orders += as_sent + turned
    alarms = sum(
        _accused([sentinels[place] for place in rng.permutation(_IN_ORDER)], sentinels, task)
        for _ in range(_ORDERS)
    )
    checks.test("an honest shuffler is not accused", of_number(alarms, _ALARMS * _ORDERS))
    noticed = {window: _noticed_within(window, sentinels, task, rng) for window in _WINDOWS}
    seen = ", ".join(f"{share:.0%} in windows of {window}" for window, share in noticed.items())
    finding = checks.finding(
        scenario=scenario,
        title=f"{_IN_ORDER} sentinels in a batch that was not shuffled",
        heading="server disruption",
        coalition="shuffler",
        sentence="A shuffler that does not shuffle is noticed by the order of thirteen sentinels "
        "or more, and an honest one is not accused.",
        theorem="Kendall's tau, exact",
        expected=1.0,
        measured=noticed_orders / (2 * _BATCHES),
        trials=2 * _BATCHES,
    )
    finding = replace(
        finding, statistic=f"{finding.statistic}; noticed if shuffled only nearby: {seen}"
    )
    return finding, _unseen_order(scenario, sentinels[:_TOO_FEW], task)


def _unseen_order(scenario: str, few: list[bytes], task: Task) -> Finding:
    """Say what no order tells."""
    checks = Checks()
    checks.must("few sentinels in the order of sending are accepted", not _accused(few, few, task))
    return known_limit(
        checks.finding(
            scenario=scenario,
            title=f"{_TOO_FEW} sentinels in a batch that was not shuffled; an order that is told",
            heading="server disruption",
            coalition="shuffler",
            sentence="Nobody notices a shuffler that shuffles and tells somebody the order, nor "
            f"one that does not shuffle where there are {_TOO_FEW} sentinels or fewer; against it "
            "only the local epsilon holds.",
            advice="Plant sixteen sentinels or more in every batch.",
        )
    )


def _noticed_within(
    window: int, sentinels: list[bytes], task: Task, rng: np.random.Generator
) -> float:
    """Shuffle each few neighbours among themselves only, and say how often that is noticed."""
    trials, accused = _ORDERS // 2, 0
    for _ in range(trials):
        order: NDArray[np.int64] = np.concatenate(
            [
                start + rng.permutation(min(window, len(sentinels) - start))
                for start in range(0, len(sentinels), window)
            ]
        )
        accused += _accused([sentinels[place] for place in order], sentinels, task)
    return accused / trials


def _accused(batch: list[bytes], sentinels: list[bytes], task: Task) -> bool:
    """Let the analyzer look for sentinels in a batch, and say whether it holds it back."""
    known = [Sentinel(leaves=(leaf(report),), acknowledged=True) for report in sentinels]
    sightings = look([b"".join(batch)], _REPORT_BYTES, known)
    try:
        judge(sightings, task)
    except SuspectBatchError:
        return True
    return False


def _repeats(effort: Effort) -> int:
    return max(_ORDERS, effort.orders // _ORDERS_A_REPEAT)


def _reports(count: int, rng: np.random.Generator) -> list[bytes]:
    return [rng.bytes(_REPORT_BYTES) for _ in range(count)]
