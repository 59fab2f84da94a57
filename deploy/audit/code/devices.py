"""
Whether a device's answers are what they should be as a whole: what no part of them shows.

Answers are made whole by the deployed code, value after value, and left unsealed: sealing hides
their content, and nothing of it depends on how. That every envelope has one length is checked on
sealed ones, of every value.
"""

import dataclasses
import itertools
import math
from collections.abc import Iterable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from common.errors import SealError, WireError
from common.hpke import HpkePrivateKey, envelope_context, report_context
from common.mechanisms.mechanism import Reports, is_null
from common.submission import unpack
from common.task import Task
from common.task_digest import DIGEST_BYTES, TaskDigest
from deploy.audit import fit
from deploy.audit.audited import Audited
from deploy.audit.checks import Checks
from deploy.audit.code.laws import support_law
from deploy.audit.finding import Outcome
from user_agent.contribution import Contributor

_DIGEST: Final = TaskDigest(bytes(DIGEST_BYTES))
"""Of the audited task as it is unsealed here."""
_ALL_PAIRS: Final = 12
"""Messages of one person up to which any two are compared, and not only neighbours."""
_OPENED: Final = 20
"""Reports of one answer that are opened."""
_USUAL: Final = 4
"""Messages of a person up to which as many answers are made as effort says."""
_MOST_VALUES: Final = 400
"""Values whose sealed answers are looked at: all of a small domain, some of a large one."""


class _OpenContributor(Contributor):
    """A device that does not seal; everything else is as deployed."""

    def __init__(self, task: Task, digest: TaskDigest) -> None:
        super().__init__(task, digest)
        self._seal_report = bytes  # type: ignore[assignment]  # what would be sealed
        self._seal_envelope = bytes  # type: ignore[assignment]


