"""
Poisoning by fake users: the rise of some items' estimates, against its formula [CJG21].

A simulated collection with fake users is counted and estimated by the deployed code.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, Self

import numpy as np

from analyzer.finalize import mixture_of
from common.errors import WireError
from common.mechanisms.base import Counts, Mechanism, Reports
from common.mechanisms.hashing.string_hashing import StringHashing
from common.messages.submission import Submission, unpack
from common.task.task import SUBMISSION_ID_BYTES, Task
from deploy.audit.attacks.leverage import Leverage, leverage, uniform
from deploy.audit.finding import Checks, Finding, Findings
from deploy.audit.scenario import AuditSubject
from deploy.simulate.collection import Counted, count, made_one_by_one
from shuffler.shuffle import draw_kept
from user_agent.contribution import draw_dummies, draw_dummy_counts

_FAKE_SHARE: Final = 0.05
"""λ, as in [CJG21]."""
_MAX_TARGETS: Final = 10
_MIN_USERS: Final = 100
_MAX_USERS: Final = 200_000
_MAX_PAIRS: Final = 20_000_000
"""Most pairs of report and candidate string to hash."""
_ZIPF: Final = 1.1
_REL_TOL: Final = 1e-9
"""Rounding of sums in 53 bits."""
_FLOOD: Final = 10
"""Submissions' worth of reports that a flooding user sends at once."""


