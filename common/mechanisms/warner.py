"""Warner's randomized response for a bit [War65]: GRR over two items."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Self

from common.errors import TaskError
from common.mechanisms.grr import Grr
from common.mechanisms.response_weights import ResponseWeights

ITEMS: Final = 2


@dataclass(frozen=True)
class Warner(Grr):
    """Tell the truth about a bit with weight `true`, the opposite with weight `other`."""

    def __post_init__(self) -> None:
        if self.domain_size != ITEMS:
            raise TaskError(
                f"domain_size is {self.domain_size}; Warner's randomized response is for a bit, "
                "and it must be 2"
            )

    @classmethod
    def keeping(cls, chance: Fraction) -> Self:
        """Tell the truth with this chance, exactly: ε = ln(p / (1-p)); see `keep_weights`."""
        return cls(ITEMS, keep_weights(chance))


def keep_weights(chance: Fraction) -> ResponseWeights:
    """
    Give the integer weights of a bit that is kept with chance p.

    Args:
        chance: p, above 1/2 and at most 1; a fraction, such as Fraction("0.75"), so that the
            weights are exact.

    Raises:
        TaskError: p is not above 1/2 and at most 1, or has no weights below 2^63.
    """
    if not ITEMS * chance > 1 or chance > 1:
        raise TaskError(f"a bit is kept with chance {chance}; it must be above 1/2 and at most 1")
    return ResponseWeights(true=chance.numerator, other=chance.denominator - chance.numerator)
