"""
PrivKV: how many own each key, and the mean of the values that they have for it [YHMZ19].

A report is about one key, drawn evenly among all, whoever owns it: absent, present with -, or
present with +. Whether the key is owned goes through randomized response at ε1; the value, rounded
to an end of its range at random, through another at ε2. Whoever does not own the key and says so
falsely takes a fake value that the task names, and these fakes pull the estimated means towards
them: by how much, `bias_of_fakes` says exactly, and `without_fakes` takes it out again. [YHMZ19]
takes a fake evenly from the range instead of its middle; both have the same chances for + and -.

Two people's odds of a report are at most e^ε1 · e^ε2. They reach that only where a fake is an end
of the range: with fakes in the middle they are e^ε2, or 2·e^ε1 / (1 + e^-ε2) if that is more
[GLCXC20, Theorem 2]. `worst_odds` gives them as an exact fraction for any fakes.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from common.errors import ReportError, TaskError
from common.mechanisms.base import Counts, Reports, Vector
from common.mechanisms.key_value.estimator import ABSENT, MINUS, PLUS, PairEstimator
from common.mechanisms.key_value.pairs import Owned, Pairs
from common.mechanisms.numeric.number import report_layout, to_grid
from common.mechanisms.reduction import PureReduction
from common.mechanisms.weights import ResponseWeights, epsilon_of_odds, odds_keep
from common.protocols import KeyValueMechanismName
from common.task.ranges import within
from common.task.specs import MAX_KEYS, MAX_WEIGHT_SUM, KeyValueSpec
from common.task.task import Task, check_local_epsilon

STEPS: Final = 2**16
"""Intervals of the grid: fakes are moved by 1/65536 of the half range at most."""
_REPORT: Final = report_layout([("key", "<u2"), ("said", "u1")])


@dataclass(frozen=True, slots=True, kw_only=True)
class PairRequest:
    """PrivKV by name, and what its integers follow from."""

    name: KeyValueMechanismName = "priv-kv"
    keys: int
    low: float
    high: float
    local_epsilon: float
    """Above 0 and at most 20."""
    key_share: float = 0.5
    """Of local_epsilon, what whether a key is owned may cost: 0 or more, below 1. With 0 the
    reports tell nothing of it, but half of them still name a value."""
    fakes: tuple[float, ...] = ()
    """One a key, in low .. high; nothing for the middle of the range."""


@dataclass(frozen=True)
class PrivKv(PairEstimator):
    """Randomize one key of each person, and estimate shares and means of all keys."""

    keys: int
    steps: int
    key_true: int
    key_other: int
    """Odds of telling the truth of whether a key is owned; 1 : 1 tells nothing."""
    value: ResponseWeights
    """Odds of telling the true sign."""
    fakes: tuple[int, ...] = ()
    """Steps of the grid, one a key; nothing for its middle."""

    def __post_init__(self) -> None:
        within("the number of keys", self.keys, 1, MAX_KEYS)
        if len(self.fakes) not in {0, self.keys}:
            raise TaskError(
                f"there are {len(self.fakes)} fake values and {self.keys} keys; "
                "there must be one a key, or none"
            )
        if self.value.other == 0:
            raise TaskError("value_other_weight is 0; a value always goes with noise")
        if not 1 <= self.key_other <= self.key_true <= MAX_WEIGHT_SUM - self.key_other:
            raise TaskError(
                f"the weights of a key are {self.key_true} and {self.key_other}; they must satisfy "
                f"1 <= other <= true, and add up to {MAX_WEIGHT_SUM} at most"
            )
        _ = self.value.total(2)

    @classmethod
    def specify(cls, wanted: PairRequest) -> KeyValueSpec:
        """
        Work out the integers. Run by the analyzer.

        What is left to the value is rounded down, so that both together keep the promise.

        Raises:
            TaskError: local_epsilon, a share of it, or what the task would say is out of range.
        """
        check_local_epsilon(wanted.local_epsilon)
        if math.isinf(wanted.local_epsilon):
            raise TaskError("local_epsilon is inf; pairs always go with noise")
        if not 0 <= wanted.key_share < 1:
            raise TaskError(f"key_share is {wanted.key_share}; it must be at least 0 and below 1")
        for_key = wanted.local_epsilon * wanted.key_share
        rest = wanted.local_epsilon - for_key
        for_value = math.nextafter(rest, 0.0) if for_key else rest
        key_true, key_other = 1, 1
        if for_key:
            key = ResponseWeights.for_epsilon(for_key)
            key_true, key_other = key.true, key.other
        value = ResponseWeights.for_epsilon(for_value)
        return KeyValueSpec(
            name=wanted.name,
            low=wanted.low,
            high=wanted.high,
            steps=STEPS,
            key_true_weight=key_true,
            key_other_weight=key_other,
            value_true_weight=value.true,
            value_other_weight=value.other,
            fakes=wanted.fakes,
            report_bytes=_REPORT.itemsize,
        )

    @classmethod
    def of_spec(cls, spec: KeyValueSpec, keys: int) -> Self:
        """
        Build it from what a task says of it, for so many keys.

        Raises:
            TaskError: There are too many keys, or not as many fake values, or reports are of
                another length.
        """
        if spec.report_bytes != _REPORT.itemsize:
            raise TaskError(
                f"report_bytes is {spec.report_bytes}; "
                f"of the mechanism {spec.name} it must be {_REPORT.itemsize}"
            )
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
        """
        Build it from a task, whose domain_size is the number of keys.

        Raises:
            TaskError: The task is not about pairs, or as of `of_spec`.
        """
        spec: object = task.mechanism
        if not isinstance(spec, KeyValueSpec):
            raise TaskError(f"the mechanism {task.mechanism.name} is not one for pairs")
        return cls.of_spec(spec, task.domain_size)

    @property
    def local_epsilon(self) -> float:
        """ε1 + ε2, rounded up: what is left whatever the fakes are."""
        return epsilon_of_odds(self.key_true * self.value.true, self.key_other * self.value.other)

    def keeps_promise(self, local_epsilon: float) -> bool:
        """Say whether e^ε1 · e^ε2 ≤ e^local_epsilon, in exact arithmetic. Run by the user agent."""
        return odds_keep(
            self.key_true * self.value.true, self.key_other * self.value.other, local_epsilon
        )

    @property
    def worst_odds(self) -> Fraction:
        """
        Give how much likelier one person makes a report than another: the exact maximum.

        Keys are drawn evenly, so that it is that of one key, over people who own it with a value
        at an end of the range, where all chances are extreme, or do not own it.
        """
        ends = {self.steps, 0}
        fakes = set(self.fakes) if self.fakes else {self.steps // 2}
        worst = Fraction(1)
        for fake in (min(fakes), max(fakes)):
            laws = [self._law(end, owned=True) for end in ends] + [self._law(fake, owned=False)]
            for chances in zip(*laws, strict=True):
                worst = max(worst, Fraction(max(chances), min(chances)))
        return worst

    def _law(self, step: int, *, owned: bool) -> tuple[int, int, int]:
        """Weigh absent, - and + of one key, whose value or fake is this step of the grid."""
        shown, hidden = self.key_true, self.key_other
        if not owned:
            shown, hidden = hidden, shown
        true, other, left = self.value.true, self.value.other, self.steps - step
        both = self.steps * (true + other)
        return (
            hidden * both,
            shown * (step * other + left * true),
            shown * (step * true + left * other),
        )

    @property
    def reduction(self) -> PureReduction:
        """Nothing but ε1 + ε2 is used: blankets of pairs have no formula here."""
        return PureReduction(local_epsilon=self.local_epsilon)

    @property
    def report_dtype(self) -> np.dtype[Any]:
        """A key, unsigned 16-bit, and what is said of it, 0 .. 2."""
        return _REPORT

    @cached_property
    def _fake_steps(self) -> NDArray[np.int64]:
        if not self.fakes:
            return np.full(self.keys, self.steps // 2, dtype=np.int64)
        return np.array(self.fakes, dtype=np.int64)

    @property
    def p_key(self) -> float:
        """Chance p1 of telling the truth of whether a key is owned."""
        return self.key_true / (self.key_true + self.key_other)

    @property
    def key_signal(self) -> float:
        """How much likelier an owned key is told to be present: 2·p1 - 1."""
        return (self.key_true - self.key_other) / (self.key_true + self.key_other)

    @property
    def value_signal(self) -> float:
        """How much of a value is left in the sign that is told: 2·p2 - 1."""
        return (self.value.true - self.value.other) / (self.value.true + self.value.other)

    @property
    def fake_values(self) -> Vector:
        """What is taken for the value of a key that is not owned, in -1 .. 1; shape (keys,)."""
        values: Vector = self._fake_steps / self.steps * 2 - 1
        return values

    def randomize(self, pairs: Pairs | Owned, rng: np.random.Generator) -> Reports:
        """
        Randomize one key of each person. Run by the user agent.

        As much is drawn for who owns the key as for who does not: the key, a step of the grid, an
        end of the range, the sign that is told of it, and whether the key is told truly.

        Args:
            pairs: Of n people; or their values as a table (n, keys), NaN where a key is not owned.
            rng: Source of randomness.

        Returns:
            n reports, fields key (uint16) and said (uint8).

        Raises:
            ValueRangeError: A key or a value is not one that the task allows.

        Cost: five integers a person; for one person, a pass over the pairs that it owns.
        """
        if not isinstance(pairs, Pairs):
            pairs = Pairs.of_table(pairs, self.keys)
        pairs.check_keys(self.keys)
        size = pairs.n_users
        keys = rng.integers(0, self.keys, size=size, dtype=np.int64)
        owned, values = pairs.look_up(keys, self.keys)
        step = np.where(owned, to_grid(values, self.steps, rng), self._fake_steps[keys])
        end = rng.integers(0, self.steps, size=size, dtype=np.int64) < step
        sign = self.value.respond(end.astype(np.int64), 2, rng)
        both = self.key_true + self.key_other
        truly = rng.integers(0, both, size=size, dtype=np.int64) < self.key_true
        reports = np.empty(size, dtype=_REPORT)
        reports["key"] = keys
        reports["said"] = np.where(owned == truly, MINUS + sign, ABSENT)
        return reports

    def valid(self, reports: Reports) -> NDArray[np.bool_]:
        """Say which reports are about a key and say one of three things. Run by the analyzer."""
        fine: NDArray[np.bool_] = (reports["key"] < self.keys) & (reports["said"] <= PLUS)
        return fine

    def tally(self, reports: Reports) -> Counts:
        """
        Count reports by key and by what they say. Run by the analyzer.

        Returns:
            Counts of shape (keys, 3): absent, present with -, present with +.

        Raises:
            ReportError: A report is not valid.
        """
        if not self.valid(reports).all():
            raise ReportError(f"a report is not about one of {self.keys} keys, or not of a kind")
        cells = reports["key"].astype(np.int64) * 3 + reports["said"]
        return np.bincount(cells, minlength=3 * self.keys).reshape(self.keys, 3)
