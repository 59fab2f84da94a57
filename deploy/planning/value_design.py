"""Designs for texts, numbers and pairs: the largest local ε that keeps a guarantee. Pure."""

import dataclasses
import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from analyzer.task_builder import complete
from common.accounting.guarantees import PrivacyParameters
from common.errors import PlanError
from common.mechanisms.rappor import bloom
from common.mechanisms.registry import number_mechanism_of, priv_kv_of, rappor_of
from common.task.draft import TaskDraft, TextDraft
from common.task.specs import INSTANT_SUM, PERMANENT_SUM, NumberSpec, RapporSpec, spec_as
from common.task.task import MAX_LOCAL_EPSILON, Task
from deploy.planning.design import Design
from deploy.planning.requirements import MIN_VALUE_EPSILON, UNUSED_KEY, Requirements

BIASED: Final = frozenset({"multi-rphm"})
"""Protocols whose error exceeds the prediction: a projection leaves something out."""
_REL_TOL: Final = 1e-2
"""How closely the largest local ε is found."""
_SPREAD: Final = np.linspace(-1, 1, 5)
"""Numbers for which an error is predicted: spread evenly over the range."""
_OWNERS: Final = 0.5
"""Share of owners for which an error is predicted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueDesign(Design):
    """A protocol with its parameters, for values that are no items: a draft and its task."""

    base: TaskDraft
    task: Task

    @property
    def bytes_per_user(self) -> int:
        """Length of a submission's envelope."""
        return self.task.envelope_bytes

    @property
    def terms(self) -> PrivacyParameters:
        """The parameters that the guarantees of the task follow from."""
        return PrivacyParameters.of(self.task)

    @property
    def draft(self) -> TaskDraft:
        """The draft of the task."""
        return self.base

    @property
    def mse(self) -> float:
        """The predicted mean squared error; see `predicted_mse`."""
        return predicted_mse(self.task, self.wanted.n_users)


def value_design(protocol: str, wanted: Requirements) -> ValueDesign:
    """
    Return a protocol with the largest local ε that keeps the guarantee, or PlanError.

    Raises TaskError if the requirements break a rule of its tasks. Cost: some ten tasks, tenths of
    a second each.
    """
    most = min(wanted.local_cap, MAX_LOCAL_EPSILON)
    found = _kept(protocol, most, wanted)
    if found is not None:
        return found
    low = max(MIN_VALUE_EPSILON, min(most, wanted.central_epsilon))  # shuffling never adds to it
    found = _kept(protocol, low, wanted)
    if found is None:
        raise PlanError(
            f"no local epsilon keeps a central epsilon of {wanted.central_epsilon:g} at delta "
            f"{wanted.delta:g} with {wanted.n_min} users: more users, a larger epsilon or a larger "
            "delta would do"
        )
    while most > low * (1 + _REL_TOL):
        middle = math.sqrt(low * most)
        better = _kept(protocol, middle, wanted)
        found, low, most = (found, low, middle) if better is None else (better, middle, most)
    return found


def _kept(protocol: str, local_epsilon: float, wanted: Requirements) -> ValueDesign | None:
    """Return the design with a local ε, if its task's claim keeps the guarantee."""
    draft = wanted.draft(protocol, local_epsilon=local_epsilon)
    if wanted.kind == "string":
        texts = _with_noise(draft.texts, 0 if draft.labels else 32, local_epsilon)
        if texts is None:
            return None
        draft = dataclasses.replace(draft, texts=texts, local_epsilon=0.0)
    task = complete(draft, analyzer_key=UNUSED_KEY, nonce=bytes(32))
    if task.central_epsilon > wanted.central_epsilon or task.local_epsilon > wanted.local_cap:
        return None
    return ValueDesign(
        protocol=protocol,
        wanted=wanted,
        local_epsilon=task.local_epsilon,
        biased=protocol in BIASED,
        floor=wanted.kind == "string" and not draft.labels,
        base=draft,
        task=task,
    )


def _with_noise(texts: TextDraft | None, bits: int, local_epsilon: float) -> TextDraft | None:
    """
    Choose p = 1 - q for a local ε: s = q* - p* = (1-f)(q-p), with odds of a bit e^(ε/2h).

    A stated permanent noise f stays; the usual one falls below a half where the instantaneous noise
    cannot make up for it. Where even p = 0 gives away less, p is 0; None where p would be a half.
    """
    found = texts or TextDraft(bits=bits)
    signal = math.tanh(local_epsilon / (4 * found.hashes))
    if texts is None:
        most = math.floor((1 - signal) * PERMANENT_SUM) / PERMANENT_SUM
        found = dataclasses.replace(found, permanent=min(found.permanent, most))
    if not 0 <= found.permanent < 1:
        raise PlanError(f"permanent is {found.permanent}; it must be at least 0 and below 1")
    spread = min(1.0, signal / (1 - found.permanent))
    unset = math.floor((1 - spread) / 2 * INSTANT_SUM + 1) / INSTANT_SUM if spread < 1 else 0.0
    if unset >= 1 / 2:
        return None
    return dataclasses.replace(found, unset=unset, set=1 - unset)


def predicted_mse(task: Task, n_users: int) -> float:
    """
    Predict the mean squared error of what a task would release.

    For numbers that of a mean, of people spread evenly over the range; for keys that of the share
    of a key that half of all own; for texts that of a rare text's share, a floor: decoding more
    candidates and frequent other texts add to it.
    """
    if task.kind == "string":
        return _text_mse(task, n_users)
    if task.kind == "key-value":
        owners = np.full(task.domain_size, _OWNERS)
        expected = priv_kv_of(task).expected(owners, np.zeros(task.domain_size), n_users)
        return float((expected.frequency_errors**2).mean())
    numbers = spec_as(task.mechanism, NumberSpec)
    half = (numbers.high - numbers.low) / 2
    people = np.repeat(_SPREAD[:, np.newaxis], task.domain_size, axis=1)
    of_one = number_mechanism_of(task).variance(people) * len(people)
    return float(half**2 * of_one.mean() / n_users)


def _text_mse(task: Task, n_users: int) -> float:
    """
    Return the variance of the decoder's estimate of a rare text that is alone.

    A label's own bit has that of its noise, p*(1-p*) / (n·(q*-p*)²) [EPK14]. A bit i of a filter is
    also set by a share b_i of the people, by other texts: that is noise, and cohorts in which
    hashes collide add a variance b_i(1-b_i)(1-1/m) each.
    """
    spec, rappor = spec_as(task.mechanism, RapporSpec), rappor_of(task)
    signal = rappor.set_chance - rappor.unset_chance
    of_unset, of_set = (
        chance * (1 - chance) / signal**2 for chance in (rappor.unset_chance, rappor.set_chance)
    )
    if spec.encoding == "labels":
        return of_unset / n_users
    others = 1 - (1 - bloom.hash_distribution(spec.bits)) ** spec.hashes
    leverage = others * (1 - others)
    noise = of_unset + others * (of_set - of_unset)
    lottery = leverage * (1 - 1 / spec.cohorts)
    return float((leverage * (noise + lottery)).sum() / (n_users * leverage.sum() ** 2))