@dataclass(kw_only=True, eq=False)
class PoisonedCollection:
    """Honest users, counted, and the reports that fake users have added so far."""

    task: Task
    mechanism: Mechanism
    users: Counts
    """Honest users by item."""
    n_fakes: int
    honest: Counted
    leverage: Leverage
    fake: Counted
    weight: float = 0.0
    """Total weight of the fake reports."""
    off: float = 0.0
    """What the weight of drawn reports is above its mean, by the formula."""
    n_drawn: int = 0

    @classmethod
    def of(cls, subject: AuditSubject, rng: np.random.Generator) -> Self:
        """
        Draw honest users from a Zipf distribution; the rarest items are the targets.

        Cost: a simulated collection, tenths of a second.
        """
        task, mechanism = subject.task, subject.mechanism
        most = _MAX_USERS
        if isinstance(mechanism, StringHashing):
            pairs = mechanism.domain_size * (1 + task.dummies.expected_per_user)
            most = max(1000, min(_MAX_USERS, int(_MAX_PAIRS / pairs)))
        n_users = max(_MIN_USERS, min(subject.n_users, most))
        n_fakes = max(1, round(_FAKE_SHARE * n_users))
        popularity = np.arange(1, task.domain_size + 1, dtype=np.float64) ** -_ZIPF
        users = rng.multinomial(n_users - n_fakes, popularity / popularity.sum())
        r = min(_MAX_TARGETS, task.domain_size // 2)
        targets = np.arange(task.domain_size - r, task.domain_size, dtype=np.int64)
        one_by_one = made_one_by_one(task, int(users.sum()))
        honest = count(task, mechanism, users, rng, one_by_one=one_by_one)
        return cls(
            task=task,
            mechanism=mechanism,
            users=users,
            n_fakes=n_fakes,
            honest=honest,
            leverage=leverage(task, mechanism, targets, rng),
            fake=Counted(cells=np.zeros_like(honest.cells), n_reports=0),
        )

    @property
    def n_users(self) -> int:
        """All users."""
        return int(self.users.sum()) + self.n_fakes

    @property
    def own_reports(self) -> float:
        """First reports of fake users that are counted, on average."""
        return self.task.shuffler.kept * self.n_fakes

    def expected(self, own: float, each: float) -> float:
        """Return the rise by the formula, for a weight of first reports and of further ones."""
        return self.leverage.gain(
            self.n_fakes / self.n_users,
            own,
            further=self.fake.n_reports / self.own_reports - 1,
            each=each,
            held=float(self.users[self.leverage.targets].sum() / self.users.sum()),
        )

    def add_drawn(self, reports: Reports, mean: float, rng: np.random.Generator) -> None:
        """Add reports drawn at random with this mean weight, as far as the shuffler keeps them."""
        kept = reports[draw_kept(self.task.shuffler, len(reports), rng)]
        weight = self.leverage.weigh(self.mechanism, kept)
        self.off += weight - len(kept) * mean
        self.n_drawn += len(kept)
        self._add(self.mechanism.tally(kept), len(kept), weight)

    def add_copies(
        self, report: Reports, weight: float, copies: int, rng: np.random.Generator
    ) -> None:
        """Add copies of a report with this weight, each sealed separately."""
        number = int(rng.binomial(copies, self.task.shuffler.kept))
        self._add(number * self.mechanism.tally(report), number, number * weight)

    def add_honest_dummies(self, rng: np.random.Generator) -> None:
        """Add the dummies of fake users who draw them honestly."""
        spec = self.task.dummies
        if spec.uniform:
            total = int(draw_dummy_counts(spec, self.n_fakes, rng).sum())
            dummies = self.mechanism.dummies(total, rng)
        else:
            drawn = [draw_dummies(self.mechanism, spec, rng) for _ in range(self.n_fakes)]
            dummies = np.concatenate(drawn)
        self.add_drawn(dummies, self.leverage.dummy_floor, rng)

    def _add(self, cells: Counts, number: int, weight: float) -> None:
        self.fake = Counted(cells=self.fake.cells + cells, n_reports=self.fake.n_reports + number)
        self.weight += weight

    @property
    def p_weight(self) -> float:
        """Bound the probability of a weight as far from its mean [BLM13, Theorem 2.8]."""
        reach = self.leverage.high - self.leverage.low
        return min(1.0, 2 * math.exp(-2 * self.off**2 / (max(1, self.n_drawn) * reach**2)))

    def shares(self) -> tuple[float, float]:
        """Return the targets' estimated share among honest users, and among all."""
        batch = Counted(
            cells=self.honest.cells + self.fake.cells,
            n_reports=self.honest.n_reports + self.fake.n_reports,
        )
        before, after = (
            self.mechanism.debias(
                counted.cells, mixture_of(self.task, n_users, counted=counted.n_reports)
            )[self.leverage.targets].sum()
            for counted, n_users in ((self.honest, self.users.sum()), (batch, self.n_users))
        )
        return float(before), float(after)

    def rises_by_the_weight(self, before: float, after: float) -> bool:
        """
        Whether the estimate moves by the weight of the fake reports, to the last digits.

        The honest reports are the same in both estimates, so their noise cancels.
        """
        lever, own = self.leverage, self.own_reports
        floors = own * lever.own_floor + (self.fake.n_reports - own) * lever.dummy_floor
        scale = self.task.shuffler.kept * lever.signal
        before, after = scale * (self.n_users - self.n_fakes) * before, scale * self.n_users * after
        size = abs(before) + abs(after) + abs(floors) + abs(self.weight) + 1
        return abs(after - before + floors - self.weight) <= _REL_TOL * size


def input_manipulation(
    subject: AuditSubject, rng: np.random.Generator, *, counted_twice: bool = False
) -> Findings:
    """Fake users answer honestly for targets that they do not hold [CJG21]."""
    attack = PoisonedCollection.of(subject, rng)
    values = rng.choice(attack.leverage.targets, size=attack.n_fakes)
    attack.add_drawn(attack.mechanism.randomize(values, rng), attack.leverage.honest, rng)
    finding = _finding(
        attack,
        rng,
        own=attack.leverage.honest,
        counted_twice=counted_twice,
        scenario="input-manipulation",
        title="Fake users who answer honestly for values they do not hold",
        sentence="Users who lie about their value, and do nothing else, raise the items that they "
        "name by no more than their own share of all users, on average.",
    )
    return Findings((finding,))


def random_reports(
    subject: AuditSubject, rng: np.random.Generator, *, counted_twice: bool = False
) -> Findings:
    """Fake users send uniformly random valid reports in place of randomized ones [CJG21]."""
    attack = PoisonedCollection.of(subject, rng)
    reports = uniform(attack.mechanism, attack.n_fakes, rng)
    attack.add_drawn(reports, attack.leverage.uniform, rng)
    finding = _finding(
        attack,
        rng,
        own=attack.leverage.uniform,
        counted_twice=counted_twice,
        scenario="random-reports",
        title="Fake users who send random reports",
        known_limit=True,
        sentence="Users who send random reports distort the estimate as calculated; nothing "
        "distinguishes them from other users.",
    )
    return Findings((finding,))


def maximal_gain(
    subject: AuditSubject, rng: np.random.Generator, *, factor: float = 1.0
) -> Findings:
    """
    Fake users craft their own reports; their dummies are honest.

    The maximal gain attack raises the sum of the targets' estimates most [CJG21]. In some hash
    families the report that does so raises every item; then a report that singles out the targets
    is shown beside it. `factor`: the formula multiplies a crafted report's weight by it.
    """
    honest = PoisonedCollection.of(subject, rng)
    lever = honest.leverage
    tried = "of those tried " if lever.searched_in_part else ""
    crafted = [
        (
            lever.crafted,
            lever.weight,
            "Crafted reports that single out the targets",
            (
                "A report that a user crafts for chosen items counts for them together as much as "
                f"{_answers(lever.answers(lever.weight))}; none {tried}raises them more above all "
                "items, and nothing distinguishes it from other reports."
            ),
        )
    ]
    if lever.blunt is not None:
        crafted.append(
            (
                lever.blunt,
                lever.high,
                "Crafted reports that support every item",
                (
                    "The hash family has a report that supports every item at once: none adds more "
                    "to the sum of the targets' estimates, but it singles out nothing."
                ),
            )
        )
    findings = []
    for report, weight, title, sentence in crafted:
        attack = replace(honest)
        attack.add_copies(report, factor * weight, attack.n_fakes, rng)
        findings.append(
            _finding(
                attack,
                rng,
                own=factor * weight,
                scenario="maximal-gain",
                title=title,
                known_limit=True,
                sentence=sentence,
            )
        )
    return Findings(tuple(findings))


def dummy_abuse(subject: AuditSubject, rng: np.random.Generator, *, uncounted: int = 0) -> Findings:
    """Fake users craft every report of a submission. `uncounted`: reports the formula omits."""
    number = subject.task.reports_per_user
    attack = PoisonedCollection.of(subject, rng)
    lever = attack.leverage
    weight = lever.weight * (number - uncounted) / number
    together = lever.answers(lever.weight, further=number - 1, each=lever.weight)
    attack.add_copies(lever.crafted, weight, number * attack.n_fakes, rng)
    finding = _finding(
        attack,
        rng,
        own=weight,
        each=weight,
        scenario="dummy-abuse",
        title=f"Fake users who craft all {number} reports of a submission",
        known_limit=True,
        sentence="A user who crafts every report of a submission counts for the chosen items as "
        f"much as {_answers(together)}; the number of reports in a submission bounds the attack.",
    )
    return Findings((finding,))


def message_flood(
    subject: AuditSubject,
    rng: np.random.Generator,
    *,
    parse: Callable[[bytes, Task], Submission] = unpack,
) -> Findings:
    """Fake users send many times the task's number of reports. `parse` reads a submission."""
    task, checks = subject.task, Checks()
    number = _FLOOD * task.reports_per_user
    attack = PoisonedCollection.of(subject, rng)
    weight = attack.leverage.weight
    attack.add_copies(attack.leverage.crafted, weight, number * attack.n_fakes, rng)
    for reports in (0, task.reports_per_user - 1, task.reports_per_user + 1, number):
        plaintext = bytes(SUBMISSION_ID_BYTES + reports * task.sealed_report_bytes)
        try:
            parse(plaintext, task)
            refused = False
        except WireError:
            refused = True
        checks.must(f"the shuffler refuses a submission of {reports} reports", refused)
    finding = _finding(
        attack,
        rng,
        own=weight,
        each=weight,
        checks=checks,
        scenario="message-flood",
        title=f"Fake users who send {number} crafted reports, if their number were not checked",
        sentence="Were the number of reports in a submission not checked, the gain would grow in "
        "proportion; the shuffler refuses every other number.",
    )
    return Findings((finding,))


def unchecked_parse(plaintext: bytes, task: Task) -> Submission:  # noqa: ARG001  # stands for `unpack`
    """Read a submission of any number of reports."""
    return Submission(
        submission_id=plaintext[:SUBMISSION_ID_BYTES],
        sealed_reports=plaintext[SUBMISSION_ID_BYTES:],
    )


def _finding(
    attack: PoisonedCollection,
    rng: np.random.Generator,
    *,
    own: float,
    each: float | None = None,
    checks: Checks | None = None,
    counted_twice: bool = False,
    **fields: Any,  # noqa: ANN401  # of a finding
) -> Finding:
    """
    Compare an attack with the formula, by the mean weights of a fake user's first report and of
    each further one; without the latter, fake users add honest dummies.
    """
    lever, checks = attack.leverage, checks or Checks()
    if each is None:
        attack.add_honest_dummies(rng)
    if counted_twice:
        attack.fake = replace(attack.fake, cells=2 * attack.fake.cells)
    before, after = attack.shares()
    rises = attack.rises_by_the_weight(before, after)
    checks.must("the estimate rises by the weight of the fake reports", rises)
    if attack.n_drawn:
        checks.test("weight of the drawn reports", attack.p_weight)
    number = attack.task.reports_per_user
    return checks.finding(
        heading="sender disruption",
        coalition=f"{_FAKE_SHARE:.0%} of the users",
        theorem="[CJG21]",
        expected=attack.expected(own, lever.dummy_floor if each is None else each),
        measured=after - before,
        trials=attack.n_users,
        notes=(
            f"rise of the estimated share of {len(lever.targets)} rare items together",
            f"no submission of {number} report{'' if number == 1 else 's'} counts for more than "
            + _answers(lever.answers(lever.high, further=number - 1, each=lever.high)),
        ),
        **fields,
    )


def _answers(number: float) -> str:
    """Write a number of honest answers, rounded up."""
    shown = math.ceil(10 * number - 1e-9) / 10
    return f"{shown:g} honest answer{'' if shown == 1 else 's'}"
