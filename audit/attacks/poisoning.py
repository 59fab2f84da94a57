"""
Poisoning by fake users: the measured rise of the targets' estimates against its formula [CJG21].

The estimator is linear in the support counts. A report counts as 1, or as -w if it is a negative
report of the protocol `signed`; its weight is that times the number of targets that it supports,
and adds to n·(p-q) times the sum of the targets' debiased shares. For r targets the estimator
subtracts r·q per user and r·q_dummy per further report, as often as it counts. If a share λ of
users each send reports that count as c in all and weigh h in all, the sum rises by

    λ·[(h - r·q - (c - 1)·r·q_dummy) / (p - q) - f_T]

on average, with f_T the targets' share among the other users. [CJG21] has the case c = 1. The
report of a user who holds a target weighs r·q + p - q on average.

Published shares are corrected to sum to 1: of what a fake user adds to the sum of all shares beyond
its own share, the targets lose their weights in the correction, about r/d. So a report that
supports all items alike gains nothing.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.random import Generator

from shuffledp.analyzer.finalize import mixture_of
from shuffledp.audit.families.family import Items
from shuffledp.audit.finding import Checks, Rows
from shuffledp.audit.scenario import AuditSubject
from shuffledp.common.errors import WireError
from shuffledp.common.mechanisms.base import Counts, Reports, Vector, is_null
from shuffledp.common.mechanisms.covariance import ShareCovariance
from shuffledp.common.mechanisms.discovery.prefix_search import estimates, next_counts
from shuffledp.common.protocols import Kind
from shuffledp.lab.simulate.collection import collect, few_enough_reports, with_noise
from shuffledp.user_agent.contribution import encoder_for

_FAKE_SHARE: Final = 0.05
"""Share λ of fake users, as in [CJG21]."""
_MAX_TARGETS: Final = 10
_MIN_USERS: Final = 100
_TABLE_USERS: Final = 10_000
"""Maximum users of a simulated batch for tables; the gain does not depend on their number."""
_ZIPF: Final = 1.1
_REL_TOL: Final = 1e-9
FLOOD_FACTOR: Final = 10
"""Number of submissions whose reports a fake user puts into one submission."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Leverage:
    """Weights of honest and crafted reports, for one set of r targets."""

    signal: float
    """p - q, the difference of true and false support probabilities."""
    own_floor: float
    """Weight subtracted per user: r·q."""
    dummy_floor: float
    """Weight subtracted per further report: r·q_dummy."""
    items_per_target: float
    """d/r."""
    correction: float
    """Sum of the targets' weights in the correction to the known total."""
    crafted: Reports
    """Report that raises the targets most above the mean of all items, or lowers one; (1,)."""
    weight: float
    supported: float
    """Weight for all items."""

    @classmethod
    def of(
        cls,
        subject: AuditSubject,
        targets: Items,
        rng: Generator,
        correction: Vector,
        *,
        negative: bool = False,
    ) -> "Leverage | None":
        """
        Compute the weights for distinct targets, shape (r,); None if no report is negative.

        `correction` has the weights of `ShareCovariance.summing_to_one`, shape (domain_size,).
        """
        family, mechanism, r = subject.family, subject.mechanism, len(targets)
        report = family.negative(targets) if negative else family.crafted(targets, rng)
        if report is None:
            return None
        # If the shuffler adds dummies, only those are subtracted, whatever users send.
        expected = mechanism.q_dummy if subject.task.shuffler.only_permutes else 0.0
        return cls(
            signal=mechanism.p - mechanism.q,
            own_floor=r * mechanism.q,
            dummy_floor=r * expected,
            items_per_target=mechanism.domain_size / r,
            correction=float(correction[targets].sum()),
            crafted=report,
            weight=float(family.supported(report, targets)[0]),
            supported=float(family.supported(report, np.arange(mechanism.domain_size))[0]),
        )

    def answers(self, weight: float, supported: float, counted: float = 1.0) -> float:
        """
        Return how many honest answers raise the targets as much as reports of this weight.

        Reports count as `counted` and weigh `supported` for all items.
        """
        floor = self.own_floor + (counted - 1) * self.dummy_floor
        total = (supported - self.items_per_target * floor) / self.signal
        return (weight - floor) / self.signal - self.correction * (total - 1)


