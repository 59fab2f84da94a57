"""Designs: drafts with the tasks that they make and their predicted errors. Pure."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Final, Self, TypeVar

import numpy as np

from shuffledp.analyzer.finalize import mixture_of
from shuffledp.analyzer.task_builder import with_claims, without_claim
from shuffledp.common.accounting.privacy_parameters import PrivacyParameters
from shuffledp.common.errors import PlanError
from shuffledp.common.limits import MAX_LOCAL_EPSILON
from shuffledp.common.mechanisms.base import Mechanism, Mixture, Vector
from shuffledp.common.mechanisms.covariance import ShareCovariance
from shuffledp.common.mechanisms.hashing.local_hashing import LocalHashing
from shuffledp.common.mechanisms.registry import mechanism_of, randomizer_of
from shuffledp.common.mechanisms.support import bernoulli_variance
from shuffledp.common.protocols import PROTOCOLS
from shuffledp.common.task.draft import TaskDraft
from shuffledp.common.task.dummies import EXTRA_WEIGHT_SUM, MAX_DUMMIES
from shuffledp.common.task.dummy_forms import AnyDummies
from shuffledp.common.task.named_dummies import ItemDummies
from shuffledp.common.task.task import Task
from shuffledp.lab.planning.central_gaussian import gaussian_mse
from shuffledp.lab.planning.requirements import UNUSED_KEY, Requirements

D = TypeVar("D", bound="Design")

USUAL_MESSAGES: Final = 5.0
"""Default cap on messages per user, for protocols that can trade messages for accuracy."""
_MOST_SEEDS: Final = 2**17
"""Largest hash family for exact covariances: all designs of a plan then take about a second."""
_CUT_PROBABILITY: Final = 1e-40
"""Largest probability that any user in a batch needs more dummies than the maximum."""
_ROUNDING: Final = 1e-6
"""Messages per user by which a design may exceed the cap, because weights are rounded up."""


@dataclass(frozen=True, kw_only=True)
class Design(ABC):
    """A draft, the task that it makes, and the predicted error."""

    messages_by: ClassVar[str] = ""
    """What takes the messages, and the way to fewer, as the end of a sentence."""
    draft: TaskDraft
    """With a placeholder key and a placeholder deadline."""
    target: Requirements
    note: str = ""
    """A remark on the parameters for the reader; may be empty."""
    biased: bool = False
    """Whether a projection adds a bias that `mse` does not include."""
    floor: bool = False
    """Whether `mse` is only a lower bound, because it omits errors that decoding adds."""

    @cached_property
    def unclaimed(self) -> Task:
        """The task before its claim; raises TaskError if the draft breaks a rule."""
        noiseless = math.isinf(self.draft.local_epsilon)  # its budget follows from the plan
        draft = replace(self.draft, population="") if noiseless else self.draft
        return without_claim(draft, analyzer_key=UNUSED_KEY, nonce=bytes(32))

    @cached_property
    def task(self) -> Task:
        """The task with its claims; raises TaskError if no finite ε can be claimed."""
        return with_claims(self.unclaimed)

    @property
    def protocol(self) -> str:
        """Name of the protocol."""
        return self.draft.protocol

    @property
    def local_epsilon(self) -> float:
        """Infinite for reports without local noise."""
        return self.draft.local_epsilon or self.unclaimed.local_epsilon

    @property
    def dummies(self) -> AnyDummies:
        """The distribution of the users' dummies."""
        return self.unclaimed.dummies

    @property
    def messages_per_user(self) -> float:
        """Expected reports of one user, dummies and the null reports of clusters included."""
        return self.unclaimed.own_reports + self.dummies.expected_sent

    @property
    def bytes_per_user(self) -> int:
        """Average length of a submission's envelope in bytes, padding included; rounded."""
        return round(self.unclaimed.expected_envelope_bytes)

    @cached_property
    def parameters(self) -> PrivacyParameters:
        """The privacy parameters from which guarantees are computed."""
        return replace(PrivacyParameters.of(self.unclaimed), rounds=self.target.rounds)

    @cached_property
    def mechanism(self) -> Mechanism:
        """The mechanism of a task that collects items."""
        return mechanism_of(self.unclaimed)

    @property
    def influence(self) -> tuple[float, float]:
        """Users by which one dishonest submission can raise a count, and lower another's."""
        most = self.unclaimed.own_reports + self.dummies.maximum
        return randomizer_of(self.unclaimed).influence(most)

    @property
    def within_influence_cap(self) -> bool:
        """Whether the cap, if there is one, allows the influence."""
        cap = self.target.influence_cap
        return math.isinf(cap) or max(self.influence) <= cap

    @property
    def figures(self) -> Mapping[str, float]:
        """Further figures, for programs; none for most kinds."""
        return {}

    @property
    def sentence(self) -> str:
        """The further figures in words; empty without any."""
        return ""

    @property
    @abstractmethod
    def mse(self) -> float:
        """The predicted mean squared error."""

    @property
    def ratio_to_central_gaussian(self) -> float:
        """The predicted mean squared error divided by `gaussian_mse`."""
        return self.mse / gaussian_mse(self.target)

    @property
    def smallest_share(self) -> float:
        """The smallest share that is found with 95 % probability; 0 for most kinds."""
        return 0.0


