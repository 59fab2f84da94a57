"""
Randomized response whose probabilities are exact ratios of integers.

Every randomizer here says the truth with weight `true` and each other answer with weight
`other`. The two integers stand in the task; p and q everywhere else come from them, and never
from e^ε again.
"""

import math
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Context, Decimal
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from common.errors import TaskError
from common.task.specs import MAX_WEIGHT_SUM, MechanismSpec
from common.task.task import check_local_epsilon

_OTHER_WEIGHT: Final = 2**32
_EXACT: Final = Context(prec=60, rounding=ROUND_FLOOR)
_ONE_DOWN: Final = Decimal(1) - Decimal("1e-27")
"""
Takes e^ε down by far more than the error of a 60-digit exponential or logarithm, and by far less
than one unit of a weight below 2^63 is worth. (Its 27 digits fit the default context exactly.)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseWeights:
    """
    The odds true : other, with true / other ≤ e^(local epsilon) by construction.

    1 : 0 are the odds of reports without noise, whose local ε is infinite.
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
        Give the weights that come closest to e^local_epsilon from below.

        The ratio is ⌊2^32 · e^ε⌋ / 2^32, computed in 60-digit decimal arithmetic: a float
        e**eps * 2**32 exceeds the promise for half of all ε above 15. Short of the promise by
        a relative 2^-32 at most. An infinite ε gives the weights of reports without noise, 1 and 0.

        Raises:
            TaskError: local_epsilon is neither above 2^-32 and at most 20, nor infinite.
        """
        check_local_epsilon(local_epsilon)
        if math.isinf(local_epsilon):
            return cls(true=1, other=0)
        true = int(_EXACT.multiply(_promise(local_epsilon), _OTHER_WEIGHT))
        if true == _OTHER_WEIGHT:
            raise TaskError(
                f"local_epsilon is {local_epsilon}; below 2^-32 reports would carry no signal"
            )
        return cls(true=true, other=_OTHER_WEIGHT)

    @classmethod
    def of(cls, spec: MechanismSpec) -> Self:
        """Take them from what a task says."""
        return cls(true=spec.true_weight, other=spec.other_weight)

    def keeps_promise(self, local_epsilon: float) -> bool:
        """
        Say whether true / other ≤ e^local_epsilon; in 60 digits, and no if within 1e-27.

        An infinite ε promises nothing, and every weights keep it.
        """
        return odds_keep(self.true, self.other, local_epsilon)

    @property
    def local_epsilon(self) -> float:
        """ln(true / other), rounded up; infinite for reports without noise."""
        if self.other == 0:
            return math.inf
        return epsilon_of_odds(self.true, self.other)

    def total(self, answers: int) -> int:
        """
        Give the sum of the weights over all answers.

        Raises:
            TaskError: It does not stay below 2^63.
        """
        total = self.true + (answers - 1) * self.other
        if total > MAX_WEIGHT_SUM:
            raise TaskError(f"the sum of the weights is {total}; it must stay below 2^63")
        return total

    def respond(
        self, truth: NDArray[np.int64], answers: int, rng: np.random.Generator
    ) -> NDArray[np.int64]:
        """
        Answer each true value with exact randomized response. Run by the user agent.

        One bounded integer is drawn for each value: below `true` it says "tell the truth",
        above it names one of the other answers. Without noise there is nothing to draw.

        Args:
            truth: True answers, shape (n,), each in 0 .. answers-1.
            answers: How many answers there are, at least 2.
            rng: Where the integers come from.

        Returns:
            Answers, shape (n,), each in 0 .. answers-1.
        """
        if self.other == 0:
            return truth.copy()
        draw = rng.integers(0, self.total(answers), size=truth.shape, dtype=np.int64)
        other = (draw - self.true) // self.other
        return np.where(draw < self.true, truth, other + (other >= truth))


class OddsOfWeights:
    """
    A mechanism whose report gives away the odds of its weights, and no more; to be inherited.

    Why that is so, each mechanism says.
    """

    weights: ResponseWeights

    @property
    def local_epsilon(self) -> float:
        """ln(true / other), rounded up."""
        return self.weights.local_epsilon

    def keeps_promise(self, local_epsilon: float) -> bool:
        """Say whether true / other ≤ e^local_epsilon. Run by the user agent."""
        return self.weights.keeps_promise(local_epsilon)


def odds_keep(likelier: int, rarer: int, local_epsilon: float) -> bool:
    """
    Say whether likelier / rarer ≤ e^local_epsilon, for integers of up to 50 digits.

    Two random choices that are made apart have the product of their odds.
    """
    if local_epsilon == math.inf:
        return True
    return likelier <= _EXACT.multiply(_promise(local_epsilon), rarer)


def epsilon_of_odds(likelier: int, rarer: int) -> float:
    """Give ln(likelier / rarer), rounded up, for integers of up to 50 digits."""
    exact = _EXACT.ln(_EXACT.divide(likelier, rarer))
    nearest = float(exact)
    return nearest if Decimal(nearest) > exact else math.nextafter(nearest, math.inf)


def _promise(local_epsilon: float) -> Decimal:
    """Give e^local_epsilon, a relative 1e-27 too low."""
    return _EXACT.multiply(_EXACT.exp(Decimal(local_epsilon)), _ONE_DOWN)
