"""A protocol for items with its parameters and its predicted error. Pure."""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from common.accounting.epsilon_search import gaussian_mu
from common.accounting.guarantees import PrivacyParameters
from common.errors import PlanError
from common.mechanisms.base import Mixture, Vector
from common.mechanisms.reduction import MatchCountReduction
from common.mechanisms.signed import influence_of
from common.mechanisms.support import Support, bernoulli_variance, variance
from common.mechanisms.weights import ResponseWeights
from common.task.cluster_dummies import ClusterDummies
from common.task.draft import TaskDraft
from common.task.dummies import EXTRA_WEIGHT_SUM, MAX_DUMMIES
from common.task.dummy_forms import AnyDummies
from common.task.named_dummies import ItemDummies, LevelDummies
from common.task.shuffler_spec import PERMUTE_ONLY, ShufflerSpec
from common.task.task import MAX_LOCAL_EPSILON, envelope_bytes
from common.task.uniform_dummies import averaging
from lab.planning.requirements import Requirements, item_report

USUAL_MESSAGES: Final = 5.0
"""Default cap on messages per user, for protocols that can trade messages for accuracy."""
_CUT_PROBABILITY: Final = 1e-40
"""Largest probability that any user in a batch needs more dummies than the maximum."""
_ROUNDING: Final = 1e-6
"""Messages per user by which a design may exceed the cap, because weights are rounded up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """A protocol with its parameters, for reports that are items or hashes of items."""

    protocol: str
    target: Requirements
    buckets: int = 0
    """Buckets of local hashing; 0 for plain items."""
    local_epsilon: float = math.inf
    """Infinite for reports without local noise."""
    dummies_per_user: float = 0.0
    """Mean number of dummies per user, drawn with the least variance possible for this mean."""
    dummies: AnyDummies | None = None
    """A given distribution of the users' dummies; dummies_per_user is then 0."""
    shuffler: ShufflerSpec = PERMUTE_ONLY
    note: str = ""
    """A remark on the parameters for the reader; may be empty."""
    biased: bool = False
    """Whether a projection adds a bias that `mse` does not include."""
    floor: bool = False
    """Whether `mse` is only a lower bound, because it omits errors that decoding adds."""

    @property
    def answers(self) -> int:
        """Number l of possible answers: the buckets of local hashing, or the domain size."""
        return self.buckets or self.target.domain_size

    @property
    def dummy_spec(self) -> AnyDummies:
        """The distribution of the users' dummies."""
        return self.dummies or averaging(self.dummies_per_user)

    @property
    def reduction(self) -> MatchCountReduction:
        """The randomizer as the accountant models it, with the task's integer weights."""
        return MatchCountReduction.for_weights(
            answers=self.answers,
            weights=ResponseWeights.for_epsilon(self.local_epsilon),
            hashed=self.buckets > 0,
        )

    @property
    def support(self) -> Support:
        """Probabilities p, q and q_dummy that a report supports an item."""
        reduction, uniform = self.reduction, 1 / self.answers
        # p = γ/l + signal; this form avoids cancellation.
        other = reduction.blanket / self.answers
        return Support(
            p=reduction.signal + other, q=uniform if self.buckets else other, q_dummy=uniform
        )

    @property
    def own_reports(self) -> int:
        """Reports of a user's own value: one, or one for each level of a hierarchy."""
        return len(self.dummy_spec.views)

    @property
    def messages_per_user(self) -> float:
        """Expected reports of one user, dummies and the null reports of clusters included."""
        added = self.dummies.expected_sent if self.dummies else self.dummies_per_user
        return self.own_reports + added

    @property
    def influence(self) -> tuple[float, float]:
        """
        Users by which one dishonest submission can raise an item's count, and lower another's.

        All of its reports support the item, or none do; of clusters, all are negative [CJG21]. A
        report of a hierarchy moves a sum of buckets by at most 1, since the estimate is a
        projection.
        """
        most, support = self.own_reports + self.dummy_spec.maximum, self.support
        if isinstance(self.dummy_spec, LevelDummies):
            return most, most
        if isinstance(self.dummy_spec, ClusterDummies):
            return influence_of(self.dummy_spec, support.p - support.q)
        up_to = 1 - support.q + (most - 1) * (1 - support.q_dummy)
        down_to = support.q + (most - 1) * support.q_dummy
        return up_to / (support.p - support.q), down_to / (support.p - support.q)

    @property
    def bytes_per_user(self) -> int:
        """Average length of a submission's envelope in bytes, padding included; rounded."""
        size, spec = item_report(hashed=self.buckets > 0), self.dummy_spec
        sizes = np.array([envelope_bytes(size, 1 + number) for number in spec.lengths])
        return round(float(spec.length_probabilities() @ sizes))

    @property
    def parameters(self) -> PrivacyParameters:
        """The privacy parameters from which guarantees are computed."""
        return PrivacyParameters(
            reduction=self.reduction,
            local_epsilon=self.local_epsilon,
            dummies=self.dummy_spec,
            shuffler=self.shuffler,
            delta=self.target.delta,
            assumed_honest_fraction=self.target.honest_fraction,
            rounds=self.target.rounds,
        )

    @property
    def draft(self) -> TaskDraft:
        """The task draft with these parameters, a placeholder key and a placeholder deadline."""
        return self.target.draft(
            self.protocol,
            local_epsilon=self.local_epsilon,
            buckets=self.buckets,
            dummies_per_user=self.dummies_per_user,
            dummies=self.dummies,
            shuffler=self.shuffler,
        )

    @property
    def mse(self) -> float:
        """The predicted mean squared error of a share, averaged over the values."""
        uniform = np.full(self.target.domain_size, 1 / self.target.domain_size)  # any of sum 1
        return float(variance(uniform, self._mixture, self.support).mean())

    @property
    def ratio_to_central_gaussian(self) -> float:
        """
        The mean squared error divided by the central Gaussian mechanism's in one of T rounds.

        The latter is σ²/n² with σ² = 2T/μ²: counts have sensitivity √2, and the rounds share μ.
        """
        target = self.target
        mu = gaussian_mu(target.central_epsilon, target.delta)
        return self.mse / (2 * target.rounds / (mu * target.n_users) ** 2)

    def head_errors(self) -> list[float]:
        """Return the predicted squared errors of the most frequent values, the target's `head`."""
        shares = np.array(self.target.head)
        return list(map(float, variance(shares, self._mixture, self.support)))

    @property
    def _mixture(self) -> Mixture:
        clusters, n_users = self.dummies, self.target.n_users
        if isinstance(clusters, ClusterDummies):
            variance = clusters.item_variance(n_users, self.target.domain_size)
            return Mixture(n_real=n_users, item_variance=variance)
        mean, spread = self.shuffler.noise.moments()
        added = self.dummies.expected_per_user if self.dummies else self.dummies_per_user
        return Mixture(
            n_real=n_users,
            n_dummies=n_users * added,
            keep_probability=self.shuffler.keep_probability,
            item_mean=mean,
            item_variance=spread,
        )


