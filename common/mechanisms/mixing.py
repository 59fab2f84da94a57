"""A public bijection that scrambles 64-bit words, alike in all versions and on all machines."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

_MULTIPLIER_1: Final = np.uint64(0xFF51AFD7ED558CCD)
_MULTIPLIER_2: Final = np.uint64(0xC4CEB9FE1A85EC53)
_SHIFT: Final = np.uint64(33)


def mix(word: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Scramble words with the 64-bit finalizer of MurmurHash3; multiplication wraps."""
    word = (word ^ (word >> _SHIFT)) * _MULTIPLIER_1
    word = (word ^ (word >> _SHIFT)) * _MULTIPLIER_2
    return word ^ (word >> _SHIFT)
