"""The draft of PrivKVM's next iteration, from the released result of the one before."""

import dataclasses
from pathlib import Path
from typing import Final, Literal

import numpy as np
from pydantic import FiniteFloat, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from common.errors import SettingsError, TaskError
from common.mechanisms.key_value.privkv import PairRequest
from common.mechanisms.key_value.privkvm import iteration
from common.protocols import protocol_named
from common.task.draft import PairDraft, TaskDraft

_MAX_BYTES: Final = 64 * 1024 * 1024
"""Of a result as JSON: ten numbers for each of 65,536 keys, and room."""


@dataclass(frozen=True, kw_only=True)
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
    low, high = pairs.low, pairs.high
    if not low < high:
        raise TaskError(f"low is {low} and high {high}; low must be below high")
    means = None
    if before is not None:
        for name, found, drafted in (
            ("number of keys", len(before.means_with_fakes), whole.domain_size),
            ("range", f"{before.low} to {before.high}", f"{low} to {high}"),
            ("population", before.population, whole.population),
        ):
            if found != drafted:
                raise TaskError(f"the result's {name} is {found}, and the draft's {drafted}")
        means = (np.array(before.means_with_fakes) - low) / (high - low) * 2 - 1
    wanted = PairRequest(
        keys=whole.domain_size, local_epsilon=whole.local_epsilon, **dataclasses.asdict(pairs)
    )
    one = iteration(wanted, iterations, number, means)
    budget = whole.budget_epsilon
    return dataclasses.replace(
        whole,
        local_epsilon=one.local_epsilon,
        pairs=dataclasses.replace(pairs, key_share=one.key_share, fakes=one.fakes),
        budget_epsilon=whole.local_epsilon if budget is None else budget,
    )
