"""Draft PrivKVM's next iteration from the released result of the previous one."""

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
"""Maximum bytes of a JSON result: enough for ten numbers for each of 65,536 keys."""


@dataclass(frozen=True, kw_only=True)
class Iterated:
    """The fields of an iteration's result that the next iteration needs."""

    kind: Literal["key-value"]
    means_with_fakes: tuple[FiniteFloat, ...]
    """Mean of the reports on each key, fakes included, in units of low .. high."""
    low: FiniteFloat
    high: FiniteFloat
    population: str


def read_iterated(path: Path) -> Iterated:
    """Read an iteration's result from `shuffledp result --json`, or raise SettingsError."""
    try:
        if (size := path.stat().st_size) > _MAX_BYTES:
            raise SettingsError(f"{path} has {size} bytes; a result has at most {_MAX_BYTES}")
        return TypeAdapter(Iterated).validate_json(path.read_bytes())
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}") from error
    except ValidationError as error:
        raise SettingsError(f"{path} is not a JSON result of key-value data") from error


def next_draft(
    total: TaskDraft, iterations: int, number: int, previous: Iterated | None
) -> TaskDraft:
    """
    Return the draft of iteration `number`, from 1 on, or raise TaskError. Run by the operator.

    The local_epsilon of `total` is that of all iterations. `previous` is None for the first.
    """
    if protocol_named(total.protocol).kind != "key-value":
        raise TaskError(f"the protocol {total.protocol} is not for pairs, so it has no iterations")
    if not total.population:
        raise TaskError(
            "the draft names no population; iterations need one, because they ask the same users "
            "and share one budget"
        )
    if not 1 <= number <= iterations:
        raise TaskError(f"number is {number}; it must lie between 1 and {iterations}")
    if (number == 1) != (previous is None):
        raise TaskError(
            f"number is {number}; iteration 1 must not have --after, and later ones need it, with "
            "the previous iteration's result"
        )
    pairs = total.pairs or PairDraft()
    low, high = pairs.low, pairs.high
    if not low < high:
        raise TaskError(f"low is {low} and high is {high}; low must be below high")
    means = None
    if previous is not None:
        for name, released, drafted in (
            ("number of keys", len(previous.means_with_fakes), total.domain_size),
            ("range", f"{previous.low} to {previous.high}", f"{low} to {high}"),
            ("population", previous.population, total.population),
        ):
            if released != drafted:
                raise TaskError(f"the result's {name} is {released}; the draft's is {drafted}")
        means = (np.array(previous.means_with_fakes) - low) / (high - low) * 2 - 1
    request = PairRequest(
        keys=total.domain_size, local_epsilon=total.local_epsilon, **dataclasses.asdict(pairs)
    )
    share = iteration(request, iterations, number, means)
    budget = total.budget_epsilon
    return dataclasses.replace(
        total,
        local_epsilon=share.local_epsilon,
        pairs=dataclasses.replace(pairs, key_share=share.key_share, fakes=share.fakes),
        budget_epsilon=total.local_epsilon if budget is None else budget,
    )
