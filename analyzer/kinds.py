"""
The analyzer's part of each kind of value: a task's mechanism, and the estimate of a batch. Pure.

`VALUE_KINDS` has a row for each kind.
"""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping
from fractions import Fraction
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from analyzer.estimation.histogram import estimate
from analyzer.estimation.projection import shrink_to_zero
from common.errors import TaskError
from common.mechanisms.base import Counts, Mechanism, MechanismRequest, Mixture, Reports, Tally
from common.mechanisms.discovery.prefix_hashing import PrefixHashing
from common.mechanisms.discovery.prefix_search import find_codes
from common.mechanisms.discovery.spelling import spell
from common.mechanisms.hashing.local_hashing import optimal_buckets
from common.mechanisms.key_value.privkv import PrivKv
from common.mechanisms.numeric.number import NumberMechanism
from common.mechanisms.rappor.rappor import Rappor
from common.mechanisms.registry import ITEM_MECHANISMS, NUMBER_MECHANISMS
from common.messages.result import (
    BitTable,
    Estimate,
    FoundValues,
    Histogram,
    KeyValues,
    Means,
    Owners,
)
from common.protocols import Kind, Protocol
from common.task.domain_spec import group_count
from common.task.draft import NumberDraft, OpenDraft, PairDraft, TaskDraft, TextDraft
from common.task.specs import (
    AnySpec,
    KeyValueSpec,
    MechanismSpec,
    NumberSpec,
    OpenSpec,
    RapporSpec,
    normalize,
    spec_as,
)
from common.task.task import MAX_LOCAL_EPSILON, Task

MIN_DRAFT_EPSILON: Final = 1e-6
"""Minimum local ε of numbers and pairs; below it, no number of users gives a useful estimate."""
_DEFAULT_BITS: Final = 32
"""Bits of a Bloom filter, unless the draft states them."""


class ValueKind(ABC):
    """The analyzer's part of one kind of value."""

    def labels(self, draft: TaskDraft) -> tuple[str, ...]:
        """Return a draft's labels, as its task has them."""
        return draft.labels

    @abstractmethod
    def specify(self, draft: TaskDraft, protocol: Protocol) -> AnySpec:
        """Compute the mechanism's integer parameters; raise TaskError if a rule is broken."""

    def local_claim(self, draft: TaskDraft, spec: Any) -> float:  # noqa: ANN401  # what `specify` returns
        """Return the local ε that a task claims, or raise TaskError if the draft's is too small."""
        del spec
        return draft.local_epsilon

    @abstractmethod
    def estimate(self, task: Task, randomizer: Any, cells: Tally, mixture: Mixture) -> Estimate:  # noqa: ANN401  # the kind's
        """
        Estimate a task's result from its randomizer's tally.

        The mixture is used for items only: other kinds have no dummies.
        """

    def stored(self, cells: Tally) -> Tally:
        """Return the part of a tally that is stored with the result."""
        return cells


def _check_stated(draft: TaskDraft, protocol: Protocol) -> None:
    if not draft.local_epsilon:
        raise TaskError(f"local_epsilon is 0 or left out; the protocol {protocol.name} requires it")


def _check_noise(draft: TaskDraft, protocol: Protocol) -> None:
    _check_stated(draft, protocol)
    if not MIN_DRAFT_EPSILON <= draft.local_epsilon <= MAX_LOCAL_EPSILON:
        raise TaskError(
            f"local_epsilon is {draft.local_epsilon}; {protocol.kind} data always needs noise, "
            f"so it must be from {MIN_DRAFT_EPSILON} to {MAX_LOCAL_EPSILON}"
        )


def _check_unhashed(draft: TaskDraft, protocol: Protocol) -> None:
    if draft.buckets:
        raise TaskError(
            f"the protocol {protocol.name} does not hash items; buckets is {draft.buckets}, and "
            "must be 0"
        )


class _Items(ValueKind):
    def specify(self, draft: TaskDraft, protocol: Protocol) -> MechanismSpec:
        _check_stated(draft, protocol)
        buckets = self._buckets(draft, protocol)
        request = MechanismRequest(
            name=protocol.mechanism_for(domain_size=draft.domain_size, buckets=buckets),
            domain_size=draft.domain_size,
            buckets=buckets,
            local_epsilon=draft.local_epsilon,
            groups=group_count(draft.breakdown),
        )
        return ITEM_MECHANISMS[request.name].specify(request)

    def _buckets(self, draft: TaskDraft, protocol: Protocol) -> int:
        """Return the draft's buckets; if 0 and the protocol hashes without a shuffler, choose."""
        if protocol.buckets and draft.buckets not in {0, protocol.buckets}:
            raise TaskError(
                f"the protocol {protocol.name} hashes into {protocol.buckets} buckets; buckets is "
                f"{draft.buckets}"
            )
        if draft.buckets or not protocol.hashes or protocol.amplified:
            return draft.buckets
        return protocol.buckets or optimal_buckets(draft.local_epsilon, draft.domain_size)

    def estimate(
        self, task: Task, randomizer: Mechanism, cells: Counts, mixture: Mixture
    ) -> Histogram:
        return estimate(randomizer, cells, mixture=mixture, refinement=task.refinement)


