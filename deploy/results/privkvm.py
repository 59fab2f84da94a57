"""
PrivKVM: iterations of PrivKV, each with the means of the one before for fakes [YHMZ19].

Fakes at the true means would not bias the estimates. Each iteration multiplies the bias by its
share of fakes. Each is a task of its own, in which people draw a key again; the costs add up to ε
by sequential composition.

The paper could not be read for the split of ε; as in published programs, the first iteration pays
ε1 = κε for whether a key is owned, and each of c iterations (1-κ)ε/c for the value. Later
iterations toss a fair coin for the key, owned or not: that costs nothing, and leaves the
frequencies to the first. Half of their reports name a value, and 1-f of these are fakes.
"""

import dataclasses
import math
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Final, Literal

import numpy as np
from pydantic import FiniteFloat, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as pydantic_dataclass

from common.errors import SettingsError, TaskError
from common.mechanisms.base import Vector
from common.mechanisms.key_value.privkv import PairRequest
from common.protocols import protocol_named
from common.task.draft import PairDraft, TaskDraft

MAX_ITERATIONS: Final = 1000
_MIN_EPSILON: Final = 2.0**-32
"""Of a part of a report, as in `ResponseWeights`."""
_MAX_BYTES: Final = 64 * 1024 * 1024
"""Of a result as JSON: ten numbers for each of 65,536 keys, and room."""


@pydantic_dataclass(frozen=True, kw_only=True)
class Iterated:
    """The part of an iteration's result that the next one starts from."""

    kind: Literal["key-value"]
    means_with_fakes: tuple[FiniteFloat, ...]
    """In the range, one a key."""
    low: FiniteFloat
    high: FiniteFloat
    population: str


def read_iterated(path: Path) -> Iterated:
    """
    Read an iteration from a result that `shuffledp result --json` wrote.

    Raises:
        SettingsError: The file cannot be read, or is not a result of key-value data.
    """
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise SettingsError(f"{path} is too long to be a result")
        return TypeAdapter(Iterated).validate_json(path.read_bytes())
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}") from error
    except ValidationError as error:
        raise SettingsError(f"{path} is not a result of key-value data as JSON") from error


def next_draft(
    whole: TaskDraft, iterations: int, number: int, before: Iterated | None
) -> TaskDraft:
    """
    Return the draft of one iteration. Run by the operator.

    Args:
        whole: The draft for all iterations. Its local_epsilon is their total cost, and the budget
            of their population unless the draft names one: each iteration is charged its own ε
            against the analyzer, so none is refused.
        iterations: How many there are.
        number: Of this one, from 1 on.
        before: The result of the one before; None for the first.

    Raises:
        TaskError: The draft is not for pairs, names no population, or a number is out of range; or
            the result is of another population, range or number of keys.
    """
    if protocol_named(whole.protocol).kind != "key-value":
        raise TaskError(f"the protocol {whole.protocol} is not for pairs; only those are iterated")
    if not whole.population:
        raise TaskError(
            "the draft names no population: all iterations ask the same people, and what they "
            "cost adds up"
        )
    if not 1 <= number <= iterations:
        raise TaskError(f"number is {number}; there are {iterations} iterations")
    if (number == 1) != (before is None):
        raise TaskError(
            f"number is {number}; --after names the result of the iteration before, which every "
            "iteration but the first needs"
        )
    pairs = whole.pairs or PairDraft()
    if not pairs.low < pairs.high:
        raise TaskError(f"low is {pairs.low} and high {pairs.high}; low must be below high")
    unit = None
    if before is not None:
        _check_before(before, whole, pairs)
        unit = (np.array(before.means_with_fakes) - pairs.low) / (pairs.high - pairs.low) * 2 - 1
    wanted = PairRequest(
        keys=whole.domain_size,
        local_epsilon=whole.local_epsilon,
        **dataclasses.asdict(pairs),
    )
    parts = budgets(whole.local_epsilon, iterations, pairs.key_share)
    one = iteration(wanted, parts[number - 1], unit)
    budget = whole.budget_epsilon
    return dataclasses.replace(
        whole,
        local_epsilon=one.local_epsilon,
        pairs=dataclasses.replace(pairs, key_share=one.key_share, fakes=one.fakes),
        budget_epsilon=whole.local_epsilon if budget is None else budget,
    )


