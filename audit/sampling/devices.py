"""Tests of sealed submissions, numbers of dummies, and the shuffler's draws."""

import dataclasses
import math
from typing import Final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from scipy import stats

from audit.distributions import (
    added_dummies,
    extra_dummies,
    level_shares,
    submission_sizes,
    support_distribution,
)
from audit.finding import Checks, Rows
from audit.harness.tasks import with_shuffler
from audit.scenario import AuditSubject
from audit.statistics import p_binomial, p_cells
from common.crypto.hpke import HpkePrivateKey, envelope_context, report_context, split_every
from common.mechanisms.base import Reports, is_null
from common.mechanisms.hierarchy import Hierarchy
from common.messages.submission import split_submission
from common.task.cluster_dummies import ClusterDummies
from common.task.task import Task
from common.task.uniform_dummies import UniformDummies
from common.task_digest import DIGEST_BYTES, TaskDigest
from deploy.tasks.value_parser import value_of
from user_agent.contribution import Contributor

_DIGEST: Final = TaskDigest(bytes(DIGEST_BYTES))
_ENDS: Final = 6
"""Number of positions tested at each end of a submission."""
_SLOW_DIVISOR: Final = 20
"""Divisor of the number of users if each is drawn separately."""
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
    contributor = Contributor(task, _DIGEST)
    sources = (np.random.default_rng(1) if subject.weakened else rng for _ in values)
    envelopes = [
        contributor.prepare(value_of(task, value), source).envelope
        for value, source in zip(values.tolist(), sources, strict=True)
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
    possible = submission_sizes(task)
    outcomes = possible.outcomes(_sizes(task, reports, owners, sizes))
    checks.require("no size that the task does not draw", bool((outcomes >= 0).all()))
    for group in (values >= 0, values < task.domain_size // 2, values % 2 == 0):
        sized = outcomes[group & (outcomes >= 0)]
        checks.cells("sizes of submissions, for every group of values", sized, possible.chances)
    own, support = np.zeros(len(reports), dtype=np.bool_), support_distribution(task)
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


def _sizes(
    task: Task, reports: Reports, owners: NDArray[np.int64], total: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the size of each user's submission, shape (users, 3); see SubmissionSizes."""
    null, negative = is_null(reports), np.zeros(len(reports), dtype=np.bool_)
    if isinstance(task.dummies, ClusterDummies):
        negative = ~null & (reports["item"] >= task.domain_size)
    counts = [np.bincount(owners[of], minlength=len(total)) for of in (~null & ~negative, negative)]
    return np.stack([*counts, total], axis=1)


def _check_clusters(checks: Checks, subject: AuditSubject, users: int, rng: Generator) -> None:
    """Test the types, rooms and items of clusters; if weakened, without users' first reports."""
    task, possible = subject.task, submission_sizes(subject.task)
    sizes, drawn = task.dummies.draw(subject.mechanism, users, rng)
    owners = np.repeat(np.arange(users), sizes)
    kept = np.arange(len(drawn)) - (np.cumsum(sizes) - sizes)[owners] >= subject.weakened
    drawn, owners = drawn[kept], owners[kept]
    added = _sizes(task, drawn, owners, np.bincount(owners, minlength=users))
    outcomes = possible.outcomes(added + np.array([1, 0, 1]))  # and the user's own report
    checks.require("only clusters of the task", bool((outcomes >= 0).all()))
    checks.cells("types and rooms of clusters", outcomes[outcomes >= 0], possible.chances)
    named = ~is_null(drawn)
    _, one_each = np.unique(owners[named], return_index=True)
    items = drawn["item"][named][one_each].astype(np.int64) % task.domain_size
    checks.cells("items of clusters", items, np.ones(task.domain_size))


def run_draws(subject: AuditSubject, rng: Generator) -> Rows:
    """Test the task's numbers of dummies and its sampling; no findings if it has neither."""
    checks, number, task = Checks(), subject.sizes.reports // 2, subject.task
    left_out = int(subject.weakened)
    spec = task.shuffler
    if not task.dummies.maximum and spec.only_permutes:
        return
    mechanism = subject.mechanism
    if isinstance(task.dummies, UniformDummies):
        counts = np.maximum(task.dummies.draw_numbers(number, rng) - left_out, 0)
        extra = counts - task.dummies.per_user
        checks.cells("numbers of dummies", extra, extra_dummies(task.dummies))
    elif isinstance(task.dummies, ClusterDummies):
        _check_clusters(checks, subject, number // _SLOW_DIVISOR, rng)
    elif task.dummies.maximum:
        users = range(number // _SLOW_DIVISOR)
        drawn = [task.dummies.draw(mechanism, 1, rng)[1][left_out:] for _ in users]
        sizes = np.maximum(np.array(list(map(len, drawn))) - task.dummies.certain, 0)
        checks.cells("numbers of dummies that name items", sizes, extra_dummies(task.dummies))
        named = mechanism.tally(np.concatenate(drawn))
        chances = np.ones(len(named))
        if isinstance(mechanism, Hierarchy):
            chances = np.repeat(level_shares(task) / task.level_sizes, task.level_sizes)
        else:
            once = all(mechanism.tally(dummies).max() <= 1 for dummies in drawn if len(dummies))
            checks.require("no item repeats", once)
        checks.test("items or nodes that dummies name", p_cells(named, chances))
    if not spec.only_permutes:
        kept, chance = int(spec.draw_kept(number, rng).sum()), spec.keep_probability
        checks.test("reports that the shuffler keeps", p_binomial(kept, number, chance))
        batches = np.array([spec.draw_kept(_SMALL_BATCH, rng).sum() for _ in range(_BATCHES)])
        binomial = stats.binom.pmf(np.arange(_SMALL_BATCH + 1), _SMALL_BATCH, chance)
        checks.cells("number of reports kept in a small batch", batches, binomial)
    if spec.noise.most:
        chances = added_dummies(spec.noise)
        numbers = spec.draw_item_dummies(number, rng) - left_out
        numbers = np.maximum(numbers, 0)
        checks.cells(f"the shuffler's {spec.noise.distribution} dummies", numbers, chances)
        pairs = numbers[: number // 2 * 2].reshape(-1, 2).sum(axis=1)
        checks.cells("its dummies of two items", pairs, np.convolve(chances, chances))
    yield checks.finding(
        heading="correctness",
        sentence="Devices add as many dummies, and the shuffler drops and adds as many reports, as "
        "the guarantees assume.",
        trials=number,
        advice="Do not collect with this version: its guarantees do not describe it.",
    )
