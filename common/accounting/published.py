"""
Bounds that papers claim, one function a theorem, each refusing what lies outside its range.

Errors of print are corrected, and the name of the bound says which.

They are kept beside the tight figure so that a reader can see what each paper would have claimed;
no guarantee rests on them.
"""

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from common.accounting.crowd import Crowd
from common.errors import AccountingError, BoundRangeError
from common.mechanisms.reduction import MatchCountReduction
from common.protocols import PublishedBound


def od_hp_theorem_1(reduction: MatchCountReduction, crowd: Crowd, delta: float) -> float:
    """
    Give the central ε that OD-HP's Theorem 1 claims against the analyzer [CC24].

    ε = √(14·h·ln(4/δ) / (|M| + γ(n-1) - √(2γ(n-1)·ln(2/δ)) - 1)), for h buckets, |M| dummies and n
    honest users. It rests on [BBGN19], whose proof needs ε ≤ 1 and a blanket of at
    least 27·h/ε reports.

    Raises:
        AccountingError: delta is not between 0 and 1.
        BoundRangeError: The claim lies outside ε ≤ 1, or the blanket is too small.
    """
    if not 0 < delta < 1:
        raise AccountingError(f"delta is {delta}; it must lie strictly between 0 and 1")
    expected = reduction.blanket * crowd.others
    blanket = crowd.dummies + expected - math.sqrt(2 * expected * math.log(2 / delta)) - 1
    if blanket <= 0:
        raise BoundRangeError(
            f"Theorem 1 needs a blanket of more than one report; it counts {max(blanket, 0):.1f}"
        )
    epsilon = math.sqrt(14 * reduction.answers * math.log(4 / delta) / blanket)
    if epsilon > 1:
        raise BoundRangeError(f"Theorem 1 holds for ε ≤ 1; here it would claim {epsilon:.3g}")
    needed = 27 * reduction.answers / epsilon
    if blanket < needed:
        raise BoundRangeError(
            f"Theorem 1 needs a blanket of {needed:.0f} reports at ε = {epsilon:.3g}; "
            f"it counts {blanket:.0f}"
        )
    return epsilon


Bound = Callable[[MatchCountReduction, Crowd, float], float]

PUBLISHED: Final[Mapping[PublishedBound, tuple[str, Bound]]] = MappingProxyType(
    {
        "od-hp-theorem-1": (
            "OD-HP Theorem 1 [CC24], with its lost roots restored and a fresh seed for every dummy",
            od_hp_theorem_1,
        )
    }
)
"""What each protocol's row in the table of compositions refers to, with its name in words."""