def play_devices(audited: Audited, rng: np.random.Generator) -> Outcome:
    """Make answers of the first and the last value, in turns, and look at what varies."""
    checks, task = Checks(), audited.task
    n_users = max(100, audited.effort.devices * _USUAL // max(_USUAL, task.reports_per_user))
    values = np.where(np.arange(n_users) % 2 == 0, 0, task.domain_size - 1)
    made = _Answers(audited, values, rng)
    _check_form(checks, audited, made)
    _check_support(checks, audited, made)
    _check_seeds(checks, audited, made)
    _check_source(checks, audited)
    _check_lengths(checks, audited, rng)
    finding = checks.finding(
        scenario="devices",
        title="A device's answer shows its value by nothing but its reports",
        heading="anonymity",
        coalition="shuffler+analyzer",
        sentence="Neither the number of messages, nor their order, nor the length of anything sent "
        "depends on what a person holds.",
        trials=n_users,
        advice="Do not collect with this version: devices give away more than they say.",
    )
    return Outcome(findings=(finding,))


class _Answers:
    """Opened answers of many users."""

    def __init__(
        self, audited: Audited, values: NDArray[np.int64], rng: np.random.Generator
    ) -> None:
        task = audited.task
        # With no seal around them, reports are as long as their content.
        self.per_user = task.reports_per_user
        contributor = _OpenContributor(task, _DIGEST)
        envelopes = [contributor.prepare(value, rng) for value in values.tolist()]
        self.values = values
        self.lengths = {len(envelope) for envelope in envelopes}
        size = task.mechanism.report_bytes * self.per_user
        self.ids = [envelope[:-size] for envelope in envelopes]
        joined = b"".join(envelope[-size:] for envelope in envelopes)
        self.reports: Reports = np.frombuffer(joined, dtype=audited.mechanism.report_dtype)
        self.null = is_null(self.reports).reshape(-1, self.per_user)


def _check_form(checks: Checks, audited: Audited, made: _Answers) -> None:
    """As many messages from everybody, and dummies whose number knows nothing of the value."""
    task, padding = audited.task, made.null.sum(axis=1)
    checks.must("one length of what is sealed", len(made.lengths) == 1)
    checks.must("every submission has an id of its own", len(set(made.ids)) == len(made.ids))
    valid = audited.mechanism.valid(made.reports[~made.null.ravel()])
    checks.must("nothing but valid reports and padding", bool(valid.all()))
    if task.dummies.law == "fixed":
        checks.must("a fixed number of dummies, and no padding", not padding.any())
        return
    first, last = (
        np.bincount(padding[made.values == value], minlength=made.per_user + 1)
        for value in (0, task.domain_size - 1)
    )
    checks.test("as many dummies whatever the value", fit.of_two_samples(first, last))
    share = padding / made.per_user
    deviation = math.sqrt(float((share * (1 - share)).sum()))
    for place in range(made.per_user):
        seen = float(made.null[:, place].sum())
        checks.test("padding in every place", fit.of_normal(seen, float(share.sum()), deviation))


def _check_support(checks: Checks, audited: Audited, made: _Answers) -> None:
    """In every place of a submission the own value is supported equally often."""
    mechanism, task, law = audited.mechanism, audited.task, support_law(audited.task)
    if not task.dummies.uniform:
        return
    own = np.zeros(made.null.shape, dtype=np.bool_)
    for value in (0, task.domain_size - 1):
        supported = mechanism.supports(made.reports, value).reshape(made.null.shape)
        own |= supported & (made.values == value)[:, None]
    own &= ~made.null
    chance = (law.own + task.dummies.expected_per_user * law.dummy) / made.per_user
    for place in range(made.per_user):
        seen = int(own[:, place].sum())
        checks.test(
            "the own report in every place", fit.of_chance(seen, len(own), min(1.0, chance))
        )


def _check_seeds(checks: Checks, audited: Audited, made: _Answers) -> None:
    """No two messages of one person share a seed oftener than by chance."""
    if "seed" not in (made.reports.dtype.names or ()):
        return
    seeds = made.reports["seed"].reshape(made.null.shape)
    family = getattr(audited.mechanism, "family", None)
    number = 2.0**64 if family is None else family.seeds
    together: Iterable[tuple[int, int]] = itertools.combinations(range(made.per_user), 2)
    if made.per_user > _ALL_PAIRS:
        together = itertools.pairwise(range(made.per_user))
    equal = pairs = 0
    for one, other in together:
        both = ~(made.null[:, one] | made.null[:, other])
        pairs += int(both.sum())
        equal += int((both & (seeds[:, one] == seeds[:, other])).sum())
    checks.test("a seed of its own for every message", fit.of_number(equal, pairs / number))


def _check_source(checks: Checks, audited: Audited) -> None:
    """An answer follows from the generator that the device is given, and from the value."""
    contributor = _OpenContributor(audited.task, _DIGEST)
    first, again, other = (
        contributor.prepare(0, np.random.default_rng(seed)) for seed in (1, 1, 2)
    )
    checks.must("an answer follows from its generator", first == again)
    checks.must("another generator, another answer", first != other)


def _check_lengths(checks: Checks, audited: Audited, rng: np.random.Generator) -> None:
    """Every sealed answer has one length, and opens to reports of one length; for every value."""
    suite = audited.task.suite
    analyzer, shuffler = HpkePrivateKey.generate(suite), HpkePrivateKey.generate(suite)
    task = dataclasses.replace(
        audited.task,
        analyzer_key=analyzer.public_key().raw,
        shuffler_key=shuffler.public_key().raw,
    )
    contributor = Contributor(task, _DIGEST)
    size = task.sealed_report_bytes
    sealed_all: list[bytes] = []
    for value in np.unique(np.linspace(0, task.domain_size - 1, _MOST_VALUES).astype(int)).tolist():
        envelope = contributor.prepare(value, rng)
        checks.must("one length of every envelope", len(envelope) == task.envelope_bytes)
        try:
            plain = shuffler.open(envelope, envelope_context(_DIGEST))
            sealed = unpack(plain, task).sealed_reports
        except (SealError, WireError):
            checks.must("an envelope of as many sealed reports from everybody", False)  # noqa: FBT003  # a fact
            continue
        reports = [sealed[start : start + size] for start in range(0, len(sealed), size)]
        opened = [analyzer.open(report, report_context(_DIGEST)) for report in reports[:_OPENED]]
        checks.must(
            "one length of every report", {task.mechanism.report_bytes} == set(map(len, opened))
        )
        sealed_all += reports
    checks.must("no ciphertext twice", len(set(sealed_all)) == len(sealed_all))
