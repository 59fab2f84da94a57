"""Whether the submissions that devices seal reveal anything beside their reports."""

import dataclasses
from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from common.crypto.hpke import HpkePrivateKey, envelope_context, report_context
from common.errors import WireError
from common.mechanisms.base import Reports, is_null
from common.mechanisms.hashing.local_hashing import LocalHashing
from common.mechanisms.hashing.string_hashing import StringHashing
from common.messages.submission import unpack
from common.task_digest import DIGEST_BYTES, TaskDigest
from deploy.audit.checks import Checks
from deploy.audit.finding import Findings
from deploy.audit.laws.dummy_laws import law_of_extra
from deploy.audit.laws.support_law import support_law
from deploy.audit.statistics import p_binomial, p_cells, p_poisson
from deploy.audit.subject import AuditSubject
from user_agent.contribution import Contributor

Source = Callable[[np.random.Generator], np.random.Generator]
"""Returns the generator of one answer, from the generator of the scenario."""

_DIGEST: Final = TaskDigest(bytes(DIGEST_BYTES))
_MOST_PLACES: Final = 12
"""Places in a submission that are tested, at most."""


def seeded_alike(_: np.random.Generator) -> np.random.Generator:
    """Start every answer's generator from the same seed."""
    return np.random.default_rng(1)


def run_devices(
    subject: AuditSubject, rng: np.random.Generator, source: Source = lambda rng: rng
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
    return Findings(findings=(finding,))


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
        half = _MOST_PLACES // 2
        if self.per_user <= _MOST_PLACES:
            return list(range(self.per_user))
        return [*range(half), *range(self.per_user - half, self.per_user)]


def _check_numbers(checks: Checks, subject: AuditSubject, answers: _Answers) -> None:
    """Test the number of dummies, for all values and for halves of them, and places of padding."""
    padding, dummies = answers.null.sum(axis=1), subject.task.dummies
    valid = answers.mechanism.valid(answers.reports[~answers.null.ravel()])
    checks.must("nothing but valid reports and padding", bool(valid.all()))
    chances = law_of_extra(dummies)[::-1]
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
    law, own = support_law(subject.task), answers.own
    dummies = subject.task.dummies.expected_per_user
    chance = min(1.0, (law.own + dummies * law.dummy) / answers.per_user)
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
