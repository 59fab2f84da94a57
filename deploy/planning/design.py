"""One way to run a task about items: a protocol with its parameters and its error. Pure."""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from common.accounting.epsilon_search import gaussian_mu
from common.accounting.guarantees import PrivacyParameters
from common.errors import PlanError
from common.mechanisms.base import Mixture, Vector
from common.mechanisms.hashing.hashed_response import REPORT_DTYPE as HASHED_REPORT
from common.mechanisms.reduction import MatchCountReduction
from common.mechanisms.support import Support, bernoulli_variance, expected_mse, variance
from common.mechanisms.weights import ResponseWeights
from common.messages.submission import PLAIN_REPORT
from common.protocols import PROTOCOLS
from common.task.draft import TaskDraft
from common.task.dummy_spec import EXTRA_WEIGHT_SUM, MAX_DUMMIES, PERMUTES, DummySpec, ShufflerSpec
from common.task.task import MAX_LOCAL_EPSILON, envelope_bytes
from deploy.planning.requirements import Requirements

USUAL_MESSAGES: Final = 5.0
"""Messages a user where a protocol lets them be chosen and there is no cap."""
NOT_AMPLIFIED: Final = frozenset(name for name, row in PROTOCOLS.items() if not row.amplified)
"""Protocols whose guarantee is the local ε."""
_CUT_PROBABILITY: Final = 1e-40
"""Chance, over a whole batch, that a draw of dummies exceeds the cut."""
_ROUNDING: Final = 1e-6
"""Messages may exceed a cap by this: weights are rounded up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """A protocol with its parameters, for reports that are items or hashes of items."""

    protocol: str
    wanted: Requirements
    buckets: int = 0
    """Buckets of local hashing; 0 for plain items."""
    local_epsilon: float = math.inf
    """Infinite for reports without local noise."""
    dummies_per_user: float = 0.0
    """Expected, by the distribution with the least spread."""
    dummies: DummySpec | None = None
    """Another distribution of the users' dummies; dummies_per_user is then 0."""
    shuffler: ShufflerSpec = PERMUTES
    note: str = ""
    """How the parameters were found, where a reader must know."""
    biased: bool = False
    """Whether a projection adds an error that is not predicted."""
    floor: bool = False
    """Whether decoding adds to the predicted error."""

    @property
    def answers(self) -> int:
        """l: buckets of local hashing, the domain size for plain items."""
        return self.buckets or self.wanted.domain_size

    @property
    def dummy_spec(self) -> DummySpec:
        """The distribution of the users' dummies."""
        return self.dummies or DummySpec.averaging(self.dummies_per_user)

    @property
    def reduction(self) -> MatchCountReduction:
        """The accountant's view of a report: of a task's integer weights, where there is noise."""
        return MatchCountReduction.for_weights(
            answers=self.answers,
            weights=ResponseWeights.for_epsilon(self.local_epsilon),
            hashed=self.buckets > 0,
        )

    @property
    def support(self) -> Support:
        """p, q and q_dummy of a report."""
        reduction, uniform = self.reduction, 1 / self.answers
        # γ/l + signal, each in the form that keeps its digits.
        other = reduction.blanket / self.answers
        return Support(
            p=reduction.signal + other, q=uniform if self.buckets else other, q_dummy=uniform
        )

    @property
    def messages_per_user(self) -> float:
        """Expected reports of one user, the own one included."""
        return 1 + self._expected_dummies

    @property
    def bytes_per_user(self) -> int:
        """Length of a submission's envelope, padding included."""
        dtype = HASHED_REPORT if self.buckets else PLAIN_REPORT
        return envelope_bytes(dtype.itemsize, 1 + self.dummy_spec.maximum)

    @property
    def terms(self) -> PrivacyParameters:
        """The parameters that the guarantees of a task of this design follow from."""
        return PrivacyParameters(
            reduction=self.reduction,
            local_epsilon=self.local_epsilon,
            dummies=self.dummy_spec,
            shuffler=self.shuffler,
            delta=self.wanted.delta,
            assumed_honest_fraction=self.wanted.honest_fraction,
            rounds=self.wanted.rounds,
        )

    @property
    def draft(self) -> TaskDraft:
        """The draft of a task with these parameters; its key and deadline are unused ones."""
        return self.wanted.draft(
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
        return expected_mse(self.wanted.domain_size, self._mixture, self.support)

    @property
    def ratio_to_central_gaussian(self) -> float:
        """
        The error over that of Gaussian noise on the true counts, in one round.

        That is σ²/n² with σ² = 2/μ²: counts have sensitivity √2, and T rounds have μ√T.
        """
        wanted = self.wanted
        mu = gaussian_mu(wanted.central_epsilon, wanted.delta)
        return self.mse / (2 * wanted.rounds / (mu * wanted.n_users) ** 2)

    def head_errors(self) -> list[float]:
        """Predict the squared error for each of the most frequent values (`head`)."""
        errors: list[float] = variance(
            np.array(self.wanted.head), self._mixture, self.support
        ).tolist()
        return errors

    @property
    def _expected_dummies(self) -> float:
        return self.dummies.expected_per_user if self.dummies else self.dummies_per_user

    @property
    def _mixture(self) -> Mixture:
        mean, spread = self.shuffler.moments()
        return Mixture(
            n_real=self.wanted.n_users,
            n_dummies=self.wanted.n_users * self._expected_dummies,
            keep_probability=self.shuffler.kept,
            item_mean=mean,
            item_variance=spread,
        )


def local_design(protocol: str, wanted: Requirements) -> Design:
    """Return a design without amplification: its local ε is the target, up to the caps."""
    target = min(wanted.central_epsilon, wanted.local_cap)
    epsilon = min(target, MAX_LOCAL_EPSILON)
    note = "more than this local epsilon is not offered" if epsilon < target else ""
    return Design(protocol=protocol, wanted=wanted, local_epsilon=epsilon, note=note)


def within_caps(design: Design) -> Design:
    """Return the design, or raise PlanError if it breaks the cap on the local ε or on messages."""
    protocol, messages, wanted = design.protocol, design.messages_per_user, design.wanted
    if math.isinf(design.local_epsilon) and not wanted.may_be_plain:
        raise PlanError(
            f"{protocol} reports without local noise; the local cap is {wanted.noise_cap:g}"
        )
    if messages > wanted.messages_cap + _ROUNDING:
        raise PlanError(
            f"{protocol} would take {messages:.4g} messages a user; the messages cap is "
            f"{wanted.messages_cap:g}"
        )
    return design


def check_bit(wanted: Requirements) -> None:
    """Raise PlanError if there are more than the two values that ddps collects."""
    if wanted.domain_size != 2:  # noqa: PLR2004  # a bit
        raise PlanError(f"ddps collects a bit; the domain size is {wanted.domain_size}")


def each_item_dummies(extra_weight: int, wanted: Requirements) -> DummySpec:
    """Return a dummy for each item with this chance, cut where no batch ever comes."""
    chance = extra_weight / EXTRA_WEIGHT_SUM
    mean = wanted.domain_size * chance
    log = math.log(wanted.n_users / _CUT_PROBABILITY)
    # P(X ≥ mean + t) ≤ exp(-t² / (2·(variance + t/3))): Bernstein's inequality, solved for t.
    excess = log / 3 + math.sqrt(log**2 / 9 + 2 * mean * (1 - chance) * log)
    most = min(math.ceil(mean + excess), wanted.domain_size)
    if most > MAX_DUMMIES:
        raise PlanError(f"aue would take {most} dummies a user; at most {MAX_DUMMIES} are carried")
    return DummySpec(
        law="each-item",
        per_user=0,
        trials=wanted.domain_size,
        extra_weight=extra_weight,
        most=most,
    )


def share_errors(
    wanted: Requirements, answers: Vector, blanket: Vector, dummies: Vector, *, hashed: bool
) -> Vector:
    """Predict the squared error of a share for arrays of designs; infinite without a signal."""
    uniform, other = 1 / answers, blanket / answers
    with np.errstate(divide="ignore", invalid="ignore"):
        errors = bernoulli_variance(
            1 / wanted.domain_size,
            n_real=wanted.n_users,
            n_dummies=wanted.n_users * dummies,
            p=1 - blanket + other,
            q=uniform if hashed else other,
            q_dummy=uniform,
        )
    return np.where(np.isfinite(errors) & (blanket < 1), errors, math.inf)


def blanket_probability(answers: Vector, local_epsilon: float) -> Vector:
    """γ = l / (e^ε + l - 1)."""
    inverse = math.exp(-local_epsilon)
    blanket: Vector = answers * inverse / (1 + (answers - 1) * inverse)
    return blanket
