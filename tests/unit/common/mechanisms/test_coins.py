import numpy as np
import pytest

from common.mechanisms.sampling import exact_coins
from tests.support.mechanisms import Scripted

_ALL = np.arange(2**16)


@pytest.mark.parametrize(("weight", "total"), [(1, 3), (2, 7), (5, 6), (1, 2), (0, 5), (7, 7)])
def test_a_coin_has_exactly_its_chance(weight: int, total: int) -> None:
    """Over every pair of draws, a 16-bit word and an integer below the total."""
    heads = 0
    for second in range(total):
        decided = 2**16 * weight % total == 0
        rng = Scripted(_ALL) if decided else Scripted(_ALL, [second])
        heads += int(exact_coins(weight, total, _ALL.shape, rng).sum())

    assert weight * 2**16 == heads


def test_tiny_chances_are_exact() -> None:
    """1 in 2^62: only the word 0 is undecided, and only integers below 2^16 are heads."""
    for second, heads in [(0, 1), (2**16 - 1, 1), (2**16, 0), (2**62 - 1, 0)]:
        assert heads == exact_coins(1, 2**62, _ALL.shape, Scripted(_ALL, [second])).sum()
