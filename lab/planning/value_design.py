"""Designs that are tasks; for texts, numbers and pairs, with the largest local ε. Pure."""

import dataclasses
import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Self

import numpy as np

from analyzer.finalize import mixture_of
from analyzer.task_builder import complete
from common.accounting.guarantees import PrivacyParameters
from common.errors import PlanError
from common.mechanisms.base import Vector
from common.mechanisms.covariance import ShareCovariance
from common.mechanisms.discovery.prefix_search import planned_share
from common.mechanisms.hashing.local_hashing import LocalHashing
from common.mechanisms.key_value.privkv import PrivKv
from common.mechanisms.rappor import bloom
from common.mechanisms.registry import (
    number_mechanism_of,
    prefix_hashing_of,
    rappor_of,
)
from common.protocols import ITEM_KINDS
from common.task.draft import TaskDraft, TextDraft
from common.task.specs import INSTANT_SUM, PERMANENT_SUM, NumberSpec, OpenSpec, RapporSpec, spec_as
from common.task.task import MAX_LOCAL_EPSILON, Task
from lab.planning.design import Design
from lab.planning.requirements import MIN_VALUE_EPSILON, UNUSED_KEY, Requirements

BIASED: Final = frozenset({"multi-rphm"})
"""Protocols with a bias, from a projection, that the predicted error does not include."""
_REL_TOL: Final = 1e-2
"""Relative tolerance of the search for the largest local ε."""
_SPREAD: Final = np.linspace(-1, 1, 5)
"""Values for which the error of means is predicted, evenly spaced over the scaled range."""
_OWNERS: Final = 0.5
"""Share of owners for which the error of shares is predicted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueDesign(Design):
    """A protocol with its parameters as a draft and its task, for any kind but `categorical`."""

    base: TaskDraft
    task: Task

    @classmethod
    def of(cls, draft: TaskDraft, target: Requirements, **facts: Any) -> Self:  # noqa: ANN401  # of a Design
        """Return the design of a draft's task; raise TaskError if the draft breaks a rule."""
        noiseless = math.isinf(draft.local_epsilon)  # its budget follows from the plan
        alone = dataclasses.replace(draft, population="") if noiseless else draft
        task = complete(alone, analyzer_key=UNUSED_KEY, nonce=bytes(32))
        return cls(
            protocol=draft.protocol,
            target=target,
            buckets=draft.buckets,
            local_epsilon=task.local_epsilon,
            dummies=task.dummies,
            shuffler=task.shuffler,
            base=draft,
            task=task,
            **facts,
        )

    @property
    def bytes_per_user(self) -> int:
        """Average length of a submission's envelope in bytes, rounded."""
        return round(self.task.expected_envelope_bytes)

    @property
    def parameters(self) -> PrivacyParameters:
        """The privacy parameters from which guarantees are computed."""
        return dataclasses.replace(PrivacyParameters.of(self.task), rounds=self.target.rounds)

    @property
    def draft(self) -> TaskDraft:
        """The draft of the task."""
        return self.base

    @property
    def mse(self) -> float:
        """The predicted mean squared error; see `predicted_mse`, or of a prefix of buckets."""
        if self.task.kind in ITEM_KINDS:
            return self.target.prefix_error(prefix_variances(self.task, self.target.n_users))
        return predicted_mse(self.task, self.target.n_users)

    @property
    def smallest_share(self) -> float:
        """The smallest share that is found with 95 % probability; 0 for other kinds."""
        if self.target.kind != "open":
            return 0.0
        return planned_share(spec_as(self.task.mechanism, OpenSpec), self.target.n_users)


