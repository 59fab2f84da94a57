"""
PrivKV: the share of owners of each key, and the mean of their values [YHMZ19].

A report states one key, drawn uniformly, and an answer: absent, present with -, or present with +.
Randomized response at ε1 reports ownership. The value is rounded at random to an end of its range,
and randomized response at ε2 reports the end. A user who does not own the key but reports it as
present uses a fake value from the task, or the middle of the range. Fakes bias the estimated means:
`bias_of_fakes` computes the bias, and `without_fakes` removes it. [YHMZ19] draws a fake uniformly
from the range; with either, + and - are equally likely.

The likelihood ratio of two inputs is at most e^ε1 · e^ε2, reached only if a fake is an end of the
range. With fakes in the middle it is max(e^ε2, 2·e^ε1 / (1 + e^-ε2)) [GLCXC20, Theorem 2].
"""

import math
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from shuffledp.common.errors import TaskError
from shuffledp.common.mechanisms import base
from shuffledp.common.mechanisms.base import Counts, Reports
from shuffledp.common.mechanisms.key_value.estimator import ABSENT, MINUS, PLUS, PairEstimator
from shuffledp.common.mechanisms.key_value.pairs import Owned, Pairs
from shuffledp.common.mechanisms.numeric.number import to_grid
from shuffledp.common.mechanisms.reduction import PureReduction
from shuffledp.common.mechanisms.weights import ResponseWeights, epsilon_of_odds, odds_keep
from shuffledp.common.task.draft import PairDraft
from shuffledp.common.task.spec_forms import spec_as
from shuffledp.common.task.specs import KeyValueSpec
from shuffledp.common.task.task import Task, check_local_epsilon

STEPS: Final = 2**16
"""Intervals of the grid to which values and fakes are rounded."""
_REPORT: Final = np.dtype([("key", "<u2"), ("answer", "u1")])


@dataclass(frozen=True)
class PrivKv(PairEstimator, base.Randomizer):
    """Randomize one key of each user; estimate shares and means of all keys."""

    @classmethod
    def specify(cls, draft: PairDraft, local_epsilon: float) -> KeyValueSpec:
        """
        Choose the integer weights, or raise TaskError. Run by the analyzer.

        The ε left for the value is rounded down, so that the sum is at most local_epsilon, which is
        above 0 and at most 20. With a key_share of 0, reports carry no information on ownership,
        but half of them still carry a value.
        """
        check_local_epsilon(local_epsilon)
        if math.isinf(local_epsilon):
            raise TaskError("local_epsilon is inf; for pairs it must be finite")
        if not 0 <= draft.key_share < 1:
            raise TaskError(f"key_share is {draft.key_share}; it must be at least 0 and below 1")
        key_epsilon = local_epsilon * draft.key_share
        rest = local_epsilon - key_epsilon
        value_epsilon = math.nextafter(rest, 0.0) if key_epsilon else rest
        key = ResponseWeights.for_epsilon(key_epsilon) if key_epsilon else None
        value = ResponseWeights.for_epsilon(value_epsilon)
        return KeyValueSpec(
            name="priv-kv",
            low=draft.low,
            high=draft.high,
            steps=STEPS,
            key_true_weight=key.true if key else 1,
            key_other_weight=key.other if key else 1,
            value_true_weight=value.true,
            value_other_weight=value.other,
            fakes=draft.fakes,
            report_bytes=_REPORT.itemsize,
        )

    @classmethod
    def of_spec(cls, spec: KeyValueSpec, keys: int) -> Self:
        """Build the mechanism from a task's description, or raise TaskError."""
        base.check_report_bytes(spec, _REPORT)
        width = spec.high - spec.low
        return cls(
            keys=keys,
            steps=spec.steps,
            key_true=spec.key_true_weight,
            key_other=spec.key_other_weight,
            value=ResponseWeights(true=spec.value_true_weight, other=spec.value_other_weight),
            fakes=tuple(round((fake - spec.low) / width * spec.steps) for fake in spec.fakes),
        )

    @classmethod
    def of(cls, task: Task) -> Self:
        """Build the mechanism of a task, whose domain_size is the number of keys."""
        return cls.of_spec(spec_as(task.mechanism, KeyValueSpec), task.domain_size)

    @property
    def local_epsilon(self) -> float:
        """The sum ε1 + ε2, rounded up: a bound for all fakes."""
        return epsilon_of_odds(self.key_true * self.value.true, self.key_other * self.value.other)

    def keeps_promise(self, local_epsilon: float) -> bool:
        return odds_keep(
            self.key_true * self.value.true, self.key_other * self.value.other, local_epsilon
        )

    @property
    def reduction(self) -> PureReduction:
        """The local ε alone: no formula covers the blanket of pairs."""
        return PureReduction(local_epsilon=self.local_epsilon)

    report_dtype = _REPORT
    """A key (uint16) and the answer on it, 0 .. 2 (uint8)."""

    def randomize(self, pairs: Pairs | Owned, rng: np.random.Generator) -> Reports:
        """
        Randomize one key of each user. Run by the user agent.

        The number of draws does not depend on ownership: the key, a grid point, an end of the
        range, its reported sign, and whether the answer on ownership is truthful.

        `pairs` are those of n users, or a table of values (n, keys) with NaN for a key not owned.
        Cost: five integers per user; for one user, a pass over the pairs owned.
        """
        if not isinstance(pairs, Pairs):
            pairs = Pairs.of_table(pairs, self.keys)
        pairs.check_keys(self.keys)
        size = pairs.n_users
        keys = rng.integers(0, self.keys, size=size, dtype=np.int64)
        owned, values = pairs.look_up(keys, self.keys)
        step = np.where(owned, to_grid(values, self.steps, rng), self.fake_steps[keys])
        end = rng.integers(0, self.steps, size=size, dtype=np.int64) < step
        sign = self.value.respond(end.astype(np.int64), 2, rng)
        total = self.key_true + self.key_other
        truthful = rng.integers(0, total, size=size, dtype=np.int64) < self.key_true
        answers = np.where(owned == truthful, MINUS + sign, ABSENT)
        return base.reports_of(_REPORT, key=keys, answer=answers)

    def valid(self, reports: Reports) -> NDArray[np.bool_]:
        return (reports["key"] < self.keys) & (reports["answer"] <= PLUS)

    def tally(self, reports: Reports) -> Counts:
        """Count reports by key and answer: absent, -, +; shape (keys, 3). Run by the analyzer."""
        base.check_valid(
            self.valid(reports), f"a key is not below {self.keys}, or an answer is above {PLUS}"
        )
        cells = reports["key"].astype(np.int64) * 3 + reports["answer"]
        return np.bincount(cells, minlength=3 * self.keys).reshape(self.keys, 3)
