"""
Tests of sealed submissions, numbers of dummies, and the shuffler's draws.

Each distribution of users' dummies has a class, its reference.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from scipy import stats

from shuffledp.audit.families.family import Items, NotCoveredError
from shuffledp.audit.families.references import noise_chances
from shuffledp.audit.finding import Checks, Rows
from shuffledp.audit.harness.tasks import with_shufflers
from shuffledp.audit.scenario import AuditSubject
from shuffledp.audit.statistics import p_binomial, p_cells
from shuffledp.common.crypto import hpke
from shuffledp.common.mechanisms.base import Reports, Vector, is_null
from shuffledp.common.messages.submission import split_submission
from shuffledp.common.task_digest import DIGEST_BYTES, TaskDigest
from shuffledp.deploy.tasks.value_parser import value_of

_DIGEST: Final = TaskDigest(bytes(DIGEST_BYTES))
_ENDS: Final = 6
"""Number of positions tested at each end of a submission."""
_SMALL_BATCH: Final = 100
_BATCHES: Final = 4_000
_SLOW_DIVISOR: Final = 20
"""Divisor of the number of users if each is drawn separately."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SubmissionSizes:
    """
    The possible sizes of a submission, k in number.

    The columns are the reports that name an item of the domain (all but negative and null ones),
    the negative reports, and all reports, null ones included.
    """

    sizes: Items
    """Shape (k, 3)."""
    chances: Vector
    """Shape (k,)."""

    def outcomes(self, seen: Items) -> Items:
        """Return the index of each seen size, shape (n, 3), and -1 where it is impossible."""
        places = {tuple(size): place for place, size in enumerate(self.sizes.tolist())}
        return np.array([places.get(tuple(size), -1) for size in seen.tolist()], dtype=np.int64)


@dataclass(frozen=True)
class UniformReference:
    """Uniform reports, of which a user adds a certain and perhaps a random number."""

    subject: AuditSubject

    @property
    def spec(self) -> Any:  # noqa: ANN401  # one of a union
        """The tested distribution, of a form that this class is for."""
        return self.subject.task.dummies

    @property
    def extra(self) -> Vector:
        """Probabilities that a user adds 0, 1, … dummies beyond the certain ones."""
        kept = self.unconditioned(np.arange(self.spec.most + 1))
        return np.asarray(kept / kept.sum())

    def unconditioned(self, numbers: Items) -> Vector:
        """Return the probabilities of these numbers before a larger one is redrawn."""
        chance = self.spec.extra_weight / 2**32
        return np.asarray(stats.binom.pmf(numbers, self.spec.trials, chance))

    @property
    def submission_sizes(self) -> SubmissionSizes:
        """The distribution of the sizes of submissions."""
        task, chances = self.subject.task, self.extra
        numbers = task.own_reports + task.dummies.certain + np.arange(len(chances))
        total = np.take(task.lengths, np.searchsorted(task.lengths, numbers))
        columns = np.stack([numbers, np.zeros_like(numbers), total], axis=1)
        return SubmissionSizes(sizes=columns, chances=chances)

    def negative(self, reports: Reports) -> NDArray[np.bool_]:
        """Return which reports are negative; shape (n,)."""
        return np.zeros(len(reports), dtype=np.bool_)

    def sizes_of(self, reports: Reports, owners: Items, total: Items) -> Items:
        """Return the size of each user's submission, shape (users, 3); see SubmissionSizes."""
        null, negative = is_null(reports), self.negative(reports)
        positive = np.bincount(owners[~null & ~negative], minlength=len(total))
        return np.stack([positive, np.bincount(owners[negative], minlength=len(total)), total], 1)

    def check(self, checks: Checks, n_users: int, rng: Generator) -> None:
        """Test the numbers of dummies."""
        task = self.subject.task
        extra = self.subject.ports.draw_numbers(task, n_users, rng) - task.dummies.certain
        checks.cells("numbers of dummies", extra, self.extra)


