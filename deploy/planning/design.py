"""One way to run a task about items: a protocol with its parameters and its error. Pure."""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

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
    answers: int
    """l: buckets of local hashing, the domain size for plain items."""
    hashed: bool
    """Whether reports answer for a hashed value."""
    local_epsilon: float
    """Infinite for reports without local noise."""
    dummies_per_user: float = 0.0
    """Expected, by the distribution with the least spread."""
    dummies: DummySpec | None = None
    """Another distribution of the users' dummies; dummies_per_user is then 0."""
    shuffler: ShufflerSpec = PERMUTES
    note: str = ""
    """How the parameters were found, where a reader must know."""

    @property
    def buckets(self) -> int:
        """Buckets that values are hashed into; 0 for plain items, as in a draft."""
        return self.answers if self.hashed else 0

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
            hashed=self.hashed,
        )

    @property
    def support(self) -> Support:
        """p, q and q_dummy of a report."""
        reduction = self.reduction
        uniform = 1 / self.answers
        # γ/l + signal, each in the form that keeps its digits.
        other = reduction.blanket / self.answers
        return Support(
            p=reduction.signal + other, q=uniform if self.hashed else other, q_dummy=uniform
        )

    @property
    def expected_dummies(self) -> float:
        """Dummies that a user adds on average."""
        return self.dummies.expected_per_user if self.dummies else self.dummies_per_user

    @property
    def messages_per_user(self) -> float:
        """Expected reports of one user, the own one included."""
        return 1 + self.expected_dummies

    @property
    def bytes_per_user(self) -> int:
        """Length of a submission's envelope, padding included."""
        dtype = HASHED_REPORT if self.hashed else PLAIN_REPORT
        return envelope_bytes(dtype.itemsize, 1 + self.dummy_spec.maximum)

    def terms(self, wanted: Requirements) -> PrivacyParameters:
        """Return the parameters that the guarantees of a task of this design follow from."""
        return PrivacyParameters(
            reduction=self.reduction,
            local_epsilon=self.local_epsilon,
            dummies=self.dummy_spec,
            shuffler=self.shuffler,
            delta=wanted.delta,
            assumed_honest_fraction=wanted.honest_fraction,
            rounds=wanted.rounds,
        )

    def draft(self, wanted: Requirements, *, shuffler_key: bytes, deadline: int) -> TaskDraft:
        """Return the draft of a task with these parameters."""
        return wanted.draft(
            self.protocol,
            local_epsilon=self.local_epsilon,
            buckets=self.buckets,
            dummies_per_user=self.dummies_per_user,
            dummies=self.dummies,
            shuffler=self.shuffler,
            deadline=deadline,
            shuffler_key=shuffler_key,
        )

    def mse(self, wanted: Requirements) -> float:
        """Predict the mean squared error of a share, averaged over the values."""
        return expected_mse(wanted.domain_size, self._mixture(wanted), self.support)

    def head_errors(self, wanted: Requirements) -> list[float]:
        """Predict the squared error of each share of the head."""
        errors = variance(np.array(wanted.head), self._mixture(wanted), self.support)
        return [float(error) for error in errors]

    def _mixture(self, wanted: Requirements) -> Mixture:
        mean, spread = self.shuffler.moments()
        return Mixture(
            n_real=wanted.n_users,
            n_dummies=wanted.n_users * self.expected_dummies,
            kept=self.shuffler.kept,
            item_mean=mean,
            item_variance=spread,
        )


def make_design(
    protocol: str,
    wanted: Requirements,
    *,
    buckets: int = 0,
    local_epsilon: float = math.inf,
    dummies: DummySpec | None = None,
    shuffler: ShufflerSpec = PERMUTES,
    note: str = "",
) -> Design:
    """Return a design that hashes into buckets, or whose reports are plain items if there are 0."""
    return Design(
        protocol=protocol,
        answers=buckets or wanted.domain_size,
        hashed=buckets > 0,
        local_epsilon=local_epsilon,
        dummies=dummies,
        shuffler=shuffler,
        note=note,
    )


def local_design(protocol: str, wanted: Requirements) -> Design:
    """Return the design of a protocol without amplification: the target is the local ε, capped."""
    target = min(wanted.central_epsilon, wanted.local_cap)
    epsilon = min(target, MAX_LOCAL_EPSILON)
    note = "more than this local epsilon is not offered" if epsilon < target else ""
    return make_design(protocol, wanted, local_epsilon=epsilon, note=note)


def within_caps(design: Design, wanted: Requirements) -> Design:
    """
    Return the design if it keeps the caps.

    Raises:
        PlanError: It breaks the cap on the local ε or on messages.
    """
    if math.isinf(design.local_epsilon) and not wanted.may_be_plain:
        raise PlanError(
            f"{design.protocol} reports without local noise; the local cap is {wanted.noise_cap:g}"
        )
    if design.messages_per_user > wanted.messages_cap + _ROUNDING:
        raise PlanError(
            f"{design.protocol} would take {design.messages_per_user:.4g} messages a user; the "
            f"messages cap is {wanted.messages_cap:g}"
        )
    return design


def each_item_dummies(extra_weight: int, wanted: Requirements) -> DummySpec:
    """
    Return a dummy for each item with this chance, cut where no batch ever comes.

    Raises:
        PlanError: No envelope holds so many.
    """
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
    """
    Predict the mean squared error of a share for arrays of designs that fit each other.

    The variance is linear in the shares, which add to 1. Infinite where reports carry no signal.
    """
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
