"""
Whether the submissions that devices seal reveal anything beside their reports, and whether numbers
of dummies and the shuffler's draws have the distributions of the task.
"""

import dataclasses
from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy import fft, stats

from common.crypto.hpke import HpkePrivateKey, envelope_context, report_context
from common.errors import WireError
from common.mechanisms.base import Reports, Vector, is_null
from common.mechanisms.hashing.local_hashing import LocalHashing
from common.mechanisms.hashing.string_hashing import StringHashing
from common.messages.submission import unpack
from common.task.dummy_spec import DummySpec
from common.task.shuffler_spec import ShufflerSpec
from common.task_digest import DIGEST_BYTES, TaskDigest
from deploy.audit.distributions.support import (
    added_dummies,
    extra_dummies,
    support_distribution,
)
from deploy.audit.finding import Checks, Findings
from deploy.audit.scenario import AuditSubject
from deploy.audit.statistics import p_binomial, p_cells, p_poisson
from shuffler.dummies import draw_item_dummies, draw_kept
from user_agent.contribution import Contributor, draw_dummies, draw_dummy_counts

Source = Callable[[np.random.Generator], np.random.Generator]
"""Returns the generator of one answer, from the generator of the scenario."""

_DIGEST: Final = TaskDigest(bytes(DIGEST_BYTES))
_MAX_PLACES: Final = 12
"""Places in a submission that are tested, at most."""
_SLOW: Final = 20
"""Factor by which fewer users are drawn where each is drawn alone."""
_BATCH: Final = 100
"""Reports of a small batch."""
_BATCHES: Final = 4_000
_ITEMS: Final = 4
_MIN_CHANCE: Final = 1e-18
"""Probability that Fourier transforms do not tell from 0."""


def seeded_alike(_: np.random.Generator) -> np.random.Generator:
    """Start every answer's generator from the same seed."""
    return np.random.default_rng(1)


def run_devices(
    subject: AuditSubject, rng: np.random.Generator, *, source: Source = lambda rng: rng
) -> Findings:
    """Make sealed submissions of the audited task, open them, and compare them."""
    answers = _Answers(subject, rng, source)
    checks, task = answers.checks, subject.task
    if answers.complete:
        _check_numbers(checks, subject, answers)
        if task.dummies.uniform:
            _check_places(checks, subject, answers)
        _check_seeds(checks, answers)
    finding = checks.finding(
        scenario="devices",
        title="A submission depends on its value through its reports alone",
        heading="anonymity",
        coalition="shuffler+analyzer",
        sentence="Neither the number of reports, nor their order, nor the length of anything sent "
        "depends on the value.",
        trials=len(answers.values),
        advice="Do not collect with this version: devices reveal more than they state.",
    )
    return Findings((finding,))


