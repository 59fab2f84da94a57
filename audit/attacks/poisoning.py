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
"""

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from analyzer.finalize import mixture_of
from audit.distributions import usual_value
from audit.finding import Checks, Rows
from audit.scenario import AuditSubject, NotCoveredError, Scenario
from common.errors import WireError
from common.mechanisms.base import Counts, Mechanism, Reports, Vector, is_null, reports_of
from common.mechanisms.bits import pack
from common.mechanisms.discovery.prefix_search import estimates, next_counts
from common.mechanisms.hashing.local_hashing import LocalHashing
from common.mechanisms.hashing.string_hashing import StringHashing
from common.mechanisms.randomized_response import Grr
from common.mechanisms.registry import prefix_hashing_of
from common.mechanisms.signed import Signed
from common.mechanisms.support import SupportCounting
from common.mechanisms.unary import UnaryEncoding
from common.messages.submission import plain_reports
from common.protocols import Kind
from common.task.cluster_dummies import ClusterDummies
from common.task.task import Task
from lab.simulate.collection import collect, few_enough_reports
from shuffler.collection import check_length
from user_agent.contribution import encoder_for

Items = NDArray[np.int64]

_TRIED_REPORTS: Final = 2**18
"""Number of reports of a string hash that an attacker tries: a minute on a phone."""

_FAKE_SHARE: Final = 0.05
"""Share λ of fake users, as in [CJG21]."""
_MAX_TARGETS: Final = 10
_MIN_USERS: Final = 100
_MAX_USERS: Final = 200_000
_MAX_PAIRS: Final = 20_000_000
"""Maximum number of pairs of report and candidate string to hash."""
_ZIPF: Final = 1.1
_REL_TOL: Final = 1e-9
_UNDERSTATED_SHARE: Final = 0.9
"""In the self-test, the share of a crafted report's weight that the formula counts."""
_FLOOD_FACTOR: Final = 10
"""Number of submissions whose reports a fake user puts into one submission."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Leverage:
    """Weights of honest, random and crafted reports, for one set of r targets."""

    signal: float
    """p - q, the difference of true and false support probabilities."""
    own_floor: float
    """Weight subtracted per user: r·q."""
    dummy_floor: float
    """Weight subtracted per further report: r·q_dummy."""
    extreme: float
    """Maximum weight of a report; of negative ones, the minimum."""
    spread: float
    """Range of the weight of reports that are drawn together: a report, or a cluster."""
    uniform: float
    """Mean weight of a uniformly random valid report."""
    crafted: Reports
    """Report that raises the targets most above the mean of all items; shape (1,)."""
    weight: float

    def answers(self, weight: float, counted: float = 1.0) -> float:
        """Return how many honest answers raise the targets as much as reports of this weight."""
        return (weight - self.own_floor - (counted - 1) * self.dummy_floor) / self.signal


def leverage(
    task: Task, mechanism: Mechanism, targets: Items, rng: Generator, *, negative: bool = False
) -> Leverage:
    """Compute the weights of reports for distinct targets, shape (r,); crafted ones may lower."""
    one_item, bits = isinstance(mechanism, Grr), isinstance(mechanism, UnaryEncoding)
    if not isinstance(mechanism, SupportCounting):
        raise NotCoveredError(type(mechanism).__name__)
    worst, r = crafted(mechanism, targets, rng), len(targets)
    high = 1.0 if one_item else float(r)
    spread = high
    if isinstance(clusters := task.dummies, ClusterDummies):
        w = clusters.negative_weight
        spread = float(max(i + w * j for i, j, _ in clusters.clusters))
    if negative:
        worst = plain_reports(targets[:1] + mechanism.domain_size)
    weight = float(supported(mechanism, worst, targets)[0])
    # If the shuffler adds dummies, only those are subtracted, whatever users send.
    expected = mechanism.q_dummy if task.shuffler.only_permutes else 0.0
    return Leverage(
        signal=mechanism.p - mechanism.q,
        own_floor=r * mechanism.q,
        dummy_floor=r * expected,
        extreme=weight if negative else high,
        spread=spread,
        uniform=r / 2 if bits else r * mechanism.q_dummy,
        crafted=worst,
        weight=weight,
    )


def crafted(mechanism: Mechanism, targets: Items, rng: Generator) -> Reports:
    """Return the report, shape (1,), that raises targets most above the mean of all items."""
    if isinstance(mechanism, Grr):
        return plain_reports(targets[:1])
    if isinstance(mechanism, UnaryEncoding):
        bits = np.zeros((1, mechanism.domain_size), dtype=np.uint8)
        bits[0, targets] = 1
        return reports_of(mechanism.report_dtype, bits=pack(bits))
    if isinstance(mechanism, LocalHashing):
        return _of_family(mechanism, targets)
    if isinstance(mechanism, StringHashing):
        tried = mechanism.dummies(_TRIED_REPORTS, rng)  # uniform seeds and buckets
        best = int(supported(mechanism, tried, targets).argmax())
        return tried[best : best + 1]
    raise NotCoveredError(type(mechanism).__name__)


def uniform(mechanism: Mechanism, count: int, rng: Generator) -> Reports:
    """Draw valid reports uniformly [CJG21]: dummies, or vectors with half of their bits set."""
    if not isinstance(mechanism, UnaryEncoding):
        return mechanism.dummies(count, rng)
    bits = rng.integers(0, 2, size=(count, mechanism.domain_size), dtype=np.uint8)
    return reports_of(mechanism.report_dtype, bits=pack(bits))


def counted(mechanism: Mechanism, reports: Reports) -> Vector:
    """Return as what each report counts; shape (n,)."""
    if not isinstance(mechanism, Signed):
        return np.ones(len(reports))
    negative = reports["item"] >= mechanism.domain_size
    return np.where(negative, -float(mechanism.clusters.negative_weight), 1.0)


def supported(mechanism: Mechanism, reports: Reports, targets: Items) -> Vector:
    """Return the weight of each report; shape (n,). Cost: a pass per target."""
    if isinstance(mechanism, Signed):
        named = np.isin(reports["item"] % mechanism.domain_size, targets)
        return named * counted(mechanism, reports)
    held = np.zeros(len(reports))
    for target in targets.tolist():
        held += mechanism.supports(reports, target)
    return held


def _of_family(mechanism: LocalHashing, targets: Items) -> Reports:
    """
    Search the hash family for the best report; one transform computes the gain of every cell.

    Seed 0 raises all items equally. Rows follow the canonical seeds, with leading nonzero digit 1.
    """
    values = np.full(mechanism.domain_size, -len(targets) / mechanism.domain_size)
    values[targets] += 1.0
    family = mechanism.family
    gains = mechanism.channel(1.0).incidence.forward(values).reshape(family.rows, family.q)
    row, bucket = divmod(int(gains[1:].argmax()), family.q)
    digit = 0
    while row >= family.q**digit:
        row -= family.q**digit
        digit += 1
    seed, buckets = np.array([family.q**digit + row]), np.array([bucket])
    return reports_of(mechanism.report_dtype, seed=seed, bucket=buckets)


def poison(
    subject: AuditSubject,
    rng: Generator,
    *,
    first: Literal["answer", "random", "crafted"],
    sentence: str,
    row_title: str = "",
    submissions: int = 0,
    refused: bool = False,
    negative: bool = False,
) -> Rows:
    """
    Simulate one kind of poisoning by fake users; no findings if reports support no items.

    Args:
        subject: The audited task.
        rng: Draws users and reports.
        first: A fake user's first report: an honest answer for a target, or a uniform report.
        sentence: In it, `{answers}` becomes the number of honest answers that raise the targets as
            much as one fake user.
        row_title: In it, `{number}` becomes the number of reports per fake user.
        submissions: Submissions full of crafted reports; 0: one `first` report and honest dummies.
        refused: Whether the attack is harmless or refused; otherwise it is a known limit.
        negative: Crafted reports are negative ones of a target; no findings if there are none.

    If weakened, the analyzer counts the reports of fake users twice or, if they are crafted, the
    formula understates their weight or the shuffler accepts any number of them.
    """
    if subject.task.kind == "open":
        yield from _inject(subject, rng)
        return
    task, mechanism, checks = subject.task, subject.mechanism, Checks()
    if not isinstance(mechanism, SupportCounting) or (
        negative and not isinstance(mechanism, Signed)
    ):
        return
    users, n_fakes, targets = _users(subject, rng)
    n_honest, n_users = int(users.sum()), int(users.sum()) + n_fakes
    honest = collect(task, mechanism, users, rng, one_by_one=few_enough_reports(task, n_honest))
    lever = leverage(task, mechanism, targets, rng, negative=negative)
    kept_share = task.shuffler.keep_probability
    number = submissions * task.lengths[-1] or 1
    cells, n_reports, n_drawn = np.zeros_like(honest.cells), 0, 0
    drawn, weight, total, off = list[tuple[Reports, float]](), 0.0, 0.0, 0.0
    understated = subject.weakened and submissions <= 1
    own = {
        "answer": lever.own_floor + lever.signal,
        "random": lever.uniform,
        "crafted": (_UNDERSTATED_SHARE if understated else 1.0) * lever.weight,
    }[first]
    if first == "crafted":
        n_reports = int(rng.binomial(number * n_fakes, kept_share))
        cells, weight = n_reports * mechanism.tally(lever.crafted), n_reports * own
        total = n_reports * float(counted(mechanism, lever.crafted)[0])
    elif first == "random":
        drawn.append((uniform(mechanism, n_fakes, rng), own))
    else:
        drawn.append((mechanism.randomize(rng.choice(targets, size=n_fakes), rng), own))
    if not submissions:
        _, dummies = task.dummies.draw(mechanism, n_fakes, rng)
        drawn.append((dummies[~is_null(dummies)], lever.dummy_floor))
    for reports, each in drawn:
        kept = reports[task.shuffler.draw_kept(len(reports), rng)]
        added, as_many = (
            float(figures.sum())
            for figures in (supported(mechanism, kept, targets), counted(mechanism, kept))
        )
        off, n_drawn = off + added - as_many * each, n_drawn + len(kept)
        cells, weight, total = cells + mechanism.tally(kept), weight + added, total + as_many
    n_reports += n_drawn
    if n_drawn:
        p_weight = 2 * math.exp(-2 * off**2 / (n_drawn * lever.spread**2))  # [BLM13, Theorem 2.8]
        checks.test("weight of the drawn reports", min(1.0, p_weight))
    counted_twice = subject.weakened and first != "crafted"
    before, after = (
        float(mechanism.debias(counts, mixture_of(task, among, counted=reports))[targets].sum())
        for counts, among, reports in (
            (honest.cells, n_honest, honest.n_reports),
            (honest.cells + (1 + counted_twice) * cells, n_users, honest.n_reports + n_reports),
        )
    )
    # Both estimates count the same honest reports, so their noise cancels.
    own_counted, scale = kept_share * n_fakes, kept_share * lever.signal
    floors = own_counted * lever.own_floor + (total - own_counted) * lever.dummy_floor
    rise = scale * (n_users * after - n_honest * before)
    size = scale * (n_users * abs(after) + n_honest * abs(before)) + abs(floors) + abs(weight) + 1
    checks.require(
        "the estimate rises by the weight of the fake reports",
        abs(rise + floors - weight) <= _REL_TOL * size,
    )
    per_user = task.lengths[-1]
    if submissions > 1:
        _require_refusals(checks, subject, number)
    most = _answers(lever.answers(per_user * lever.extreme, per_user))
    sent = number * (total / n_reports if submissions else 1.0)
    answers = _answers(lever.answers(number * own, sent))
    # Of a user's reports, on average: what they count as in all, and their weight.
    mean = total / own_counted
    heavy = own * n_reports / own_counted if submissions else own + (mean - 1) * lever.dummy_floor
    yield checks.finding(
        title=row_title.format(number=number),
        heading="sender disruption",
        sentence=sentence.format(answers=answers),
        known_limit=not refused,
        coalition=f"{_FAKE_SHARE:.0%} of the users",
        theorem="[CJG21]",
        expected=n_fakes
        / n_users
        * (lever.answers(heavy, mean) - float(users[targets].sum() / n_honest)),
        measured=after - before,
        trials=n_users,
        notes=(f"targets: {len(targets)} rare items; a submission counts for at most {most}",),
    )


def _inject(subject: AuditSubject, rng: Generator) -> Rows:
    """Craft an open dictionary's reports on one value, whose weight no other report changes."""
    mechanism, checks = prefix_hashing_of(subject.task), Checks()
    [value] = encoder_for(subject.task, None)(usual_value(subject.task), rng)
    values = np.tile(value, (_MIN_USERS, 1))
    reports = mechanism.randomize(values, rng)
    reports["level"] = mechanism.levels - 1
    reports["bucket"] = mechanism.hashed(reports, values)
    *prefix, last = value[list(mechanism.columns[-1])].tolist()
    [counts] = next_counts(mechanism, mechanism.tally(reports), np.array([prefix]))
    [[measured], _] = estimates(mechanism, counts[[last]], len(reports))
    factor = _UNDERSTATED_SHARE if subject.weakened else 1.0
    gain = factor * (1 - mechanism.q) / (mechanism.p - mechanism.q)
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