class GeometricReference(UniformReference):
    """A sum of geometric numbers of uniform reports."""

    def unconditioned(self, numbers: Items) -> Vector:
        """Return the probabilities of a negative binomial distribution."""
        chance = self.spec.extra_weight / 2**32
        return np.asarray(stats.nbinom.pmf(numbers, self.spec.trials, 1 - chance))


class ItemReference(UniformReference):
    """Dummies of which each names an item with a small probability, once at most."""

    def check(self, checks: Checks, n_users: int, rng: Generator) -> None:
        """Test the numbers of dummies, and the items or nodes that they name."""
        task, mechanism = self.subject.task, self.subject.mechanism
        draws = (
            self.subject.ports.draw_dummies(task, mechanism, 1, rng)
            for _ in range(n_users // _SLOW_DIVISOR)
        )
        drawn = [dummies for _, dummies in draws]
        extra = np.array(list(map(len, drawn))) - task.dummies.certain
        checks.cells("numbers of dummies that name items", extra, self.extra)
        named = mechanism.tally(np.concatenate(drawn))
        checks.test(
            "items or nodes that dummies name", p_cells(named, self.subject.family.dummy_places)
        )
        self.check_repeats(checks, drawn)

    def check_repeats(self, checks: Checks, drawn: list[Reports]) -> None:
        """Check that no user names an item twice."""
        tally = self.subject.mechanism.tally
        once = all(tally(dummies).max() <= 1 for dummies in drawn if len(dummies))
        checks.require("no item repeats", once)


class ViewReference(ItemReference):
    """Uniform items of each view."""

    @property
    def extra(self) -> Vector:
        """The sum of one fraction for each view."""
        fractions, total = np.array(self.spec.averages) % 2**32 / 2**32, np.ones(1)
        for chance in fractions[fractions > 0]:
            total = np.convolve(total, [1 - chance, chance])
        return total

    def check_repeats(self, checks: Checks, drawn: list[Reports]) -> None:
        """Let items repeat."""


class ClusterReference(UniformReference):
    """Clusters of positive and negative reports in rooms of a few sizes."""

    def negative(self, reports: Reports) -> NDArray[np.bool_]:
        """Negative reports have numbers above those of all items."""
        named: NDArray[np.bool_] = reports["item"] >= self.subject.task.domain_size
        return named & ~is_null(reports)

    @property
    def submission_sizes(self) -> SubmissionSizes:
        """
        Convolve a user's own report with the trials: the smallest room that holds each cluster.

        Cost: grows with the trials.
        """
        spec = self.spec
        rooms = {size: (shown / 2**32, filled / 2**32) for size, shown, filled in spec.rooms}
        room_of = {(i, j): min(n for n in rooms if i + j <= n) for i, j, _ in spec.clusters}
        one = {(0, 0, size): shown * (1 - filled) for size, (shown, filled) in rooms.items()}
        one[0, 0, 0] = 1 - sum(shown for shown, _ in rooms.values())
        for i, j, weight in spec.clusters:
            size = room_of[i, j]
            shown, filled = rooms[size]
            total = sum(other for a, b, other in spec.clusters if room_of[a, b] == size)
            one[i, j, size] = shown * filled * weight / total
        found = {(1, 0, 1): 1.0}
        for _ in range(spec.trials):
            more: dict[tuple[int, int, int], float] = {}
            for (sum_i, sum_j, reports), chance in found.items():
                for (i, j, size), share in one.items():
                    key = (sum_i + i, sum_j + j, reports + size)
                    more[key] = more.get(key, 0.0) + chance * share
            found = more
        return SubmissionSizes(sizes=np.array(list(found)), chances=np.array(list(found.values())))

    def check(self, checks: Checks, n_users: int, rng: Generator) -> None:
        """Test the types, rooms and items of clusters."""
        task, possible, users = self.subject.task, self.submission_sizes, n_users // _SLOW_DIVISOR
        ports, mechanism = self.subject.ports, self.subject.mechanism
        numbers, drawn = ports.draw_dummies(task, mechanism, users, rng)
        owners = np.repeat(np.arange(users), numbers)
        added = self.sizes_of(drawn, owners, numbers)
        outcomes = possible.outcomes(added + np.array([1, 0, 1]))  # and the user's own report
        checks.require("only clusters of the task", bool((outcomes >= 0).all()))
        checks.cells("types and rooms of clusters", outcomes[outcomes >= 0], possible.chances)
        named = ~is_null(drawn)
        _, one_each = np.unique(owners[named], return_index=True)
        items = drawn["item"][named][one_each].astype(np.int64) % task.domain_size
        checks.cells("items of clusters", items, np.ones(task.domain_size))


_BY_DISTRIBUTION: Final[Mapping[str, type[UniformReference]]] = {
    **dict.fromkeys(("fixed", "fractional", "binomial"), UniformReference),
    "negative-binomial": GeometricReference,
    "each-item": ItemReference,
    "views": ViewReference,
    "clusters": ClusterReference,
}


def dummies_of(subject: AuditSubject) -> UniformReference:
    """Return the reference for the dummies of a task, or raise NotCoveredError."""
    name = subject.task.dummies.distribution
    if name not in _BY_DISTRIBUTION:
        raise NotCoveredError(f"{subject.task.mechanism.name} with {name} dummies")
    return _BY_DISTRIBUTION[name](subject)


def run_devices(subject: AuditSubject, rng: Generator) -> Rows:
    """Prepare sealed submissions to the audited task, open them, and test their contents."""
    checks = Checks()
    shufflers = [hpke.HpkePrivateKey.generate(subject.task.suite) for _ in subject.task.shufflers]
    analyzer = hpke.HpkePrivateKey.generate(subject.task.suite)
    task = with_shufflers(
        replace(subject.task, analyzer_key=analyzer.public_key().raw),
        *({"key": key.public_key().raw} for key in shufflers),
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
    context = hpke.envelope_context(_DIGEST)
    opened = (split_submission(shufflers[0].open(envelope, context)) for envelope in envelopes)
    ids, contents = zip(*opened, strict=True)
    checks.require("every submission has a unique id", len(set(ids)) == users)
    sealed = hpke.split_every(b"".join(contents), task.sent_report_bytes)
    checks.require("no ciphertext repeats", len(set(sealed)) == len(sealed))
    for place, key in enumerate(shufflers[1:], start=1):
        sealed = [key.open(layer, hpke.layer_context(_DIGEST, place)) for layer in sealed]
    plain = [analyzer.open(report, hpke.report_context(_DIGEST)) for report in sealed]
    reports: Reports = np.frombuffer(b"".join(plain), dtype=subject.mechanism.report_dtype)
    sizes = np.array(list(map(len, contents))) // task.sent_report_bytes
    _check_places(checks, subject, values, sizes, reports)
    _check_seeds(checks, subject, np.repeat(np.arange(users), sizes), reports)
    yield checks.finding(
        title="Only the reports in a submission depend on its value",
        coalition=subject.linking,
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
        sent = ~is_null(reports)
        seeds, together = reports["seed"][sent], np.diff(owners[sent]) == 0
        equal = (seeds[1:] == seeds[:-1])[together]
        p_value = p_binomial(int(equal.sum()), len(equal), 1 / subject.family.n_seeds)
        checks.test("the same seed twice in one submission", p_value)


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
    hops = [subject.task.hop(place) for place in range(len(subject.task.shufflers))]
    for view in (view for hop in hops for view in hop.by_view if spec.most_dummies):
        numbers = subject.ports.draw_item_dummies(view, number, rng)
        chances = noise_chances(view.noise)
        checks.cells(f"the shuffler's {view.noise.distribution} dummies", numbers, chances)
        pairs = numbers[: number // 2 * 2].reshape(-1, 2).sum(axis=1)
        checks.cells("its dummies of two items", pairs, np.convolve(chances, chances))
    yield checks.finding(
        heading="correctness",
        sentence="Devices add as many dummies, and the shuffler drops and adds as many reports, as "
        "the guarantees assume.",
        trials=number,
        advice="Do not collect with this version: its guarantees do not describe it.",
    )
