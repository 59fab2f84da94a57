"""
Randomized response whose probabilities are exact ratios of integers.

A randomizer gives the true answer with weight `true` and each other answer with weight `other`. A
task states the two integers; p and q are computed from them, never from e^ε.
"""

import math
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import ClassVar, Final, Self

import numpy as np
from numpy.typing import NDArray

from shuffledp.common.errors import TaskError
from shuffledp.common.mechanisms.arguments import CheckedArguments
from shuffledp.common.task.specs import MAX_WEIGHT_SUM, MechanismSpec, NumberSpec, OpenSpec
from shuffledp.common.task.task import check_local_epsilon

_OTHER_WEIGHT: Final = 2**32
_ROUND_DOWN: Final = Context(prec=60, rounding=ROUND_FLOOR)
_ROUND_UP: Final = Context(prec=60, rounding=ROUND_CEILING)
_ONE_DOWN: Final = Decimal(1) - Decimal("1e-27")
_ONE_UP: Final = Decimal(1) + Decimal("1e-27")
"""Factors for a lower bound on e^ε and an upper bound on a logarithm: they shift both by far more
than the error of 60 digits, and by far less than one unit of a weight below 2^63. Both have at most
28 digits, so the default context adds exactly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseWeights:
    """
    The odds true : other, with true / other ≤ e^(local epsilon) by construction.

    The odds 1 : 0 belong to reports without noise, whose local ε is infinite.
    """

    true: int
    other: int

    def __post_init__(self) -> None:
        noiseless = (self.true, self.other) == (1, 0)
        if not (noiseless or 1 <= self.other < self.true <= MAX_WEIGHT_SUM):
            raise TaskError(
                f"the weights are {self.true} and {self.other}; they must satisfy "
                f"1 <= other < true <= {MAX_WEIGHT_SUM}, or be 1 and 0 for reports without noise"
            )

    @classmethod
    def for_epsilon(cls, local_epsilon: float) -> Self:
        """
        Return the weights whose ratio is closest to e^local_epsilon from below.

        The ratio is ⌊2^32 · e^ε⌋ / 2^32, at most a relative 2^-32 too small. It is computed in
        60-digit decimal arithmetic: in floats e**eps * 2**32 exceeds the promise for half of all ε
        above 15. An infinite ε gives 1 and 0, the weights of reports without noise. Raises
        TaskError if local_epsilon is neither above 2^-32 and at most 20, nor infinite.
        """
        local_epsilon = check_local_epsilon(local_epsilon)
        if math.isinf(local_epsilon):
            return cls(true=1, other=0)
        true = int(_ROUND_DOWN.multiply(_promise(local_epsilon), _OTHER_WEIGHT))
        if true == _OTHER_WEIGHT:
            raise TaskError(
                f"local_epsilon is {local_epsilon}; below 2^-32 reports would carry no signal"
            )
        return cls(true=true, other=_OTHER_WEIGHT)

    @classmethod
    def of(cls, spec: MechanismSpec | NumberSpec | OpenSpec) -> Self:
        """Return the weights of a task's mechanism."""
        return cls(true=spec.true_weight, other=spec.other_weight)

    def keeps_promise(self, local_epsilon: float) -> bool:
        """Check true / other ≤ e^local_epsilon exactly; see `odds_keep`. Run by the user agent."""
        return odds_keep(self.true, self.other, local_epsilon)

    @property
    def local_epsilon(self) -> float:
        """ln(true / other), rounded up; infinite for reports without noise."""
        return epsilon_of_odds(self.true, self.other)

    def total(self, answers: int) -> int:
        """Return the sum of the weights over all answers; raise TaskError if it reaches 2^63."""
        total = self.true + (answers - 1) * self.other
        if total > MAX_WEIGHT_SUM:
            raise TaskError(f"the sum of the weights is {total}; it must stay below 2^63")
        return total

    def respond(
        self, truth: NDArray[np.int64], answers: int, rng: np.random.Generator
    ) -> NDArray[np.int64]:
        """
        Apply exact randomized response to each true answer. Run by the user agent.

        Draws one integer below the sum of the weights for each true answer: an integer below `true`
        selects the truth, any other integer another answer. Without noise nothing is drawn.

        `truth` and the result have the shape (n,), each in 0 .. answers-1.
        """
        if self.other == 0:
            return truth.copy()
        draw = rng.integers(0, self.total(answers), size=truth.shape, dtype=np.int64)
        other = (draw - self.true) // self.other
        return np.where(draw < self.true, truth, other + (other >= truth))


class OddsOfWeights(CheckedArguments):
    """Base class of mechanisms whose weights bound their local ε; each subclass explains why."""

    FACTORS: ClassVar[int]
    """How often the largest ratio of two values' probabilities has the factor true / other."""

    weights: ResponseWeights

    @property
    def local_epsilon(self) -> float:
        """FACTORS · ln(true / other), rounded up; infinite for reports without noise."""
        return epsilon_of_odds(self.weights.true, self.weights.other, times=self.FACTORS)

    def keeps_promise(self, local_epsilon: float) -> bool:
        """Check true / other ≤ e^(local_epsilon / FACTORS) exactly. Run by the user agent."""
        return self.weights.keeps_promise(local_epsilon / self.FACTORS)


def odds_keep(likelier: int, rarer: int, local_epsilon: float) -> bool:
    """
    Check likelier / rarer ≤ e^local_epsilon; all odds keep an infinite ε.

    The integers have up to 50 digits. Also returns False within a relative 1e-27 of equality. For
    two independent random choices the caller multiplies their odds.
    """
    if local_epsilon == math.inf:
        return True
    return likelier <= _ROUND_DOWN.multiply(_promise(local_epsilon), rarer)


def epsilon_of_odds(likelier: int, rarer: int, times: int = 1) -> float:
    """Return times · ln(likelier / rarer), rounded up; infinite if rarer is 0."""
    if rarer == 0:
        return math.inf
    ratio = _ROUND_UP.ln(_ROUND_UP.divide(likelier, rarer))
    bound = _ROUND_UP.multiply(_ROUND_UP.multiply(ratio, times), _ONE_UP)
    nearest = float(bound)
    return nearest if Decimal(nearest) >= bound else math.nextafter(nearest, math.inf)


def _promise(local_epsilon: float) -> Decimal:
    """Return e^local_epsilon, a relative 1e-27 too low."""
    return _ROUND_DOWN.multiply(_ROUND_DOWN.exp(Decimal(local_epsilon)), _ONE_DOWN)
