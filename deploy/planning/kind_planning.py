"""
Parameters for values that are no items: the largest local ε that keeps a promise. Pure.

Each protocol of the kind gets as much local ε as the promise allows, by the very task that would be
published; the one with the least predicted error is the plan.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from analyzer.task_builder import complete
from common.accounting.epsilon_search import MOST_EPSILON
from common.accounting.guarantees import guarantees
from common.errors import PlanError, TaskError
from common.mechanisms.rappor import bloom
from common.mechanisms.registry import number_mechanism_of, priv_kv_of, rappor_of
from common.messages.guarantee import Guarantee
from common.protocols import Kind, protocols_of
from common.task.draft import TaskDraft, TextDraft
from common.task.specs import INSTANT_SUM, PERMANENT_SUM, NumberSpec, RapporSpec, spec_as
from common.task.task import MAX_LOCAL_EPSILON, MIN_DELTA, Task
from deploy.planning.requirements import MIN_EPSILON

LEAST_EPSILON: Final = 0.01
"""Local ε below which no parameters are sought: a million people would tell next to nothing."""
_KEY: Final = bytes(31) + b"\x09"
"""Stands where a task has public keys; nothing is sealed."""
_DEADLINE: Final = 4_000_000_000
_CLOSE: Final = 1e-2
"""Relative: how closely the largest local ε is found."""
_SPREAD: Final = np.linspace(-1, 1, 5)
"""Numbers for which an error is predicted: spread evenly over the range."""
_OWNERS: Final = 0.5
"""Share of owners for which an error is predicted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KindWishes:
    """What an operator wants of a task for texts, numbers or pairs."""

    kind: Kind
    n_users: int
    n_min: int
    central_epsilon: float
    delta: float
    size: int = 1
    """Numbers of a vector, or keys."""
    local_cap: float = math.inf
    honest_fraction: float = 1.0
    fields: dict[str, Any] = field(default_factory=dict)
    """Further fields of the draft, such as the range."""

    def __post_init__(self) -> None:
        if self.kind == "categorical":
            raise PlanError("items are planned for by their own rules")
        if not MIN_EPSILON <= self.central_epsilon <= MOST_EPSILON:
            raise PlanError(
                f"central_epsilon is {self.central_epsilon:g}; "
                f"it must lie between {MIN_EPSILON:g} and {MOST_EPSILON:g}"
            )
        if not MIN_DELTA <= self.delta < 1:
            raise PlanError(
                f"delta is {self.delta:g}; it must be at least {MIN_DELTA:g} and below 1"
            )
        if not 1 <= self.n_min <= self.n_users:
            raise PlanError(
                f"n_min is {self.n_min} and users is {self.n_users}; "
                "n_min must be at least 1, and users no less"
            )
        if not self.local_cap >= LEAST_EPSILON:
            raise PlanError(
                f"the local cap is {self.local_cap:g}; it must be at least {LEAST_EPSILON:g}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class KindDesign:
    """A protocol with its parameters, as a draft, and what it gives."""

    draft: TaskDraft
    task: Task
    mse: float
    """Predicted mean squared error: of a mean, in the task's units; of a share, for texts and keys.
    """
    biased: bool
    """More is added to the error than is predicted: projections leave something out."""

    @property
    def guarantees(self) -> tuple[Guarantee, ...]:
        """For n_min users, one a coalition."""
        return guarantees(self.task, self.task.n_min, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class KindPlan:
    """The best design, and the best of every other protocol of the kind."""

    wishes: KindWishes
    best: KindDesign
    runners_up: tuple[KindDesign, ...]
    left_out: Mapping[str, str]
    """Why there is no design of a protocol, by its name."""


def plan_kind(wishes: KindWishes) -> KindPlan:
    """
    Find the design with the least predicted error that keeps the promise.

    Raises:
        PlanError: No protocol of the kind keeps it.
        TaskError: The wishes break a rule of tasks of the kind.

    Cost: some ten tasks a protocol, tenths of a second each.
    """
    found, broken = [], dict[str, PlanError | TaskError]()
    for name in protocols_of(wishes.kind):
        try:
            found.append(design_of(name, wishes))
        except (PlanError, TaskError) as error:  # such as too many numbers to be projected
            broken[name] = error
    if not found:
        raise next(iter(broken.values()))
    found.sort(key=lambda design: (design.biased, design.mse))
    return KindPlan(
        wishes=wishes,
        best=found[0],
        runners_up=tuple(found[1:]),
        left_out={name: str(error) for name, error in broken.items()},
    )


def design_of(protocol: str, wishes: KindWishes) -> KindDesign:
    """
    Give a protocol with the largest local ε that keeps the promise.

    Raises:
        PlanError: None does.
        TaskError: The wishes break a rule of the protocol's tasks.
    """
    most = min(wishes.local_cap, MAX_LOCAL_EPSILON)
    high = _kept(protocol, most, wishes)
    if high is not None:
        return high
    low = max(LEAST_EPSILON, min(most, wishes.central_epsilon))  # shuffling never adds to it
    found = _kept(protocol, low, wishes)
    while found is not None and most > low * (1 + _CLOSE):
        middle = math.sqrt(low * most)
        better = _kept(protocol, middle, wishes)
        if better is None:
            most = middle
        else:
            found, low = better, middle
    if found is None:
        raise PlanError(
            f"no local epsilon keeps a central epsilon of {wishes.central_epsilon:g} at delta "
            f"{wishes.delta:g} with {wishes.n_min} users: more users, a larger epsilon or a larger "
            "delta would do"
        )
    return found


def _kept(protocol: str, local_epsilon: float, wishes: KindWishes) -> KindDesign | None:
    """Make the design with a local ε, if its task's claim keeps the promise."""
    draft = _draft(protocol, local_epsilon, wishes)
    if draft is None:
        return None
    task = complete(draft, analyzer_key=_KEY, nonce=bytes(32))
    if task.central_epsilon > wishes.central_epsilon or task.local_epsilon > wishes.local_cap:
        return None
    return KindDesign(
        draft=draft,
        task=task,
        mse=predicted_mse(task, wishes.n_users),
        biased=protocol == "multi-rphm",
    )


def _draft(protocol: str, local_epsilon: float, wishes: KindWishes) -> TaskDraft | None:
    draft = TaskDraft(
        protocol=protocol,
        domain_size=wishes.size,
        local_epsilon=local_epsilon,
        delta=wishes.delta,
        n_min=wishes.n_min,
        target_size=wishes.n_users,
        deadline=_DEADLINE,
        shuffler_key=_KEY,
        assumed_honest_fraction=wishes.honest_fraction,
        **wishes.fields,
    )
    if wishes.kind != "string":
        return draft
    asked = draft.texts or _default_texts(0 if draft.labels else 32, local_epsilon)
    texts = _texts(asked, local_epsilon)
    return None if texts is None else dataclasses.replace(draft, texts=texts, local_epsilon=0.0)


def _default_texts(bits: int, local_epsilon: float) -> TextDraft:
    """
    Give what a filter has where nothing is asked for: less permanent noise for a larger ε.

    Of a report that is given once only the two noises together matter. f stays at a half while what
    is drawn anew can make up for it, and is as large as it may be otherwise.
    """
    usual = TextDraft(bits=bits)
    most = math.floor((1 - _signal(usual, local_epsilon)) * PERMANENT_SUM) / PERMANENT_SUM
    return dataclasses.replace(usual, permanent=min(usual.permanent, most))


def _signal(texts: TextDraft, local_epsilon: float) -> float:
    """Give s = q* - p* of a bit whose odds of being shown truly are e^(ε/2h): (1+s)/(1-s)."""
    return math.tanh(local_epsilon / (4 * texts.hashes))


def _texts(texts: TextDraft, local_epsilon: float) -> TextDraft | None:
    """
    Choose p = 1 - q for a local ε, and leave the permanent noise as it is.

    s = (1-f)(q-p). Where even p = 0 gives away less, that is the most there is; None where p would
    be a half.
    """
    if not 0 <= texts.permanent < 1:
        raise PlanError(f"permanent is {texts.permanent}; it must be at least 0 and below 1")
    spread = min(1.0, _signal(texts, local_epsilon) / (1 - texts.permanent))
    unset = math.floor((1 - spread) / 2 * INSTANT_SUM + 1) / INSTANT_SUM if spread < 1 else 0.0
    if unset >= 1 / 2:
        return None
    return dataclasses.replace(texts, unset=unset, set=1 - unset)


def predicted_mse(task: Task, n_users: int) -> float:
    """
    Predict the mean squared error of what a task would release.

    Of a mean for people spread evenly over the range; of a key's share where half of all own it; of
    a text's share where it is rare. The last is a floor: a decoder that looks for as many
    candidates as an eighth of all cohorts' bits tells them apart with a seventh more error, one
    that looks for more with a multiple; and frequent texts that are no candidates add what no
    number of people takes off.
    """
    return _MSE[task.kind](task, n_users)


def _pair_mse(task: Task, n_users: int) -> float:
    owners = np.full(task.domain_size, _OWNERS)
    expected = priv_kv_of(task).expected(owners, np.zeros(task.domain_size), n_users)
    return float((expected.frequency_errors**2).mean())


def _number_mse(task: Task, n_users: int) -> float:
    numbers = spec_as(task.mechanism, NumberSpec)
    half = (numbers.high - numbers.low) / 2
    people = np.repeat(_SPREAD[:, np.newaxis], task.domain_size, axis=1)
    of_one = number_mechanism_of(task).variance(people) * len(people)
    return float(half**2 * of_one.mean() / n_users)


def _text_mse(task: Task, n_users: int) -> float:
    """
    The variance of what the decoder estimates of a rare text, alone (`rappor_decoding.py`).

    A label's own bit has that of its noise, p*(1-p*) / (n·(q*-p*)²) [EPK14]. A bit i of a filter is
    set by a share b_i of the people as well, by other texts: their noise is theirs, and whether
    they came into a cohort whose hashes collide is a lottery, of variance b_i(1-b_i)(1-1/m) each.
    """
    spec, rappor = spec_as(task.mechanism, RapporSpec), rappor_of(task)
    signal = rappor.set_chance - rappor.unset_chance
    of_unset, of_set = (
        chance * (1 - chance) / signal**2 for chance in (rappor.unset_chance, rappor.set_chance)
    )
    if spec.encoding == "labels":
        return of_unset / n_users
    others = 1 - (1 - bloom.hash_chances(spec.bits)) ** spec.hashes
    leverage = others * (1 - others)
    noise = of_unset + others * (of_set - of_unset)
    lottery = leverage * (1 - 1 / spec.cohorts)
    return float((leverage * (noise + lottery)).sum() / (n_users * leverage.sum() ** 2))


_MSE: Final[Mapping[Kind, Callable[[Task, int], float]]] = {
    "string": _text_mse,
    "mean": _number_mse,
    "vector": _number_mse,
    "key-value": _pair_mse,
}