class _Answers:
    """Submissions of many users, opened."""

    def __init__(self, subject: AuditSubject, rng: np.random.Generator, source: Source) -> None:
        suite = subject.task.suite
        self._analyzer, self._shuffler = (HpkePrivateKey.generate(suite) for _ in range(2))
        self._task = dataclasses.replace(
            subject.task,
            analyzer_key=self._analyzer.public_key().raw,
            shuffler_key=self._shuffler.public_key().raw,
        )
        self.checks, self.mechanism = Checks(), subject.mechanism
        self.per_user = subject.task.reports_per_user
        users = max(100, subject.sizes.devices // (1 + self.per_user))
        self.values = rng.integers(0, subject.task.domain_size, size=users)
        contributor, self._ids, sealed = Contributor(self._task, _DIGEST), list[bytes](), []
        for value in self.values.tolist():
            sealed += self._opened(contributor.prepare(value, source(rng)))
        self.complete = len(sealed) == users * self.per_user
        self.checks.must("a fixed number of reports in a submission", self.complete)
        self.checks.must("no ciphertext twice", len(set(sealed)) == len(sealed))
        self.checks.must(
            "every submission has an id of its own", len(set(self._ids)) == len(self._ids)
        )
        opened = [self._analyzer.open(one, report_context(_DIGEST)) for one in sealed]
        lengths = {len(one) for one in opened}
        self.complete &= lengths == {self._task.mechanism.report_bytes}
        self.checks.must("one length of every report", self.complete)
        self.reports: Reports = np.frombuffer(
            b"".join(opened) if self.complete else b"", dtype=self.mechanism.report_dtype
        )
        self.null = is_null(self.reports).reshape(-1, self.per_user)

    def _opened(self, envelope: bytes) -> list[bytes]:
        """Return the sealed reports of an envelope."""
        self.checks.must("one length of envelope", len(envelope) == self._task.envelope_bytes)
        try:
            submission = unpack(
                self._shuffler.open(envelope, envelope_context(_DIGEST)), self._task
            )
        except WireError:
            return []
        self._ids.append(submission.submission_id)
        sealed, size = submission.sealed_reports, self._task.sealed_report_bytes
        return [sealed[start : start + size] for start in range(0, len(sealed), size)]

    @property
    def own(self) -> NDArray[np.bool_]:
        """Which reports support their sender's value, shape (users, per_user)."""
        by_user = self.reports.reshape(self.null.shape)
        own = np.zeros(self.null.shape, dtype=np.bool_)
        for value in np.unique(self.values):
            rows = np.flatnonzero(self.values == value)
            supports = self.mechanism.supports(by_user[rows].ravel(), int(value))
            own[rows] = supports.reshape(len(rows), -1)
        return own & ~self.null

    @property
    def places(self) -> list[int]:
        """The places in a submission that are tested: the first and the last of many."""
        half = _MAX_PLACES // 2
        if self.per_user <= _MAX_PLACES:
            return list(range(self.per_user))
        return [*range(half), *range(self.per_user - half, self.per_user)]


def _check_numbers(checks: Checks, subject: AuditSubject, answers: _Answers) -> None:
    """Test the number of dummies, for all values and for halves of them, and places of padding."""
    padding, dummies = answers.null.sum(axis=1), subject.task.dummies
    valid = answers.mechanism.valid(answers.reports[~answers.null.ravel()])
    checks.must("nothing but valid reports and padding", bool(valid.all()))
    chances = extra_dummies(dummies)[::-1]
    in_range = int(padding.max()) < len(chances)
    checks.must("dummies within their range", in_range)
    if not in_range or dummies.law == "fixed":
        return
    values = answers.values
    for some in (values >= 0, values < subject.task.domain_size // 2, values % 2 == 0):
        counts = np.bincount(padding[some], minlength=len(chances))
        checks.test("numbers of dummies, for every value", p_cells(counts, chances))
    chance = 1 - (1 + dummies.expected_per_user) / answers.per_user
    for place in answers.places:
        seen = int(answers.null[:, place].sum())
        checks.test("padding in every place", p_binomial(seen, len(values), chance))


def _check_places(checks: Checks, subject: AuditSubject, answers: _Answers) -> None:
    """Test that the own value is supported equally often in every place of a submission."""
    support, own = support_distribution(subject.task), answers.own
    dummies = subject.task.dummies.expected_per_user
    chance = min(1.0, (support.own + dummies * support.dummy) / answers.per_user)
    for place in answers.places:
        p_value = p_binomial(int(own[:, place].sum()), len(own), chance)
        checks.test("the own report in every place", p_value)


def _check_seeds(checks: Checks, answers: _Answers) -> None:
    """Test that neighbouring reports of one person share seeds and buckets by chance alone."""
    mechanism = answers.mechanism
    if not isinstance(mechanism, (LocalHashing, StringHashing)):
        return
    seeds = mechanism.family.seeds if isinstance(mechanism, LocalHashing) else 2**64
    for name, number in (("seed", seeds), ("bucket", round(1 / mechanism.q_dummy))):
        drawn = answers.reports[name].reshape(answers.null.shape)
        both = ~(answers.null[:, 1:] | answers.null[:, :-1])
        equal = int((both & (drawn[:, 1:] == drawn[:, :-1])).sum())
        if both.any():
            checks.test(f"a {name} of its own", p_poisson(equal, int(both.sum()) / number))


def run_draws(subject: AuditSubject, rng: np.random.Generator, *, left_out: int = 0) -> Findings:
    """
    Test the draws of the audited task; nothing where it has neither dummies nor sampling.

    `left_out`: devices and the shuffler leave out so many of the dummies that they drew.
    """
    checks, number, task = Checks(), subject.sizes.reports // 2, subject.task
    if not task.dummies.maximum and task.shuffler.idle:
        return Findings()
    if task.dummies.uniform:
        counts = np.maximum(draw_dummy_counts(task.dummies, number, rng) - left_out, 0)
        _check_counts(checks, task.dummies, counts)
    elif task.dummies.maximum:
        _check_named(checks, subject, number // _SLOW, left_out, rng)
    if not task.shuffler.idle:
        _check_kept(checks, task.shuffler, number, rng)
        if task.shuffler.law != "none":
            _check_added(checks, task.shuffler, number, left_out, rng)
    finding = checks.finding(
        scenario="draws",
        title="Numbers of dummies, and the shuffler's draws, have their distributions",
        heading="correctness",
        sentence="Devices add as many dummies, and the shuffler drops and adds as many reports, as "
        "the guarantees count on.",
        trials=number,
        advice="Do not collect with this version: its guarantees do not describe it.",
    )
    return Findings((finding,))


def _check_counts(checks: Checks, spec: DummySpec, counts: NDArray[np.int64]) -> None:
    extra, chances = counts - spec.per_user, extra_dummies(spec)
    inside = bool(((extra >= 0) & (extra < len(chances))).all())
    checks.must(f"{spec.law} dummies within their range", inside)
    if inside and len(chances) > 1:
        checks.test(
            f"{spec.law} dummies", p_cells(np.bincount(extra, minlength=len(chances)), chances)
        )


def _check_named(
    checks: Checks, subject: AuditSubject, n_users: int, left_out: int, rng: np.random.Generator
) -> None:
    """Test dummies that name items: how many, which, and none twice."""
    mechanism, spec = subject.mechanism, subject.task.dummies
    drawn = [draw_dummies(mechanism, spec, rng)[left_out:] for _ in range(n_users)]
    numbers = np.bincount([len(one) for one in drawn], minlength=spec.trials + 1)
    chances = np.append(extra_dummies(spec), np.zeros(spec.trials - spec.most))
    checks.test("dummies that name items", p_cells(numbers, chances))
    named = mechanism.tally(np.concatenate(drawn))
    checks.test("which items dummies name", p_cells(named, np.ones(len(named))))
    once = all(mechanism.tally(one).max() <= 1 for one in drawn if len(one))
    checks.must("each item once at most", once)


def _check_kept(checks: Checks, spec: ShufflerSpec, number: int, rng: np.random.Generator) -> None:
    kept = int(draw_kept(spec, number, rng).sum())
    checks.test("reports that the shuffler keeps", p_binomial(kept, number, spec.kept))
    batches = np.array([draw_kept(spec, _BATCH, rng).sum() for _ in range(_BATCHES)])
    binomial = stats.binom.pmf(np.arange(_BATCH + 1), _BATCH, spec.kept)
    seen = np.bincount(batches, minlength=_BATCH + 1)
    checks.test("how many of a small batch are kept", p_cells(seen, binomial))


def _check_added(
    checks: Checks, spec: ShufflerSpec, number: int, left_out: int, rng: np.random.Generator
) -> None:
    """Test how many dummies the shuffler adds of an item, and that items are independent."""

    def added(items: int) -> NDArray[np.int64]:
        return np.maximum(draw_item_dummies(spec, items, rng) - left_out, 0)

    numbers = added(number)
    inside = int(numbers.max()) <= spec.most
    checks.must("the shuffler's dummies within their range", inside)
    if not inside:
        return
    chances = added_dummies(spec)
    few = np.array([added(_ITEMS).sum() for _ in range(_BATCHES)])
    pairs = numbers[: number // 2 * 2].reshape(-1, 2).sum(axis=1)
    for items, sums in ((1, numbers), (2, pairs), (_ITEMS, few)):
        seen = np.bincount(sums, minlength=items * spec.most + 1)
        name = f"the shuffler's {spec.law} dummies, sums of {items}"
        checks.test(name, p_cells(seen, _distribution_of_sum(chances, items)))


def _distribution_of_sum(chances: Vector, items: int) -> Vector:
    """Return the distribution of a sum of independent numbers, by Fourier transforms."""
    if items == 1:
        return chances
    size = items * (len(chances) - 1) + 1
    sums: Vector = fft.irfft(fft.rfft(chances, size) ** items, size)
    return np.maximum(sums, _MIN_CHANCE)
