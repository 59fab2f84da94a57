"""PrivKVM: from a draft for all iterations, and the last one's result, to the next one's draft."""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any, Final

import numpy as np

from common.draft import PairDraft, TaskDraft
from common.errors import SettingsError, TaskError
from common.mechanisms.priv_kv import WantedPairs
from common.mechanisms.priv_kvm import budgets, iteration
from common.mechanisms.randomizer import Vector
from common.protocols import protocol_named

_NO_RESULT: Final = (
    *(ValueError, TypeError, KeyError, AttributeError),
    *(RecursionError, OverflowError),
)
_MOST_BYTES: Final = 64 * 1024 * 1024
"""Of a result as JSON: ten numbers for each of 65,536 keys, and room."""


def next_draft(whole: TaskDraft, iterations: int, number: int, means: Vector | None) -> TaskDraft:
    """
    Give the draft of one iteration. Run by the operator.

    Args:
        whole: For all iterations together: its local_epsilon is what they cost in all. It is also
            the budget of their population if the draft names none: what is charged to that is each
            task's ε against the analyzer, so that no iteration is refused.
        iterations: How many there are.
        number: Which one this is, from 1 on.
        means: What the one before estimated, with fakes, in the draft's range; None for the first.

    Raises:
        TaskError: The draft is not for pairs, names no population, or a number is out of range.
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
    if (means is None) != (number == 1):
        raise TaskError(
            "the first iteration follows no result, and every other one that of the one before; "
            f"number is {number}"
        )
    pairs = whole.pairs or PairDraft()
    if not pairs.low < pairs.high:
        raise TaskError(f"low is {pairs.low} and high {pairs.high}; low must be below high")
    parts = budgets(whole.local_epsilon, iterations, pairs.key_share)
    wanted = WantedPairs(
        keys=whole.domain_size,
        low=pairs.low,
        high=pairs.high,
        local_epsilon=whole.local_epsilon,
        key_share=pairs.key_share,
        fakes=pairs.fakes,
    )
    unit = None
    if means is not None:
        if len(means) != whole.domain_size:
            raise TaskError(f"the result has {len(means)} means and the draft {whole.domain_size}")
        unit = (means - pairs.low) / (pairs.high - pairs.low) * 2 - 1
    one = iteration(wanted, parts[number - 1], unit)
    budget = whole.budget_epsilon
    return dataclasses.replace(
        whole,
        local_epsilon=one.local_epsilon,
        pairs=dataclasses.replace(pairs, key_share=one.key_share, fakes=one.fakes),
        budget_epsilon=whole.local_epsilon if budget is None else budget,
    )


def read_means(path: Path) -> Vector:
    """
    Read the means, fakes among them, of a result that `shuffledp result --json` wrote.

    Raises:
        SettingsError: The file cannot be read, or is no result of key-value data.
    """
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise SettingsError(f"{path} is too long to be a result")
        fields: Any = json.loads(path.read_text(encoding="utf-8"))
        kind, listed = fields["kind"], fields["means_with_fakes"]
        means = np.array([float(mean) for mean in listed], dtype=np.float64)
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}") from error
    except _NO_RESULT as error:
        raise SettingsError(f"{path} is no result as JSON") from error
    if kind != "key-value" or not all(map(math.isfinite, means.tolist())):
        raise SettingsError(f"{path} is no result of key-value data")
    return means