class _Texts(ValueKind):
    def labels(self, draft: TaskDraft) -> tuple[str, ...]:
        """Return the labels in the normal form in which devices send texts."""
        return tuple(map(normalize, draft.labels))

    def specify(self, draft: TaskDraft, protocol: Protocol) -> RapporSpec:
        _check_unhashed(draft, protocol)
        texts = draft.texts or TextDraft()
        if draft.labels and texts.cohorts not in {1, TextDraft().cohorts}:
            raise TaskError(f"cohorts is {texts.cohorts}; with labels it must be 1, or left out")
        return Rappor.specify(
            encoding="labels" if draft.labels else "bloom",
            bits=texts.bits or len(draft.labels) or _DEFAULT_BITS,
            hashes=texts.hashes,
            cohorts=1 if draft.labels else texts.cohorts,
            f=_probability("permanent", texts.permanent),
            p=_probability("unset", texts.unset),
            q=_probability("set", texts.set),
            most_bytes=texts.most_bytes,
            question=texts.question,
        )

    def local_claim(self, draft: TaskDraft, spec: RapporSpec) -> float:
        """Return the draft's local ε or, by default, what the probabilities imply."""
        implied = Rappor.of(spec, draft.labels).local_epsilon
        if not draft.local_epsilon:
            return implied
        if draft.local_epsilon < implied:
            raise TaskError(
                f"local_epsilon is {draft.local_epsilon}; one report with these probabilities "
                f"costs {implied}. Leave it out, or raise permanent or unset, or lower set"
            )
        return draft.local_epsilon

    def estimate(self, task: Task, randomizer: Rappor, cells: Counts, mixture: Mixture) -> BitTable:
        del randomizer, mixture
        spec = spec_as(task.mechanism, RapporSpec)
        sizes, counts = cells[: spec.cohorts], cells[spec.cohorts :]
        return BitTable(cohort_sizes=sizes, bit_counts=counts.reshape(spec.cohorts, spec.bits))


def _probability(name: str, value: float) -> Fraction:
    """Return the fraction of a probability's shortest decimal; raise TaskError if out of range."""
    if not 0 <= value <= 1:
        raise TaskError(f"{name} is {value}; it must lie between 0 and 1")
    return Fraction(repr(float(value)))


class _OpenValues(ValueKind):
    def specify(self, draft: TaskDraft, protocol: Protocol) -> OpenSpec:
        _check_noise(draft, protocol)
        return PrefixHashing.specify(draft.open or OpenDraft(), draft.buckets, draft.local_epsilon)

    def estimate(
        self, task: Task, randomizer: PrefixHashing, cells: Reports, mixture: Mixture
    ) -> FoundValues:
        del mixture
        spec = spec_as(task.mechanism, OpenSpec)
        if spec.encoding == "spell":
            return spell(randomizer, cells, task.labels)
        return find_codes(randomizer, cells, text=spec.encoding == "text")

    def stored(self, cells: Tally) -> Tally:
        """Return nothing: the tally is the reports, and nothing reads them again."""
        return cells[:0]


class _Numbers(ValueKind):
    def specify(self, draft: TaskDraft, protocol: Protocol) -> NumberSpec:
        _check_noise(draft, protocol)
        _check_unhashed(draft, protocol)
        numbers = draft.numbers or NumberDraft()
        form = next(form for name, form in NUMBER_MECHANISMS.items() if name == protocol.mechanism)
        mechanism = form.for_epsilon(draft.domain_size, draft.local_epsilon)
        return mechanism.spec(numbers.low, numbers.high)

    def estimate(
        self, task: Task, randomizer: NumberMechanism, cells: Counts, mixture: Mixture
    ) -> Means:
        """
        Return means and errors in the task's units.

        An attribute with too few reports gets the middle of the range, and half the range as error:
        no distribution on the range has a larger standard deviation (Popoviciu's inequality
        [BD00]).
        """
        del mixture
        spec = spec_as(task.mechanism, NumberSpec)
        half, middle = (spec.high - spec.low) / 2, (spec.high + spec.low) / 2
        moments = randomizer.estimate(cells)
        known = np.isfinite(moments.variances)
        variances = np.where(known, moments.variances, 1.0)
        means = np.where(known, moments.means, 0.0)
        filled = dataclasses.replace(moments, means=means, variances=variances)
        return Means(
            means=middle + half * means,
            standard_errors=half * np.sqrt(variances),
            shrunk=middle + half * np.clip(shrink_to_zero(filled), -1, 1),
            mse_theory=float(half**2 * variances.mean()),
            unbiased=moments.unbiased,
        )


class _KeyValues(ValueKind):
    def specify(self, draft: TaskDraft, protocol: Protocol) -> KeyValueSpec:
        _check_noise(draft, protocol)
        _check_unhashed(draft, protocol)
        return PrivKv.specify(draft.pairs or PairDraft(), draft.local_epsilon)

    def estimate(
        self, task: Task, randomizer: PrivKv, cells: Counts, mixture: Mixture
    ) -> KeyValues:
        del mixture
        spec = spec_as(task.mechanism, KeyValueSpec)
        half, middle = (spec.high - spec.low) / 2, (spec.high + spec.low) / 2
        estimated = randomizer.estimate(cells)
        owners: Owners | None = None
        if randomizer.key_signal:
            of_owners = randomizer.without_fakes(estimated)
            owners = Owners(
                frequencies=estimated.frequencies,
                frequency_errors=estimated.frequency_errors,
                means=middle + half * of_owners.means,
                mean_errors=half * of_owners.mean_errors,
            )
        return KeyValues(
            means_with_fakes=middle + half * estimated.means_with_fakes,
            errors_with_fakes=half * estimated.errors_with_fakes,
            reports=cells.sum(axis=1),
            owners=owners,
        )


VALUE_KINDS: Final[Mapping[Kind, ValueKind]] = MappingProxyType(
    {
        "categorical": _Items(),
        "ordered": _Items(),
        "string": _Texts(),
        "open": _OpenValues(),
        "mean": _Numbers(),
        "vector": _Numbers(),
        "key-value": _KeyValues(),
    }
)