def local_design(protocol: str, target: Requirements) -> Design:
    """Return a design without amplification: its local ε is the target ε, limited by the caps."""
    allowed = min(target.central_epsilon, target.local_cap)
    epsilon = min(allowed, MAX_LOCAL_EPSILON)
    note = f"the local epsilon is at most {MAX_LOCAL_EPSILON:g}" if epsilon < allowed else ""
    return Design(protocol=protocol, target=target, local_epsilon=epsilon, note=note)


def within_caps(design: Design) -> Design:
    """Return the design; raise PlanError for too many messages or missing local noise."""
    protocol, messages, target = design.protocol, design.messages_per_user, design.target
    if math.isinf(design.local_epsilon) and not target.may_be_plain:
        raise PlanError(
            f"{protocol} reports without local noise, so it cannot meet the local cap of "
            f"{target.noise_cap:g}"
        )
    caps = (
        ("influence", "users moved by one submission", max(design.influence), target.influence_cap),
        ("bytes", "bytes per user", design.bytes_per_user, target.bytes_cap),
    )
    for name, unit, figure, cap in caps:
        if figure > cap:
            raise PlanError(f"{protocol} has {figure:.4g} {unit}; the {name} cap is {cap:g}")
    if messages > target.messages_cap + _ROUNDING:
        raise PlanError(
            f"{protocol} needs {messages:.4g} messages per user; the messages cap is "
            f"{target.messages_cap:g}"
        )
    return design


def check_bit(target: Requirements) -> None:
    """Raise PlanError unless there are two values, the only domain that ddps supports."""
    if target.domain_size != 2:  # noqa: PLR2004  # a bit
        raise PlanError(f"the domain size is {target.domain_size}; for ddps it must be 2")


def each_item_dummies(extra_weight: int, target: Requirements) -> ItemDummies:
    """
    Return the distribution that adds each item as a dummy with probability extra_weight / 2^32.

    Raises PlanError if a user may need more than MAX_DUMMIES dummies.
    """
    chance = extra_weight / EXTRA_WEIGHT_SUM
    mean = target.domain_size * chance
    log = math.log(target.n_users / _CUT_PROBABILITY)
    # P(X ≥ mean + t) ≤ exp(-t² / (2·(variance + t/3))): Bernstein's inequality, solved for t.
    excess = log / 3 + math.sqrt(log**2 / 9 + 2 * mean * (1 - chance) * log)
    most = min(math.ceil(mean + excess), target.domain_size)
    if most > MAX_DUMMIES:
        raise PlanError(f"aue needs up to {most} dummies per user; the limit is {MAX_DUMMIES}")
    return ItemDummies(trials=target.domain_size, extra_weight=extra_weight, most=most)


def share_errors(
    target: Requirements, answers: Vector, blanket: Vector, dummies: Vector, *, hashed: bool
) -> Vector:
    """Return a share's predicted squared error for arrays of designs; infinite without a signal."""
    uniform, other = 1 / answers, blanket / answers
    with np.errstate(divide="ignore", invalid="ignore"):
        errors = bernoulli_variance(
            1 / target.domain_size,
            n_real=target.n_users,
            n_dummies=target.n_users * dummies,
            p=1 - blanket + other,
            q=uniform if hashed else other,
            q_dummy=uniform,
        )
    return np.where(np.isfinite(errors) & (blanket < 1), errors, math.inf)


def blanket_probability(answers: Vector, local_epsilon: float) -> Vector:
    """Return the blanket probability γ = l / (e^ε + l - 1) of randomized response."""
    inverse = math.exp(-local_epsilon)
    blanket: Vector = answers * inverse / (1 + (answers - 1) * inverse)
    return blanket