def _require_refusals(checks: Checks, subject: AuditSubject, flood: int) -> None:
    """Check that the shuffler refuses too few reports, too many, and `flood` reports."""
    task = subject.task
    for wrong in (task.lengths[0] - 1, task.lengths[-1] + 1, flood):
        more = (wrong - task.lengths[0]) * task.sealed_report_bytes
        with checks.refused(f"the shuffler refuses a submission of {wrong} reports", WireError):
            if not subject.weakened:
                check_length(bytes(task.envelope_sizes[0] + more), task)


def _users(subject: AuditSubject, rng: Generator) -> tuple[Counts, int, Items]:
    """Return the honest users by item, by Zipf's law, the number of fakes, and the rarest items."""
    task, most = subject.task, _MAX_USERS
    if isinstance(subject.mechanism, StringHashing):
        pairs = task.domain_size * (1 + task.dummies.expected_per_user)
        most = max(1000, min(_MAX_USERS, int(_MAX_PAIRS / pairs)))
    n_users = max(_MIN_USERS, min(subject.n_users, most))
    n_fakes = max(1, round(_FAKE_SHARE * n_users))
    popularity = np.arange(1, task.domain_size + 1, dtype=np.float64) ** -_ZIPF
    users = rng.multinomial(n_users - n_fakes, popularity / popularity.sum())
    r = min(_MAX_TARGETS, task.domain_size // 2)
    return users, n_fakes, np.arange(task.domain_size - r, task.domain_size, dtype=np.int64)


def _answers(number: float) -> str:
    """Format a number of honest answers, rounded up to one decimal."""
    shown = math.ceil(10 * number - 1e-9) / 10
    return f"{shown:g} honest answer{'' if shown == 1 else 's'}"


_COUNTED_TWICE: Final = "The analyzer counts every report of a fake user twice."


def _scenario(
    name: str,
    title: str,
    weakness: str = "The formula understates the weight of a crafted report by a tenth.",
    kinds: tuple[Kind, ...] = ("categorical",),
    **options: Any,  # noqa: ANN401  # options of `poison`
) -> Scenario:
    check = partial(poison, **options)
    return Scenario(name=name, title=title, check=check, weakness=weakness, kinds=kinds)


SCENARIOS: Final = (
    _scenario(
        name="input-manipulation",
        title="Fake users who answer honestly for values they do not hold",
        first="answer",
        refused=True,
        sentence="Users who only lie about their value raise the items they name by no more "
        "than their share of all users, on average.",
        weakness=_COUNTED_TWICE,
    ),
    _scenario(
        name="random-reports",
        title="Fake users who send random reports",
        first="random",
        sentence="Users who send random reports distort the estimate as calculated; nothing "
        "distinguishes them from other users.",
        weakness=_COUNTED_TWICE,
    ),
    _scenario(
        name="maximal-gain",
        title="Fake users who craft their reports",
        first="crafted",
        sentence="A report crafted for chosen items counts as much as {answers} for all of "
        "them together; nothing distinguishes it from other reports.",
        kinds=("categorical", "open"),
    ),
    _scenario(
        name="dummy-abuse",
        title="Fake users who craft their dummies too",
        first="crafted",
        submissions=1,
        row_title="Fake users who craft all {number} reports of a submission",
        sentence="A user who crafts every report of a submission counts as much as {answers} "
        "for the chosen items; the number of reports in a submission bounds the attack.",
    ),
    _scenario(
        name="negative-reports",
        title="Fake users who send nothing but negative reports",
        first="crafted",
        submissions=1,
        negative=True,
        row_title="Fake users who send {number} negative reports of one item",
        sentence="A user who fills a submission with negative reports of one item counts as "
        "much as {answers} for it: each negative report takes the negative weight away.",
    ),
    _scenario(
        name="message-flood",
        title="Fake users who send many more reports than the task allows",
        first="crafted",
        submissions=_FLOOD_FACTOR,
        refused=True,
        row_title="Fake users who send {number} crafted reports, if their number were not checked",
        sentence="If the number of reports in a submission were not checked, the gain would "
        "grow in proportion; the shuffler refuses every wrong number.",
        weakness="The shuffler does not count the reports of a submission.",
    ),
)
