"""Reference distributions of users' dummies, and tests of their draws: a class a distribution."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from scipy import stats

from audit.families.family import Items, NotCoveredError
from audit.finding import Checks
from audit.scenario import AuditSubject
from audit.statistics import p_cells
from common.mechanisms.base import Reports, Vector, is_null

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


class LevelReference(ItemReference):
    """Uniform nodes of each level of a hierarchy."""

    @property
    def extra(self) -> Vector:
        """The sum of one fraction for each level."""
        fractions, total = np.array(self.spec.levels) % 2**32 / 2**32, np.ones(1)
        for chance in fractions[fractions > 0]:
            total = np.convolve(total, [1 - chance, chance])
        return total

    def check_repeats(self, checks: Checks, drawn: list[Reports]) -> None:
        """Let nodes repeat."""


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
    "levels": LevelReference,
    "clusters": ClusterReference,
}


def dummies_of(subject: AuditSubject) -> UniformReference:
    """Return the reference for the dummies of a task, or raise NotCoveredError."""
    name = subject.task.dummies.distribution
    if name not in _BY_DISTRIBUTION:
        raise NotCoveredError(f"{subject.task.mechanism.name} with {name} dummies")
    return _BY_DISTRIBUTION[name](subject)
