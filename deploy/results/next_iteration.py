"""Draft PrivKVM's next iteration from the released result of the previous one."""

import dataclasses
from typing import Literal

import numpy as np
from pydantic import FiniteFloat
from pydantic.dataclasses import dataclass

from common.errors import TaskError
from common.protocols import protocol_named
from common.task.draft import PairDraft, TaskDraft
from common.task.kinds import KINDS
from deploy.results.privkvm import iteration


@dataclass(frozen=True, kw_only=True)
class Iterated:
    """The fields of an iteration's result that the next iteration needs."""

    kind: Literal["key-value"]
    means_with_fakes: tuple[FiniteFloat, ...]
    """Mean of the reports on each key, fakes included, in units of low .. high."""
    low: FiniteFloat
    high: FiniteFloat
    population: str


def next_draft(
    total: TaskDraft, iterations: int, number: int, previous: Iterated | None
) -> TaskDraft:
    """
    Return the draft of iteration `number`, from 1 on, or raise TaskError. Run by the operator.

    The local_epsilon of `total` is that of all iterations. `previous` is None for the first.
    """
    if "pairs" not in KINDS[protocol_named(total.protocol).kind].tables:
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
    local_epsilon, pairs = iteration(pairs, total.local_epsilon, iterations, number, means)
    budget = total.budget_epsilon
    return dataclasses.replace(
        total,
        local_epsilon=local_epsilon,
        pairs=pairs,
        budget_epsilon=total.local_epsilon if budget is None else budget,
    )
