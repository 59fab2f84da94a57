"""
Generalized randomized response (GRR, k-RR) over a small domain [KBR16].

Over two items it is Warner's randomized response for a bit [War65].
"""

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from shuffledp.common.mechanisms import base
from shuffledp.common.mechanisms.base import Counts, Reports
from shuffledp.common.mechanisms.reduction import MatchCountReduction
from shuffledp.common.mechanisms.support import AnswerCounting, PlaceReports
from shuffledp.common.mechanisms.weights import ResponseWeights
from shuffledp.common.messages.submission import plain_reports
from shuffledp.common.task.specs import MechanismSpec
from shuffledp.common.task.task import Task


@dataclass(frozen=True)
class Grr(PlaceReports, AnswerCounting):
    """Report the user's item with weight `true`, and each other item with weight `other`."""

    PLACE: ClassVar[str] = "an item"

    domain_size: int
    weights: ResponseWeights

    @classmethod
    def specify(cls, request: base.MechanismRequest) -> MechanismSpec:
        weights = ResponseWeights.for_epsilon(request.local_epsilon)
        return request.spec(weights, buckets=request.domain_size, dtype=cls.report_dtype)

    @classmethod
    def of(cls, task: Task) -> Self:
        """Build the mechanism of a task; the task ensures that buckets equals domain_size."""
        return cls(task.domain_size, ResponseWeights.of(task.item_mechanism))

    @property
    def answers(self) -> int:
        return self.domain_size

    places = answers

    @property
    def q(self) -> float:
        """Probability other / W; not (1-p) / (domain_size-1), exactly 0 when p rounds to 1."""
        return self.weights.other / self._total

    support_sizes = (1, 1)

    @property
    def reduction(self) -> MatchCountReduction:
        """Match count with collision 0, since no report supports two items."""
        return MatchCountReduction.for_weights(
            answers=self.domain_size, weights=self.weights, hashed=False
        )

    def randomize(self, values: NDArray[np.int64], rng: np.random.Generator) -> Reports:
        values = base.check_values(values, self.domain_size)
        return plain_reports(self.weights.respond(values, self.domain_size, rng))

    def dummies(self, count: int, rng: np.random.Generator) -> Reports:
        return plain_reports(rng.integers(0, self.domain_size, size=count, dtype=np.int64))

    def supports(self, reports: Reports, item: int) -> NDArray[np.bool_]:
        return np.asarray(reports["item"] == item)

    def sample_cells(self, users: Counts, n_dummies: int, rng: np.random.Generator) -> Counts:
        """Draw truthful reports, of probability `signal`, by item, and all uniform ones at once."""
        truthful = rng.binomial(users, self.reduction.signal)
        n_uniform = int(users.sum() - truthful.sum()) + n_dummies
        uniform = rng.multinomial(n_uniform, np.full(self.domain_size, 1 / self.domain_size))
        return np.asarray(truthful + uniform, dtype=np.int64)

    def channel(self, real_share: float) -> base.Channel:
        return base.Channel(
            incidence=base.Incidence(lambda theta: theta, lambda weights: weights),
            scale=np.ones(self.domain_size),
            signal=real_share * self.reduction.signal,
            floor=real_share * self.q + (1 - real_share) * self.q_dummy,
        )

    def linear(self, real_share: float) -> base.Linear:
        """Return the counts of items, without the clusters of `signed`."""
        return self.summed_cells(Grr.channel(self, real_share), exact_prefixes=True)
