"""
Whether a device's answers are what they should be as a whole: what no part of them shows.

Answers are made whole by the deployed code, value after value, and left unsealed: sealing hides
their content, and nothing of it depends on how. That every envelope has one length is checked on
sealed ones: of every value of a small domain, of some hundreds of a large one.
"""

import dataclasses
import itertools
import math
from collections.abc import Iterable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from common.crypto.hpke import HpkePrivateKey, envelope_context, report_context
from common.errors import WireError
from common.errors import WireError as SealError
from common.mechanisms.base import Reports, is_null
from common.mechanisms.hashing.local_hashing import LocalHashing
from common.mechanisms.hashing.string_hashing import StringHashing
from common.mechanisms.registry import mechanism_of
from common.messages.submission import Submission, pack, unpack
from common.task.task import Task
from common.task_digest import DIGEST_BYTES, TaskDigest
from deploy.audit import fit
from deploy.audit.audited import Audited
from deploy.audit.checks import Checks
from deploy.audit.code.replay import Recording, answer_ordered
from deploy.audit.finding import Outcome
from deploy.audit.laws.dummy_laws import law_of_extra
from deploy.audit.laws.panel import panel
from deploy.audit.laws.support_law import support_law
from deploy.audit.stand_ins.watched import Watched
from user_agent.contribution import Contributor

_DIGEST: Final = TaskDigest(bytes(DIGEST_BYTES))
"""Of the audited task as it is unsealed here."""
_ALL_PAIRS: Final = 12
"""Messages of one person up to which any two are compared, and not only neighbours."""
_OPENED: Final = 20
"""Reports of one answer that are opened."""
_OF_A_SAMPLE: Final = 20
"""As many times fewer answers are made of a sample task."""
_LEAST_USERS: Final = 300
_MOST_PLACES: Final = 12
_REPEATS: Final = 55
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
        self.watched = Watched(self._mechanism)
        self._mechanism = self.watched  # stands in for it


