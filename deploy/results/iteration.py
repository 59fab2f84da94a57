"""PrivKVM: the draft of the next iteration, from the whole draft and the last result."""

import dataclasses
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from common.errors import SettingsError, TaskError
from common.mechanisms.base import Vector
from common.mechanisms.key_value.privkv import PairRequest
from common.protocols import protocol_named
from common.task.draft import PairDraft, TaskDraft
from deploy.results.privkvm import budgets, iteration

_INVALID: Final = (
    *(ValueError, TypeError, KeyError, AttributeError),
    *(RecursionError, OverflowError),
)
_MOST_BYTES: Final = 64 * 1024 * 1024
"""Of a result as JSON: ten numbers for each of 65,536 keys, and room."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Iterated:
    """The part of an iteration's result that the next one starts from."""

    means: Vector
    """With fakes, in the range; shape (keys,)."""
    low: float
    high: float
    population: str


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
    if number == 1 and before is not None:
        raise TaskError("number is 1; the first iteration follows no result")
    if number > 1 and before is None:
        raise TaskError(
            f"number is {number}; the result of the iteration before is missing (--after)"
        )
    pairs = whole.pairs or PairDraft()
    if not pairs.low < pairs.high:
        raise TaskError(f"low is {pairs.low} and high {pairs.high}; low must be below high")
    unit = None
    if before is not None:
        _check_before(before, whole, pairs)
        unit = (before.means - pairs.low) / (pairs.high - pairs.low) * 2 - 1
    wanted = PairRequest(
        keys=whole.domain_size,
        low=pairs.low,
        high=pairs.high,
        local_epsilon=whole.local_epsilon,
        key_share=pairs.key_share,
        fakes=pairs.fakes,
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
    if len(before.means) != whole.domain_size:
        raise TaskError(
            f"the result has {len(before.means)} means and the draft {whole.domain_size}"
        )
    if (before.low, before.high) != (pairs.low, pairs.high):
        raise TaskError(
            f"the result's range is {before.low} to {before.high}, and the draft's {pairs.low} to "
            f"{pairs.high}"
        )
    if before.population != whole.population:
        raise TaskError("the result is of another population than the draft's")


def read_iterated(path: Path) -> Iterated:
    """
    Read an iteration from a result that `shuffledp result --json` wrote.

    Raises:
        SettingsError: The file cannot be read, or is not a result of key-value data.
    """
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise SettingsError(f"{path} is too long to be a result")
        fields: Any = json.loads(path.read_text(encoding="utf-8"))
        if fields["kind"] != "key-value":
            raise ValueError("another kind")  # as any other invalid field
        found = Iterated(
            means=np.array([float(mean) for mean in fields["means_with_fakes"]], dtype=np.float64),
            low=float(fields["low"]),
            high=float(fields["high"]),
            population=str(fields["population"]),
        )
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}") from error
    except _INVALID as error:
        raise SettingsError(f"{path} is not a result of key-value data as JSON") from error
    if not all(map(math.isfinite, (*found.means.tolist(), found.low, found.high))):
        raise SettingsError(f"{path} is not a result of key-value data as JSON")
    return found
