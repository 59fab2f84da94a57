"""Reports that hold a bit for each item [WBLJ17]."""

from abc import abstractmethod
from typing import Final

import numpy as np
from numpy.random import Generator

from audit.families.family import Families, ItemFamily, Items, SupportDistribution
from common.mechanisms.base import Reports, reports_of
from common.mechanisms.bits import pack
from common.mechanisms.unary import OptimizedUnary, SymmetricUnary, UnaryEncoding


class BitPerItem(ItemFamily[UnaryEncoding]):
    """Independent bits, of which the user's item has another probability than all others."""

    @property
    @abstractmethod
    def _chances(self) -> tuple[float, float]:
        """Probability that the bit of the user's item is set, and that another is."""

    @property
    def support(self) -> SupportDistribution:
        """A dummy's bits are those of other items."""
        own, other = self._chances
        return SupportDistribution(own=own, other=other, dummy=other, both=own * other)

    def _packed(self, bits: np.ndarray) -> Reports:
        return reports_of(self.mechanism.report_dtype, bits=pack(bits))

    def crafted(self, targets: Items, rng: Generator) -> Reports:
        """Set the bits of all targets."""
        del rng
        bits = np.zeros((1, self.task.domain_size), dtype=np.uint8)
        bits[0, targets] = 1
        return self._packed(bits)

    def uniform(self, count: int, rng: Generator) -> Reports:
        """Set each bit with probability one half."""
        size = (count, self.task.domain_size)
        return self._packed(rng.integers(0, 2, size=size, dtype=np.uint8))

    def uniform_weight(self, r: int) -> float:
        """Half of the targets."""
        return r / 2


class SymmetricBits(BitPerItem):
    """Bits that are flipped with one probability."""

    @property
    def _chances(self) -> tuple[float, float]:
        return 1 / (1 + self.power**-0.5), 1 / (self.power**0.5 + 1)


class OptimizedBits(BitPerItem):
    """Bits of which the user's is a fair coin."""

    @property
    def _chances(self) -> tuple[float, float]:
        return 0.5, 1 / (self.power + 1)


FAMILIES: Final[Families] = {
    SymmetricUnary: SymmetricBits,
    OptimizedUnary: OptimizedBits,
}