@lru_cache(maxsize=16)
def prefix_variances(task: Task, n_users: int) -> Vector:
    """
    Return the predicted variance of the share of users up to each bucket of their group.

    Assumes evenly spread values, and for hashed reports independent errors of shares that sum to 1.
    Shape (domain_size,).
    """
    size, items = task.domain_size, np.arange(1.0, task.domain_size // task.groups + 1)
    sent = n_users * (task.own_reports + task.dummies.expected_per_user)
    mixture = mixture_of(task, n_users, counted=round(sent))
    covariance = ShareCovariance.of(task, np.full(size, 1 / size), mixture)
    if isinstance(covariance.mechanism, LocalHashing):  # exact variances take seconds per design
        each = covariance.mechanism.variance(covariance.shares, mixture).mean()
        return np.tile(each * items * (1 - items / size), task.groups)
    return covariance.of_prefixes()


def value_design(protocol: str, target: Requirements) -> ValueDesign:
    """
    Return a protocol's design with the largest local ε that meets the target.

    Raises PlanError if there is none, TaskError if the requirements break a rule of the protocol's
    tasks. Cost: about ten tasks, tenths of a second each.
    """
    high = min(target.local_cap, MAX_LOCAL_EPSILON)
    best = _design_at(protocol, high, target)
    if best is not None:
        return best
    low = max(MIN_VALUE_EPSILON, min(high, target.central_epsilon))  # central ε ≤ local ε
    best = _design_at(protocol, low, target)
    if best is None:
        raise PlanError(
            f"no local epsilon meets a central epsilon of {target.central_epsilon:g} at delta "
            f"{target.delta:g} with {target.n_min} users: use more users, a larger epsilon or a "
            "larger delta"
        )
    while high > low * (1 + _REL_TOL):
        middle = math.sqrt(low * high)
        better = _design_at(protocol, middle, target)
        best, low, high = (best, low, middle) if better is None else (better, middle, high)
    return best


def _design_at(protocol: str, local_epsilon: float, target: Requirements) -> ValueDesign | None:
    """Return the design with this local ε, or None if its task does not meet the target."""
    draft = target.draft(protocol, local_epsilon=local_epsilon)
    if target.kind == "string":
        texts = _with_noise(draft.texts, 0 if draft.labels else 32, local_epsilon)
        if texts is None:
            return None
        draft = dataclasses.replace(draft, texts=texts, local_epsilon=0.0)
    floor = target.kind == "string" and not draft.labels
    design = ValueDesign.of(draft, target, biased=protocol in BIASED, floor=floor)
    if design.task.central_epsilon > target.central_epsilon:
        return None
    return design if design.local_epsilon <= target.local_cap else None


def _with_noise(texts: TextDraft | None, bits: int, local_epsilon: float) -> TextDraft | None:
    """
    Return RAPPOR's parameters for a local ε, with q = 1 - p; None if p would be 1/2.

    p solves (1-f)(q-p) = tanh(ε/4h), the signal at this ε; p is 0 if the permanent noise f alone
    leaves less. A given f must be in [0, 1), else PlanError; the default f is lowered if necessary.
    """
    rappor = texts or TextDraft(bits=bits)
    signal = math.tanh(local_epsilon / (4 * rappor.hashes))
    if texts is None:
        most = math.floor((1 - signal) * PERMANENT_SUM) / PERMANENT_SUM
        rappor = dataclasses.replace(rappor, permanent=min(rappor.permanent, most))
    if not 0 <= rappor.permanent < 1:
        raise PlanError(f"permanent is {rappor.permanent}; it must be at least 0 and below 1")
    spread = min(1.0, signal / (1 - rappor.permanent))
    unset = math.floor((1 - spread) / 2 * INSTANT_SUM + 1) / INSTANT_SUM if spread < 1 else 0.0
    if unset >= 1 / 2:
        return None
    return dataclasses.replace(rappor, unset=unset, set=1 - unset)


def predicted_mse(task: Task, n_users: int) -> float:
    """
    Return the predicted mean squared error of a task's estimate.

    For numbers, it is the error of a mean of values spread evenly over the range; for pairs, of the
    share of a key that half of the users own; for texts, of a rare text's share, without the errors
    that further candidates and frequent other texts add; for open dictionaries, of a rare value's.
    """
    if task.kind == "open":
        mechanism = prefix_hashing_of(task)
        per_report = mechanism.q * (1 - mechanism.q) / (mechanism.p - mechanism.q) ** 2
        return per_report * mechanism.levels / n_users
    if task.kind == "string":
        return _text_mse(task, n_users)
    if task.kind == "key-value":
        owners = np.full(task.domain_size, _OWNERS)
        expected = PrivKv.of(task).expected(owners, np.zeros(task.domain_size), n_users)
        return float((expected.frequency_errors**2).mean())
    numbers = spec_as(task.mechanism, NumberSpec)
    half = (numbers.high - numbers.low) / 2
    people = np.repeat(_SPREAD[:, np.newaxis], task.domain_size, axis=1)
    per_user = number_mechanism_of(task).variance(people) * len(people)
    return float(half**2 * per_user.mean() / n_users)


def _text_mse(task: Task, n_users: int) -> float:
    """
    Return the variance of the estimated share of a rare text that is the only candidate.

    For labels it is the noise of the label's bit, p*(1-p*) / (n·(q*-p*)²) [EPK14]. Bit i of a Bloom
    filter is also set by a share b_i of users with other texts, which is noise; hash collisions in
    the m cohorts add a variance of b_i(1-b_i)(1-1/m).
    """
    spec, rappor = spec_as(task.mechanism, RapporSpec), rappor_of(task)
    signal = rappor.set_probability - rappor.unset_probability
    var_unset, var_set = (
        chance * (1 - chance) / signal**2
        for chance in (rappor.unset_probability, rappor.set_probability)
    )
    if spec.encoding == "labels":
        return var_unset / n_users
    others = 1 - (1 - bloom.hash_distribution(spec.bits)) ** spec.hashes
    leverage = others * (1 - others)
    noise = var_unset + others * (var_set - var_unset)
    collisions = leverage * (1 - 1 / spec.cohorts)
    return float((leverage * (noise + collisions)).sum() / (n_users * leverage.sum() ** 2))