def _check_before(before: Iterated, whole: TaskDraft, pairs: PairDraft) -> None:
    n_means = len(before.means_with_fakes)
    if n_means != whole.domain_size:
        raise TaskError(f"the result has {n_means} means and the draft {whole.domain_size}")
    if (before.low, before.high) != (pairs.low, pairs.high):
        raise TaskError(
            f"the result's range is {before.low} to {before.high}, and the draft's {pairs.low} to "
            f"{pairs.high}"
        )
    if before.population != whole.population:
        raise TaskError("the result is of another population than the draft's")


@dataclass(frozen=True, slots=True, kw_only=True)
class IterationBudget:
    """The cost of one iteration."""

    key_epsilon: float
    """ε1, of whether a key is owned; 0 in every iteration but the first."""
    value_epsilon: float
    """ε2, of the value."""

    @property
    def local_epsilon(self) -> float:
        """Both together, rounded down."""
        total = self.key_epsilon + self.value_epsilon
        exact = Fraction(self.key_epsilon) + Fraction(self.value_epsilon)
        return total if Fraction(total) <= exact else math.nextafter(total, 0.0)


def budgets(local_epsilon: float, iterations: int, key_share: float) -> tuple[IterationBudget, ...]:
    """
    Split a local ε over iterations, so that their exact sum is at most that ε.

    Args:
        local_epsilon: Of all iterations together; above 0 and finite.
        iterations: c, 1 .. MAX_ITERATIONS.
        key_share: κ, of local_epsilon; above 0 and below 1.

    Raises:
        TaskError: One of them is out of range.
    """
    if not 1 <= iterations <= MAX_ITERATIONS:
        raise TaskError(f"there are {iterations} iterations; there may be 1 to {MAX_ITERATIONS}")
    if not 0 < local_epsilon < math.inf:
        raise TaskError(f"local_epsilon is {local_epsilon}; it must be above 0 and finite")
    if not 0 < key_share < 1:
        raise TaskError(f"key_share is {key_share}; it must be above 0 and below 1")
    key = local_epsilon * key_share
    value = (local_epsilon - key) / iterations
    if min(key, value) < _MIN_EPSILON:
        raise TaskError(
            f"local_epsilon is {local_epsilon}: of {iterations} iterations, the least part would "
            f"be {min(key, value)}; below 2^-32 reports would carry no signal"
        )
    while Fraction(key) + iterations * Fraction(value) > Fraction(local_epsilon):
        value = math.nextafter(value, 0.0)
    first = IterationBudget(key_epsilon=key, value_epsilon=value)
    return (first, *[IterationBudget(key_epsilon=0.0, value_epsilon=value)] * (iterations - 1))


def iteration(whole: PairRequest, budget: IterationBudget, means: Vector | None) -> PairRequest:
    """
    Return the parameters of one iteration. Run by the operator.

    Args:
        whole: Of all iterations.
        budget: Of this one.
        means: Estimated by the one before, in -1 .. 1 but for noise, which is clipped: they are
            the fakes of this one. None for the first, which has the whole's fakes.
    """
    fakes = whole.fakes
    if means is not None:
        scaled = whole.low + (means + 1) / 2 * (whole.high - whole.low)
        fakes = tuple(np.clip(scaled, whole.low, whole.high).tolist())
    total = budget.local_epsilon
    key_share = budget.key_epsilon / total
    return dataclasses.replace(whole, local_epsilon=total, key_share=key_share, fakes=fakes)