@dataclass(kw_only=True, eq=False)
class _Sent:
    """The reports of all fake users that the shuffler keeps."""

    subject: AuditSubject
    targets: Items
    cells: Counts | int = 0
    number: int = 0
    n_drawn: int = 0
    weight: float = 0.0
    counted: float = 0.0
    """Number of users that these reports count as."""
    excess: float = 0.0
    """Weight of the drawn reports above their mean."""

    def add(self, reports: Reports, *, times: int = 1, mean: float | None = None) -> None:
        """Add reports, each a number of times; those that were drawn have a mean weight."""
        family = self.subject.family
        weight = float(family.supported(reports, self.targets).sum())
        counted = float(family.counted(reports).sum())
        self.cells += times * self.subject.ports.tally(self.subject.mechanism, reports)
        self.number += times * len(reports)
        self.weight += times * weight
        self.counted += times * counted
        if mean is not None:
            self.n_drawn += len(reports)
            self.excess += weight - counted * mean

    def test(self, checks: Checks) -> None:
        """Test the weight of the drawn reports."""
        if self.n_drawn:
            scale = self.n_drawn * self.subject.family.spread(len(self.targets)) ** 2
            p_weight = 2 * math.exp(-2 * self.excess**2 / scale)  # [BLM13, Theorem 2.8]
            checks.test("weight of the drawn reports", min(1.0, p_weight))


def answer(
    subject: AuditSubject, lever: Leverage, targets: Items, count: int, rng: Generator
) -> tuple[Reports, float, float]:
    """Answer honestly for a random target."""
    reports = subject.mechanism.randomize(rng.choice(targets, size=count), rng)
    floors = lever.own_floor, lever.items_per_target * lever.own_floor
    return reports, floors[0] + lever.signal, floors[1] + lever.signal


def random_report(
    subject: AuditSubject, _: Leverage, targets: Items, count: int, rng: Generator
) -> tuple[Reports, float, float]:
    """Draw uniform reports."""
    reports, weight = subject.family.uniform(count, rng), subject.family.uniform_weight
    return reports, weight(len(targets)), weight(subject.task.domain_size)


@dataclass(frozen=True, slots=True, kw_only=True)
class Poisoning:
    """One kind of poisoning by fake users; called as the check of a scenario."""

    first: (
        Callable[[AuditSubject, Leverage, Items, int, Generator], tuple[Reports, float, float]]
        | None
    ) = None
    """Draws the first report of each fake user, and returns them and their mean weights for the
    targets and for all items; None: it is crafted."""
    sentence: str
    """In it, `{answers}` becomes the number of honest answers that raise the targets as much as one
    fake user."""
    row_title: str = ""
    """In it, `{number}` becomes the number of reports per fake user."""
    submissions: int = 0
    """Submissions full of crafted reports; 0: one first report and honest dummies."""
    refused: bool = False
    """Whether the attack is harmless or refused; otherwise it is a known limit."""
    negative: bool = False
    """Whether crafted reports are negative ones of a target; no findings if there are none."""

    def __call__(self, subject: AuditSubject, rng: Generator) -> Rows:
        """Simulate the fake users; no findings if reports support no items."""
        if not subject.of_items:
            yield from _OTHER_KINDS[subject.task.kind](self, subject, rng)
            return
        task, mechanism, family, checks = subject.task, subject.mechanism, subject.family, Checks()
        if not family.supports_items:
            return
        users, n_fakes, targets = _users(subject, rng)
        n_honest, n_users = int(users.sum()), int(users.sum()) + n_fakes
        honest = collect(task, mechanism, users, rng, one_by_one=few_enough_reports(task, n_honest))
        truth, mixture = users / n_honest, mixture_of(task, n_honest, counted=honest.n_reports)
        covariance = ShareCovariance.of_mechanism(mechanism, truth, mixture)
        lever = Leverage.of(subject, targets, rng, covariance.correction, negative=self.negative)
        if lever is None:
            return
        r, kept_share = len(targets), task.shuffler.keep_probability
        number = self.submissions * task.lengths[-1] or 1
        sent, drawn = _Sent(subject=subject, targets=targets), []
        own, supported = lever.weight, lever.supported
        if self.first is None:
            sent.add(lever.crafted, times=int(rng.binomial(number * n_fakes, kept_share)))
        else:
            reports, own, supported = self.first(subject, lever, targets, n_fakes, rng)
            drawn.append((reports, own))
        if not self.submissions:
            _, dummies = task.dummies.draw(mechanism, n_fakes, rng)
            drawn.append((dummies[~is_null(dummies)], lever.dummy_floor))
        for reports, mean in drawn:
            sent.add(reports[task.shuffler.draw_kept(len(reports), rng)], mean=mean)
        sent.test(checks)
        debiased = [
            mechanism.debias(counts, mixture_of(task, among, counted=reports))
            for counts, among, reports in (
                (honest.cells, n_honest, honest.n_reports),
                (honest.cells + sent.cells, n_users, honest.n_reports + sent.number),
            )
        ]
        before, after = (float(each[targets].sum()) for each in debiased)
        # Both estimates count the same honest reports, so their noise cancels.
        own_counted, scale = kept_share * n_fakes, kept_share * lever.signal
        floors = own_counted * lever.own_floor + (sent.counted - own_counted) * lever.dummy_floor
        rise = scale * (n_users * after - n_honest * before)
        size = scale * (n_users * abs(after) + n_honest * abs(before))
        size += abs(floors) + abs(sent.weight) + 1
        checks.require(
            "the estimate rises by the weight of the fake reports",
            abs(rise + floors - sent.weight) <= _REL_TOL * size,
        )
        if self.submissions > 1:
            _require_refusals(checks, subject, number)
        per_user = task.lengths[-1]
        extreme = per_user * (lever.weight if self.negative else family.heaviest(r))
        most = _answers(lever.answers(extreme, extreme, per_user))
        as_many = number * (sent.counted / sent.number if self.submissions else 1.0)
        answers = lever.answers(number * own, number * supported, as_many)
        # Of a user's reports, on average: what they count as in all, and their weights.
        mean, each = sent.counted / own_counted, sent.number / own_counted
        heavy = own * each, supported * each
        if not self.submissions:
            floor = (mean - 1) * lever.dummy_floor
            heavy = own + floor, supported + lever.items_per_target * floor
        held = float(users[targets].sum() / n_honest)
        before, after = (float(covariance.summing_to_one(f)[targets].sum()) for f in debiased)
        yield checks.finding(
            title=self.row_title.format(number=number),
            heading="sender disruption",
            sentence=self.sentence.format(answers=_answers(answers)),
            known_limit=not self.refused,
            coalition=f"{_FAKE_SHARE:.0%} of the users",
            theorem="[CJG21]",
            expected=n_fakes / n_users * (lever.answers(*heavy, mean) - held),
            measured=after - before,
            trials=n_users,
            notes=(f"targets: {r} rare items; a submission counts for at most {most}",),
        )


