"""All other bounds for a mechanism, anonymity set and δ, for `account --compare`."""

from typing import Final

from common.accounting.anonymity_set import AnonymitySet
from common.accounting.clones import clones_2021, clones_2023, clones_with_a_coin
from common.accounting.published import PUBLISHED, Bound, BoundSetting, SettingBound
from common.accounting.reference.variation_ratio import certified_variation_ratio, variation_ratio
from common.errors import BoundRangeError
from common.mechanisms.reduction import MatchCountReduction


def _asked(bound: SettingBound) -> Bound:
    """Apply a paper's bound to uniform dummies and a shuffler that only permutes."""
    return lambda reduction, crowd, delta: bound(
        BoundSetting(reduction=reduction, crowd=crowd, delta=delta)
    )


_OF_EACH_ITEM: Final = frozenset({"aue", "sbin", "sageo"})
"""Bounds for dummies of each item, which are not compared here."""
_OF_PAPERS: Final = tuple(
    (name, _asked(bound)) for key, (name, bound) in PUBLISHED.items() if key not in _OF_EACH_ITEM
)

COMPARED: Final[tuple[tuple[str, Bound], ...]] = (
    *_OF_PAPERS,
    ("clones [FMT21], numeric, any randomizer, without dummies", clones_2021),
    (
        "clones [FMT23], numeric, without dummies; not proven for every randomizer",
        clones_2023,
    ),
    ("clones [FMT21] with [FMT23]'s coin, without dummies; proven for all", clones_with_a_coin),
    ("variation ratio [WPL+23], numeric, without dummies; not proven", variation_ratio),
    ("what is proven of the variation ratio, without dummies", certified_variation_ratio),
)
"""Every bound shown beside the tight one, with its full name."""


def compare(
    reduction: MatchCountReduction, crowd: AnonymitySet, delta: float
) -> list[tuple[str, float | str]]:
    """
    Evaluate every other bound. Run by `shuffledp account`.

    Returns:
        In the order of COMPARED: the bound's name, and its central ε or, outside the range of its
        theorem,
        the reason. The tight figure is not included.

    Raises:
        AccountingError: delta is outside its range.

    Cost: three numeric searches, together below a second at 10^9 users.
    """
    answers: list[tuple[str, float | str]] = []
    for name, bound in COMPARED:
        try:
            answers.append((name, bound(reduction, crowd, delta)))
        except BoundRangeError as error:
            answers.append((name, str(error)))
    return answers
