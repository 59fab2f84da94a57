"""A public permutation of the points of a field, the same in every version and on every machine."""

import hashlib
from dataclasses import dataclass
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


_LABEL: Final = b"shuffledp v1 placement"
_ROUNDS: Final = 4


@dataclass(frozen=True)
class Placement:
    """
    A permutation of 0 .. size-1: a four-round Feistel network [LR88] on the next even power of two,
    repeated until the result is inside (cycle walking [BR02]); at most four steps on average.

    The round function is the 64-bit finalizer of MurmurHash3 keyed by SHA-256(label ‖ nonce).
    """

    size: int
    nonce: bytes

    def __call__(self, items: NDArray[np.int64]) -> NDArray[np.int64]:
        """
        Place items. Run by the user agent for one item, by the analyzer for all.

        Args:
            items: Shape (n,), each in 0 .. size-1.

        Returns:
            Distinct points for distinct items, shape (n,), each in 0 .. size-1.
        """
        keys = np.frombuffer(hashlib.sha256(_LABEL + self.nonce).digest(), dtype="<u8")
        half = np.uint64(max(1, ((self.size - 1).bit_length() + 1) // 2))
        points = self._network(items.astype(np.uint64), keys, half)
        while (outside := points >= self.size).any():
            points[outside] = self._network(points[outside], keys, half)
        return points.astype(np.int64)

    @staticmethod
    def _network(
        points: NDArray[np.uint64], keys: NDArray[np.uint64], half: np.uint64
    ) -> NDArray[np.uint64]:
        mask = (np.uint64(1) << half) - np.uint64(1)
        left, right = points >> half, points & mask
        for key in keys[:_ROUNDS]:
            left, right = right, left ^ (mix(right ^ key) & mask)
        return (left << half) | right