def _fill_cell(attack: Poisoning, subject: AuditSubject, rng: Generator) -> Rows:
    """Send reports of one user that all name the same cell of the first table."""
    task, mechanism, checks, ports = subject.task, subject.mechanism, Checks(), subject.ports
    number = attack.submissions * task.lengths[-1] or task.own_reports
    n_users = max(_MIN_USERS, min(subject.n_users, _TABLE_USERS))
    people = rng.integers(0, mechanism.attribute_sizes, size=(n_users, task.domain_size))
    reports = mechanism.randomize(people, rng)
    dummies = mechanism.sample_dummies(n_users, rng)
    crafted = np.concatenate([reports, np.repeat(reports[:1], number)])
    before, after = (
        mechanism.estimate(ports.tally(mechanism, sent) + dummies, n_users)
        for sent in (reports, crafted)
    )
    rise = n_users * (after.tables[0].shares - before.tables[0].shares)
    cell, gain = int(reports["item"][0]), subject.family.gain(0, n_users)
    checks.require(
        "the cell rises as calculated, and no other more",
        math.isclose(rise[cell], number * gain, rel_tol=_REL_TOL) and rise.max() == rise[cell],
    )
    if attack.submissions > 1:
        _require_refusals(checks, subject, number)
    yield checks.finding(
        title=attack.row_title.format(number=number),
        heading="sender disruption",
        sentence=f"Reports that all name one cell of a table each raise its estimate by {gain:.3g} "
        "users: a submission moves a cell by at most its number of reports.",
        known_limit=not attack.refused,
        coalition="users",
        theorem="[CJG21]",
        expected=number * gain,
        measured=float(rise[cell]),
        trials=n_users,
    )


