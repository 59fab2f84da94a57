"""One way to run a task: a protocol with its parameters, its error and its crowd."""

import math
from dataclasses import dataclass

import numpy as np

from common.accounting.guarantees import Terms
from common.mechanisms.base import Mixture, Vector
from common.mechanisms.hashing.local_hashing import REPORT_DTYPE as HASHED_REPORT
from common.mechanisms.reduction import MatchCountReduction
from common.mechanisms.support import Support, expected_mse, variance
from common.mechanisms.weights import ResponseWeights
from common.messages.submission import PLAIN_REPORT
from common.task.dummy_spec import DummySpec
from common.task.shuffler_spec import PERMUTES, ShufflerSpec
from common.task.task import envelope_bytes
from deploy.planning.requirements import Wishes


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """A protocol with its parameters, for reports that are items or hashes of items."""

    protocol: str
    answers: int
    """l: buckets of local hashing, the domain size for plain items."""
    hashed: bool
    """Whether reports answer for a hashed value."""
    local_epsilon: float
    """Infinite for reports without local noise."""
    dummies_per_user: float = 0.0
    """Expected, by the law with the least spread."""
    shuffler: ShufflerSpec = PERMUTES

    @property
    def dummy_spec(self) -> DummySpec:
        """The law of the users' dummies."""
        return DummySpec.averaging(self.dummies_per_user)

    @property
    def reduction(self) -> MatchCountReduction:
        """What accounting needs: that of a task's integer weights, where there is noise."""
        if math.isinf(self.local_epsilon):
            return MatchCountReduction.for_epsilon(
                answers=self.answers, local_epsilon=math.inf, hashed=self.hashed
            )
        return MatchCountReduction.for_weights(
            answers=self.answers,
            weights=ResponseWeights.for_epsilon(self.local_epsilon),
            hashed=self.hashed,
        )

    @property
    def support(self) -> Support:
        """p, q and q_dummy of a report."""
        law = self.reduction
        uniform = 1 / self.answers
        # γ/l + signal, each in the form that keeps its digits.
        other = law.blanket / self.answers
        return Support(p=law.signal + other, q=uniform if self.hashed else other, q_dummy=uniform)

    @property
    def messages_per_user(self) -> float:
        """Expected reports of one user, the own one included."""
        return 1 + self.dummies_per_user

    @property
    def reports_per_user(self) -> int:
        """Sealed reports in every submission, padding included."""
        return 1 + self.dummy_spec.maximum

    @property
    def bytes_per_user(self) -> int:
        """Length of a submission's envelope."""
        dtype = HASHED_REPORT if self.hashed else PLAIN_REPORT
        return envelope_bytes(dtype.itemsize, self.reports_per_user)

    def terms(self, wishes: Wishes) -> Terms:
        """Give what the guarantees of a task of this design would follow from."""
        return Terms(
            reduction=self.reduction,
            local_epsilon=self.local_epsilon,
            dummies=self.dummy_spec,
            shuffler=self.shuffler,
            delta=wishes.delta,
            assumed_honest_fraction=wishes.honest_fraction,
            rounds=wishes.rounds,
        )

    def mse(self, n_users: int, domain_size: int) -> float:
        """Predict the mean squared error of a share, averaged over the values."""
        return expected_mse(domain_size, self.mixture(n_users), self.support)

    def variances(self, shares: tuple[float, ...], n_users: int) -> Vector:
        """Predict the squared error of values that have these shares."""
        return variance(np.array(shares), self.mixture(n_users), self.support)

    def mixture(self, n_users: int) -> Mixture:
        """Say what would be counted of so many users."""
        mean, spread = self.shuffler.moments()
        return Mixture(
            n_real=n_users,
            n_dummies=n_users * self.dummies_per_user,
            kept=self.shuffler.kept,
            item_mean=mean,
            item_variance=spread,
        )
