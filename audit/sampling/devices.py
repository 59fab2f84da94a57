"""Tests of sealed submissions, numbers of dummies, and the shuffler's draws."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from scipy import stats

from audit.families.family import NotCoveredError
from audit.finding import Checks, Rows
from audit.harness.tasks import with_shuffler
from audit.sampling.dummies import dummies_of
from audit.scenario import AuditSubject
from audit.statistics import p_binomial
from common.crypto.hpke import HpkePrivateKey, envelope_context, report_context, split_every
from common.mechanisms.base import Reports, Vector, is_null
from common.messages.submission import split_submission
from common.task.shuffler_spec import RATIO_SUM, BinomialNoise, GeometricNoise
from common.task_digest import DIGEST_BYTES, TaskDigest
from deploy.tasks.value_parser import value_of

_DIGEST: Final = TaskDigest(bytes(DIGEST_BYTES))
_ENDS: Final = 6
"""Number of positions tested at each end of a submission."""
_SMALL_BATCH: Final = 100
_BATCHES: Final = 4_000


def run_devices(subject: AuditSubject, rng: Generator) -> Rows:
    """Prepare sealed submissions to the audited task, open them, and test their contents."""
    checks = Checks()
    analyzer, shuffler = (HpkePrivateKey.generate(subject.task.suite) for _ in range(2))
    task = with_shuffler(
        dataclasses.replace(subject.task, analyzer_key=analyzer.public_key().raw),
        key=shuffler.public_key().raw,
    )
    users = max(100, subject.sizes.devices // (1 + math.ceil(task.expected_reports_per_user)))
    values = rng.integers(0, task.domain_size, size=users)
    contributor = subject.ports.contributor(task, _DIGEST)
    envelopes = [
        contributor.prepare(value_of(task, value), subject.ports.start_generator(rng)).envelope
        for value in values.tolist()
    ]
    known = {len(envelope) for envelope in envelopes} <= {*task.envelope_sizes}
    checks.require("all envelopes have one of the task's lengths", known)
    context = envelope_context(_DIGEST)
    opened = (split_submission(shuffler.open(envelope, context)) for envelope in envelopes)
    ids, contents = zip(*opened, strict=True)
    checks.require("every submission has a unique id", len(set(ids)) == users)
    sealed = split_every(b"".join(contents), task.sealed_report_bytes)
    checks.require("no ciphertext repeats", len(set(sealed)) == len(sealed))
    plain = [analyzer.open(report, report_context(_DIGEST)) for report in sealed]
    reports: Reports = np.frombuffer(b"".join(plain), dtype=subject.mechanism.report_dtype)
    sizes = np.array(list(map(len, contents))) // task.sealed_report_bytes
    _check_places(checks, subject, values, sizes, reports)
    _check_seeds(checks, subject, np.repeat(np.arange(users), sizes), reports)
    yield checks.finding(
        title="Only the reports in a submission depend on its value",
        coalition="shuffler+analyzer",
        sentence="Neither the number of reports, nor their order, nor the length of any message "
        "depends on the value.",
        trials=users,
        advice="Do not collect with this version: devices reveal more than they state.",
    )


def _check_places(
    checks: Checks,
    subject: AuditSubject,
    values: NDArray[np.int64],
    sizes: NDArray[np.int64],
    reports: Reports,
) -> None:
    """
    Test users' values and numbers of reports, shape (users,), and all their reports in order.

    No number or position may depend on the value. A submission is as long as its number of dummies
    requires, so its length depends on nothing else.
    """
    mechanism, task = subject.mechanism, subject.task
    null, owners = is_null(reports), np.repeat(np.arange(len(values)), sizes)
    checks.require("only valid reports and padding", bool(mechanism.valid(reports[~null]).all()))
    reference = dummies_of(subject)
    possible = reference.submission_sizes
    outcomes = possible.outcomes(reference.sizes_of(reports, owners, sizes))
    checks.require("no size that the task does not draw", bool((outcomes >= 0).all()))
    for group in (values >= 0, values < task.domain_size // 2, values % 2 == 0):
        sized = outcomes[group & (outcomes >= 0)]
        checks.cells("sizes of submissions, for every group of values", sized, possible.chances)
    own, support = np.zeros(len(reports), dtype=np.bool_), subject.family.support
    for value in np.unique(values).tolist():
        with_it = values[owners] == value
        own[with_it] = mechanism.supports(reports[with_it], value)
    starts = np.cumsum(sizes) - sizes
    first, negative, total = possible.sizes.T
    for place in range(min(_ENDS, task.lengths[-1])):
        # A submission of `total` reports has this place, and each of them there equally often.
        weights = np.where(total > place, possible.chances / total, 0.0)
        reached = sizes > place
        for ends in (starts + place, starts + sizes - 1 - place):
            there = ends[reached]
            if chance := float(weights @ (total - first - negative)):
                p_value = p_binomial(int(null[there].sum()), len(values), chance)
                checks.test("padding in every position", p_value)
            others = first - task.own_reports
            chance = float(weights @ (task.own_reports * support.own + others * support.dummy))
            seen = int((own & ~null)[there].sum())
            p_value = p_binomial(seen, len(values), min(1.0, chance))
            checks.test("the user's own report in every position", p_value)


def _check_seeds(
    checks: Checks, subject: AuditSubject, owners: NDArray[np.int64], reports: Reports
) -> None:
    """
    Test how often neighbours in a submission share a seed, if reports, shape (n,), have one.

    A submission hides which report is the user's own. Comparisons of neighbours are independent.
    """
    if "seed" in (reports.dtype.names or ()):
        sent, together = reports[~is_null(reports)], np.diff(owners[~is_null(reports)]) == 0
        equal = (sent["seed"][1:] == sent["seed"][:-1])[together]
        p_value = p_binomial(int(equal.sum()), len(equal), 1 / subject.family.n_seeds)
        checks.test("the same seed twice in one submission", p_value)


def _binomial(spec: BinomialNoise) -> Vector:
    return np.asarray(stats.binom.pmf(np.arange(spec.most + 1), spec.trials, 0.5))


def _geometric(spec: GeometricNoise) -> Vector:
    steps = np.arange(spec.most + 1) - spec.peak
    left, right = spec.left_weight / RATIO_SUM, spec.right_weight / RATIO_SUM
    weights = np.where(steps < 0, left ** np.abs(steps), right ** np.abs(steps))
    return np.asarray(weights / weights.sum())


_ADDED: Final[Mapping[str, Callable[[Any], Vector]]] = {
    "binomial": _binomial,
    "geometric": _geometric,
}
"""Probabilities that the shuffler adds 0, 1, …, `most` dummies of one item, by distribution."""


def run_draws(subject: AuditSubject, rng: Generator) -> Rows:
    """Test the task's numbers of dummies and its sampling; no findings if it has neither."""
    checks, number, spec = Checks(), subject.sizes.reports // 2, subject.task.shuffler
    if not subject.task.dummies.maximum and spec.only_permutes:
        return
    if subject.task.dummies.maximum:
        dummies_of(subject).check(checks, number, rng)
    if not spec.only_permutes:
        kept, chance = int(spec.draw_kept(number, rng).sum()), spec.keep_probability
        checks.test("reports that the shuffler keeps", p_binomial(kept, number, chance))
        batches = np.array([spec.draw_kept(_SMALL_BATCH, rng).sum() for _ in range(_BATCHES)])
        binomial = stats.binom.pmf(np.arange(_SMALL_BATCH + 1), _SMALL_BATCH, chance)
        checks.cells("number of reports kept in a small batch", batches, binomial)
    if spec.noise.most:
        numbers = subject.ports.draw_item_dummies(subject.task, number, rng)
        name = spec.noise.distribution
        if name not in _ADDED:
            raise NotCoveredError(f"{subject.task.mechanism.name} with {name} dummies")
        chances = _ADDED[name](spec.noise)
        checks.cells(f"the shuffler's {name} dummies", numbers, chances)
        pairs = numbers[: number // 2 * 2].reshape(-1, 2).sum(axis=1)
        checks.cells("its dummies of two items", pairs, np.convolve(chances, chances))
    yield checks.finding(
        heading="correctness",
        sentence="Devices add as many dummies, and the shuffler drops and adds as many reports, as "
        "the guarantees assume.",
        trials=number,
        advice="Do not collect with this version: its guarantees do not describe it.",
    )