def _inject(_attack: Poisoning, subject: AuditSubject, rng: Generator) -> Rows:
    """Craft an open dictionary's reports on one value, whose weight no other report changes."""
    mechanism, checks = subject.mechanism, Checks()
    [value] = encoder_for(subject.task, None)(subject.family.usual_value, rng)
    values = np.tile(value, (_MIN_USERS, 1))
    reports = mechanism.randomize(values, rng)
    reports["level"] = mechanism.levels - 1
    reports["bucket"] = mechanism.hashed(reports, values)
    *prefix, last = value[list(mechanism.columns[-1])].tolist()
    [counts] = next_counts(mechanism, subject.ports.tally(mechanism, reports), np.array([prefix]))
    [[measured], _] = estimates(mechanism, counts[[last]], len(reports))
    gain = (1 - mechanism.q) / (mechanism.p - mechanism.q)
    checks.require("the weight is as calculated", math.isclose(measured, gain, rel_tol=_REL_TOL))
    yield checks.finding(
        title="Fake users who make a value appear that nobody holds",
        heading="sender disruption",
        sentence=f"A crafted report counts as {gain:.3g} honest ones of its level. A value that "
        f"nobody holds appears if each of {mechanism.levels} levels gets its share of them.",
        known_limit=True,
        coalition="users",
        theorem="[CJG21]",
        expected=gain,
        measured=float(measured),
        trials=len(reports),
    )


def _move(_attack: Poisoning, subject: AuditSubject, rng: Generator) -> Rows:
    """Fill submissions with one digit of a number; no findings where a user sends one report."""
    task, mechanism, checks = subject.task, subject.mechanism, Checks()
    if (crafted := subject.family.crafted_numbers()) is None:
        return
    (report, weight), number = crafted, task.lengths[-1]
    n_fakes = max(1, round(_FAKE_SHARE * _MIN_USERS))
    values = rng.uniform(-1, 1, (_MIN_USERS, task.domain_size))
    honest = with_noise(task, mechanism.sample_batch(values, rng), rng)
    fakes = subject.ports.tally(mechanism, np.repeat(report, number * n_fakes))
    before, after = (
        float(n * mechanism.moments(cells, mixture_of(task, n, counted=int(cells.sum()))).means[0])
        for n, cells in ((_MIN_USERS, honest.cells), (_MIN_USERS + n_fakes, honest.cells + fakes))
    )
    expected, measured = number * weight, (after - before) / n_fakes
    moves = math.isclose(measured, expected, rel_tol=_REL_TOL)
    checks.require("the mean moves by the weight of the fake reports", moves)
    yield checks.finding(
        title=f"Fake users who craft all {number} reports of a submission",
        heading="sender disruption",
        sentence="A user who fills a submission with the largest values of one digit moves the sum "
        f"of a number by {(expected + 1) / 2:.3g} ranges at most; an honest one, by one range.",
        known_limit=True,
        coalition="users",
        expected=expected,
        measured=measured,
        trials=_MIN_USERS + n_fakes,
    )


_OTHER_KINDS: Final[Mapping[Kind, Callable[[Poisoning, AuditSubject, Generator], Rows]]] = {
    "mean": _move,
    "vector": _move,
    "open": _inject,
    "table": _fill_cell,
}


def _require_refusals(checks: Checks, subject: AuditSubject, flood: int) -> None:
    """Check that the shuffler refuses too few reports, too many, and `flood` reports."""
    task = subject.task
    for wrong in (task.lengths[0] - 1, task.lengths[-1] + 1, flood):
        more = (wrong - task.lengths[0]) * task.sealed_report_bytes
        with checks.refused(f"the shuffler refuses a submission of {wrong} reports", WireError):
            subject.ports.check_length(bytes(task.envelope_sizes[0] + more), task)


def _users(subject: AuditSubject, rng: Generator) -> tuple[Counts, int, Items]:
    """Return the honest users by item, by Zipf's law, the number of fakes, and the rarest items."""
    task = subject.task
    n_users = max(_MIN_USERS, min(subject.n_users, subject.family.most_users))
    n_fakes = max(1, round(_FAKE_SHARE * n_users))
    popularity = np.arange(1, task.domain_size + 1, dtype=np.float64) ** -_ZIPF
    users = rng.multinomial(n_users - n_fakes, popularity / popularity.sum())
    r = min(_MAX_TARGETS, task.domain_size // 2)
    return users, n_fakes, np.arange(task.domain_size - r, task.domain_size, dtype=np.int64)


def _answers(number: float) -> str:
    """Format a number of honest answers, rounded up to one decimal."""
    shown = math.ceil(10 * number - 1e-9) / 10
    return f"{shown:g} honest answer{'' if shown == 1 else 's'}"
