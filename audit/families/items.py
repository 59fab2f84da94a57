"""
Reports that name an item [KBR16], hold a bit for each or name its hash [WBLJ17].

Reports on ordered items name a place near the item [LWLWLS20].
"""

from abc import abstractmethod
from typing import Final, TypeVar

import numpy as np
from numpy.random import Generator

from shuffledp.audit.families.family import Families, ItemFamily, Items, SupportDistribution
from shuffledp.common.mechanisms.base import Reports, Vector, reports_of
from shuffledp.common.mechanisms.bits import pack
from shuffledp.common.mechanisms.hashing.local_hashing import LocalHashing
from shuffledp.common.mechanisms.hashing.string_hashing import StringHashing
from shuffledp.common.mechanisms.randomized_response import Grr
from shuffledp.common.mechanisms.signed import Signed
from shuffledp.common.mechanisms.square_wave import SquareWave
from shuffledp.common.mechanisms.unary import OptimizedUnary, SymmetricUnary, UnaryEncoding
from shuffledp.common.messages.submission import plain_reports

AnyHash = TypeVar("AnyHash", LocalHashing, StringHashing)

_TRIED_REPORTS: Final = 2**18
"""Number of reports of a string hash that an attacker tries: a minute on a phone."""
_MAX_PAIRS: Final = 20_000_000
"""Maximum number of pairs of report and candidate string to hash."""


class NamedItem(ItemFamily[Grr]):
    """Randomized response over the items."""

    @property
    def support(self) -> SupportDistribution:
        return SupportDistribution.of_response(self.power, self.task.domain_size)

    def place_chances(self, reports: Reports, value: int | None) -> tuple[Items, Vector]:
        return reports["item"].astype(np.int64), self.chances_around(self.task.domain_size, value)

    def crafted(self, targets: Items, rng: Generator) -> Reports:
        return plain_reports(targets[:1])

    def heaviest(self, r: int) -> float:
        return 1.0


class SignedItem(NamedItem):
    """Randomized response among clusters; a negative report counts as -w."""

    mechanism: Signed

    def negative(self, targets: Items) -> Reports:
        return plain_reports(targets[:1] + self.task.domain_size)

    def spread(self, r: int) -> float:
        clusters = self.mechanism.clusters
        return float(max(i + clusters.negative_weight * j for i, j, _ in clusters.clusters))

    def counted(self, reports: Reports) -> Vector:
        """Return 1, or -w for a negative report."""
        negative = reports["item"] >= self.task.domain_size
        return np.where(negative, -float(self.mechanism.clusters.negative_weight), 1.0)

    def supported(self, reports: Reports, targets: Items) -> Vector:
        named = np.isin(reports["item"] % self.task.domain_size, targets)
        return named * self.counted(reports)


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
        bits = np.zeros((1, self.task.domain_size), dtype=np.uint8)
        bits[0, targets] = 1
        return self._packed(bits)

    def uniform(self, count: int, rng: Generator) -> Reports:
        """Set each bit with probability one half."""
        size = (count, self.task.domain_size)
        return self._packed(rng.integers(0, 2, size=size, dtype=np.uint8))

    def uniform_weight(self, r: int) -> float:
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


class HashedItem(ItemFamily[AnyHash]):
    """Randomized response over the buckets of a hash with a fresh seed."""

    @property
    def _buckets(self) -> int:
        return self.task.item_mechanism.buckets

    @property
    def support(self) -> SupportDistribution:
        """Of randomized response; two items share a bucket with probability 1/g."""
        return SupportDistribution.of_response(self.power, self._buckets, other=1 / self._buckets)

    def place_chances(self, reports: Reports, value: int | None) -> tuple[Items, Vector]:
        """Return the buckets, relative to the value's."""
        named = reports["bucket"].astype(np.int64)
        if value is None:
            return named, self.chances_around(self._buckets, None)
        named = (named - self.mechanism.hashed(reports, value)) % self._buckets
        return named, self.chances_around(self._buckets, 0)


class FieldHash(HashedItem[LocalHashing]):
    """A hash over a finite field."""

    @property
    def n_seeds(self) -> int:
        """Every vector of the field, 0 included."""
        return self.mechanism.family.seeds

    def crafted(self, targets: Items, rng: Generator) -> Reports:
        """
        Search the hash family; one transform computes the gain of every cell.

        Seed 0 raises all items equally. Rows follow the canonical seeds, with leading nonzero digit
        1.
        """
        mechanism, family = self.mechanism, self.mechanism.family
        values = np.full(mechanism.domain_size, -len(targets) / mechanism.domain_size)
        values[targets] += 1.0
        gains = mechanism.channel(1.0).incidence.forward(values).reshape(family.rows, family.q)
        row, bucket = divmod(int(gains[1:].argmax()), family.q)
        powers = family.q ** np.arange(family.t)
        seeds = np.concatenate([np.arange(power, 2 * power) for power in powers])
        buckets = np.array([bucket])
        return reports_of(mechanism.report_dtype, seed=seeds[[row]], bucket=buckets)


class StringHash(HashedItem[StringHashing]):
    """A hash of strings."""

    @property
    def n_seeds(self) -> int:
        return 2**64

    @property
    def most_users(self) -> int:  # type: ignore[override]
        """As many as can be hashed with every string."""
        pairs = self.task.domain_size * (1 + self.task.dummies.expected_per_user)
        return max(1000, min(super().most_users, int(_MAX_PAIRS / pairs)))

    def crafted(self, targets: Items, rng: Generator) -> Reports:
        """Try uniform seeds and buckets."""
        tried = self.mechanism.dummies(_TRIED_REPORTS, rng)
        best = int(self.supported(tried, targets).argmax())
        return tried[best : best + 1]


class NearbyPlace(ItemFamily[SquareWave]):
    """The square wave: the `width` places around a value have weight e^ε each."""

    supports_items = False

    @property
    def _places(self) -> int:
        return max(self.task.domain_size, self.task.item_mechanism.buckets)

    @property
    def _width(self) -> int:
        return self._places - self.task.domain_size + 1

    @property
    def support(self) -> SupportDistribution:
        """The first and the last item may share places."""
        power, places, width = self.power, self._places, self._width
        total, shared = width * power + self.task.domain_size - 1, max(0, 2 * width - places)
        own, far = width * power / total, (shared * power + (width - shared)) / total
        return SupportDistribution(own=own, other=far, dummy=width / places, far_only=True)

    def place_chances(self, reports: Reports, value: int | None) -> tuple[Items, Vector]:
        places = reports["item"].astype(np.int64)
        return places, self.chances_around(self._places, value, self._width)


FAMILIES: Final[Families] = {
    Grr: NamedItem,
    Signed: SignedItem,
    SymmetricUnary: SymmetricBits,
    OptimizedUnary: OptimizedBits,
    LocalHashing: FieldHash,
    StringHashing: StringHash,
    SquareWave: NearbyPlace,
}