@dataclass(frozen=True, kw_only=True)
class ItemDesign(Design):
    """A design for items; its error is that of a share, averaged over the values."""

    @classmethod
    def of(
        cls,
        protocol: str,
        target: Requirements,
        *,
        local_epsilon: float = math.inf,
        note: str = "",
        **fields: Any,  # noqa: ANN401  # of a draft
    ) -> Self:
        """Return the design whose draft has these fields, by default without local noise."""
        draft = target.draft(protocol, local_epsilon=local_epsilon, **fields)
        return cls(draft=draft, target=target, note=note)

    @property
    def answers(self) -> int:
        """Number l of possible answers: the buckets of local hashing, or the domain size."""
        return self.draft.buckets or self.target.domain_size

    @cached_property
    def mse(self) -> float:
        """The predicted mean squared error of a share, averaged over the values."""
        return float(self._variances([]).mean())  # about the same for any shares

    def head_errors(self) -> list[float]:
        """Return the predicted squared errors of the most frequent values, the target's `head`."""
        return list(map(float, self._variances(self.target.head)[: len(self.target.head)]))

    def _variances(self, head: Sequence[float]) -> Vector:
        """Return each share's variance if the first ones are `head`, and the others alike."""
        size = self.target.domain_size
        shares = np.full(size, (1 - math.fsum(head)) / max(1, size - len(head)))
        shares[: len(head)] = head
        task, n_users = self.unclaimed, self.target.n_users
        return share_variances(share_covariance(self.mechanism, task, n_users, shares))


def share_covariance(
    mechanism: Mechanism, task: Task, n_users: int, shares: Vector
) -> ShareCovariance:
    """Return the covariances of the shares that n_users are expected to have."""
    sent = n_users * (task.own_reports + task.dummies.expected_per_user)
    mixture = mixture_of(task, n_users, counted=round(sent))
    return ShareCovariance.of_mechanism(mechanism, shares, mixture, groups=task.groups)


def share_variances(covariance: ShareCovariance) -> Vector:
    """Return the variance of each share; of large hash families to a percent, evenly corrected."""
    mechanism, shares = covariance.mechanism, covariance.shares
    if isinstance(mechanism, LocalHashing) and mechanism.family.seeds > _MOST_SEEDS:
        variances = mechanism.variance(shares, covariance.mixture)
        return variances - _variance_of_total(mechanism, covariance.mixture) / len(shares) ** 2
    return covariance.of_shares()


def _variance_of_total(mechanism: LocalHashing, mixture: Mixture) -> float:
    """
    Approximate the variance of the sum of all debiased shares of hashed reports, evenly held.

    Only seeds that see no digit but the leading one support whole slices of items: of the others,
    items are taken as independent.
    """
    family, p, size = mechanism.family, mechanism.p, mechanism.domain_size
    q, slices, leading = 1 / family.q, family.slices, family.q ** (1.0 - family.t)
    # Probabilities that such a report supports one, or two, given items other than its user's.
    of_slice = (1 - q) * (p + (1 - p) * (slices - 1) / (family.q - 1)) / slices
    one, two = p * q + of_slice, p * q + of_slice / slices
    rest = (q - leading * one) / (1 - leading)
    covariance = leading * two + (1 - leading) * rest**2 - q**2
    others = (size - 1) * (q * (1 - q) + (size - 2) * covariance)
    counted = mixture.n_real * (p * (1 - p) + others) + mixture.n_dummies * size * q * (1 - q)
    return float(counted / (mixture.n_real * (p - q)) ** 2)


def local_design(protocol: str, target: Requirements) -> ItemDesign:
    """Return a design without amplification: its local ε is the target ε, limited by the caps."""
    allowed = min(target.central_epsilon, target.local_cap)
    epsilon = min(allowed, MAX_LOCAL_EPSILON)
    note = f"the local epsilon is at most {MAX_LOCAL_EPSILON:g}" if epsilon < allowed else ""
    return ItemDesign.of(protocol, target, local_epsilon=epsilon, note=note)


def within_caps(design: D) -> D:
    """Return the design; raise PlanError for too many messages or missing local noise."""
    protocol, messages, target = design.protocol, design.messages_per_user, design.target
    if math.isinf(design.local_epsilon) and not target.may_be_plain:
        raise PlanError(
            f"{protocol} reports without local noise, so it cannot meet the local cap of "
            f"{target.noise_cap:g}"
        )
    if not design.within_influence_cap:
        raise PlanError(
            f"{protocol} has {max(design.influence):.4g} users moved by one submission; the "
            f"influence cap is {target.influence_cap:g}"
        )
    if (size := design.bytes_per_user) > target.bytes_cap:
        raise PlanError(
            f"{protocol} has {size:,} bytes per user; the bytes cap is {target.bytes_cap:g}"
        )
    if messages > target.messages_cap + _ROUNDING:
        raise PlanError(
            f"{protocol} needs {messages:.4g} messages per user; the messages cap is "
            f"{target.messages_cap:g}{design.messages_by}"
        )
    return design


def check_plain(protocol: str, target: Requirements) -> None:
    """Raise PlanError, with every option in the way, for a protocol without local noise."""
    by_users, needed = PROTOCOLS[protocol].shuffler_distribution == "none", list[str]()
    trust = "anonymity" if by_users or target.shufflers > 1 else "shuffler-dummies"
    if math.isfinite(target.local_cap):
        needed.append(f"--local-cap none instead of {target.local_cap:g}")
    if target.trust not in {trust, "shuffler-dummies"}:
        needed.append(f"--trust {trust} instead of {target.trust}")
    if needed:
        raise PlanError(f"{protocol} has no local noise, so it needs {' and '.join(needed)}")
    if by_users and target.shufflers > 1:
        raise PlanError(f"{protocol} has users' dummies; two shufflers add their own")


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