def play_devices(audited: Audited, rng: np.random.Generator) -> Outcome:
    """Make answers of the audited task, and of one of every kind, and look at what varies."""
    checks, effort, made = Checks(), audited.effort.devices, 0
    for task in (audited.task, *panel()):
        share = 1 if task is audited.task else _OF_A_SAMPLE
        of_one = max(_LEAST_USERS, effort // share * _USUAL // max(_USUAL, task.reports_per_user))
        _check_answers(checks, task, of_one, rng)
        made += of_one
    _check_lengths(checks, audited.task, rng)
    finding = checks.finding(
        scenario="devices",
        title="A device's answer shows its value by nothing but its reports",
        heading="anonymity",
        coalition="shuffler+analyzer",
        sentence="Neither the number of messages, nor their order, nor the length of anything sent "
        "depends on what a person holds.",
        trials=made,
        advice="Do not collect with this version: devices give away more than they say.",
    )
    return Outcome(findings=(finding,))


def _check_answers(checks: Checks, task: Task, users: int, rng: np.random.Generator) -> None:
    made = _Answers(task, users, rng)
    _check_form(checks, task, made)
    _check_support(checks, task, made)
    _check_seeds(checks, made)
    _check_source(checks, task)


class _Answers:
    """Opened answers of many users."""

    def __init__(self, task: Task, users: int, rng: np.random.Generator) -> None:
        # With no seal around them, reports are as long as their content.
        self.mechanism, self.per_user = mechanism_of(task), task.reports_per_user
        self.values = np.sort(np.arange(users) % task.domain_size)
        self.as_drawn = True
        source, contributor = Recording(rng.bit_generator), _OpenContributor(task, _DIGEST)
        envelopes = [self._watched(contributor, value, source) for value in self.values.tolist()]
        self.lengths = {len(envelope) for envelope in envelopes}
        size = task.mechanism.report_bytes * self.per_user
        self.ids = [envelope[:-size] for envelope in envelopes]
        joined = b"".join(envelope[-size:] for envelope in envelopes)
        self.reports: Reports = np.frombuffer(joined, dtype=self.mechanism.report_dtype)
        self.null = is_null(self.reports).reshape(-1, self.per_user)

    def _watched(self, contributor: _OpenContributor, value: int, source: Recording) -> bytes:
        """Make one answer, and compare it with what was drawn for it."""
        source.forget()
        contributor.watched.drawn.clear()
        made = contributor.prepare(value, source)
        reports = answer_ordered(source, contributor.watched.drawn, self.per_user)
        [drawn_id] = source.bytes_drawn if len(source.bytes_drawn) == 1 else [b""]
        sealed = b"" if reports is None else reports.tobytes()
        self.as_drawn &= made == pack(Submission(submission_id=drawn_id, sealed_reports=sealed))
        return made

    @property
    def own(self) -> NDArray[np.bool_]:
        """Which messages support their sender's value, shape (users, per_user)."""
        own = np.zeros(self.null.shape, dtype=np.bool_)
        by_user = self.reports.reshape(self.null.shape)
        held, starts = np.unique(self.values, return_index=True)
        for value, rows in zip(held, np.split(np.arange(len(own)), starts[1:]), strict=True):
            theirs = by_user[rows].ravel()
            own[rows] = self.mechanism.supports(theirs, int(value)).reshape(len(rows), -1)
        return own & ~self.null


def _check_form(checks: Checks, task: Task, made: _Answers) -> None:
    """As many messages from everybody, and dummies whose number knows nothing of the value."""
    padding = made.null.sum(axis=1)
    checks.must("one length of what is sealed", len(made.lengths) == 1)
    checks.must("an answer stands as it was drawn, under the id that was drawn", made.as_drawn)
    checks.must("every submission has an id of its own", len(set(made.ids)) == len(made.ids))
    valid = made.mechanism.valid(made.reports[~made.null.ravel()])
    checks.must("nothing but valid reports and padding", bool(valid.all()))
    if task.dummies.law == "fixed":
        checks.must("a fixed number of dummies, and no padding", not padding.any())
        return
    law = law_of_extra(task.dummies)
    counts = np.bincount(padding, minlength=len(law))
    checks.must("dummies within their law", len(counts) == len(law))
    checks.test("as many dummies as their law says", fit.of_cells(counts[: len(law)], law[::-1]))
    for some in (made.values < task.domain_size // 2, made.values % 2 == 0):
        first, last = (
            np.bincount(padding[held], minlength=made.per_user + 1) for held in (some, ~some)
        )
        checks.test("as many dummies whatever the value", fit.of_two_samples(first, last))
    share = padding / made.per_user
    mean, deviation = float(share.sum()), math.sqrt(float((share * (1 - share)).sum()))
    for place in _places(made):
        seen = float(made.null[:, place].sum())
        checks.test("padding in every place", fit.of_sum(seen, mean, deviation, 1.0))


def _check_support(checks: Checks, task: Task, made: _Answers) -> None:
    """In every place of a submission the own value is supported equally often."""
    if not task.dummies.uniform:
        return
    law, own = support_law(task), made.own
    chance = min(1.0, (law.own + task.dummies.expected_per_user * law.dummy) / made.per_user)
    for place in _places(made):
        seen = int(own[:, place].sum())
        checks.test("the own report in every place", fit.of_chance(seen, len(own), chance))


def _places(made: _Answers) -> list[int]:
    """Give the places of a submission that are looked at: the first and the last of many."""
    half = _MOST_PLACES // 2
    if made.per_user <= _MOST_PLACES:
        return list(range(made.per_user))
    return [*range(half), *range(made.per_user - half, made.per_user)]


def _check_seeds(checks: Checks, made: _Answers) -> None:
    """No two messages of one person share a seed, or a bucket, oftener than by chance."""
    if not isinstance(made.mechanism, (LocalHashing, StringHashing)):
        return
    for name, number in (
        (
            "seed",
            made.mechanism.family.seeds if isinstance(made.mechanism, LocalHashing) else 2**64,
        ),
        ("bucket", round(1 / made.mechanism.q_dummy)),
    ):
        drawn = made.reports[name].reshape(made.null.shape)
        together: Iterable[tuple[int, int]] = itertools.combinations(range(made.per_user), 2)
        if made.per_user > _ALL_PAIRS:
            together = itertools.pairwise(range(made.per_user))
        equal = pairs = 0
        for one, other in together:
            both = ~(made.null[:, one] | made.null[:, other])
            pairs += int(both.sum())
            equal += int((both & (drawn[:, one] == drawn[:, other])).sum())
        if pairs:
            p_value = fit.of_number(equal, pairs / number)
            checks.test(f"a {name} of its own for every message", p_value)


def _check_source(checks: Checks, task: Task) -> None:
    """An answer follows from its generator and its value, and not from how many came before."""
    contributor = _OpenContributor(task, _DIGEST)
    first, other = (contributor.prepare(0, np.random.default_rng(seed)) for seed in (1, 2))
    later = {contributor.prepare(0, np.random.default_rng(1)) for _ in range(_REPEATS)}
    checks.must("an answer follows from its generator", later == {first})
    checks.must("another generator, another answer", first != other)


def _check_lengths(checks: Checks, audited_task: Task, rng: np.random.Generator) -> None:
    """Every sealed answer has one length, and opens to reports of one length; for every value."""
    suite = audited_task.suite
    analyzer, shuffler = HpkePrivateKey.generate(suite), HpkePrivateKey.generate(suite)
    task = dataclasses.replace(
        audited_task,
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
