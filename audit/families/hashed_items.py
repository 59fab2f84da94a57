"""Reports that name a seed and the bucket of a hashed item [WBLJ17]."""

from typing import Final, TypeVar

import numpy as np
from numpy.random import Generator

from audit.families.family import Families, ItemFamily, Items, SupportDistribution
from common.mechanisms.base import Reports, Vector, reports_of
from common.mechanisms.hashing.local_hashing import LocalHashing
from common.mechanisms.hashing.string_hashing import StringHashing

AnyHash = TypeVar("AnyHash", LocalHashing, StringHashing)

_TRIED_REPORTS: Final = 2**18
"""Number of reports of a string hash that an attacker tries: a minute on a phone."""
_MAX_PAIRS: Final = 20_000_000
"""Maximum number of pairs of report and candidate string to hash."""


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
        named, chances = reports["bucket"].astype(np.int64), np.ones(self._buckets)
        if value is not None:
            own = self.support.own
            named = (named - self.mechanism.hashed(reports, value)) % self._buckets
            chances[:] = (1 - own) / (self._buckets - 1)
            chances[0] = own
        return named, chances


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
        del rng
        mechanism, family = self.mechanism, self.mechanism.family
        values = np.full(mechanism.domain_size, -len(targets) / mechanism.domain_size)
        values[targets] += 1.0
        gains = mechanism.channel(1.0).incidence.forward(values).reshape(family.rows, family.q)
        row, bucket = divmod(int(gains[1:].argmax()), family.q)
        digit = 0
        while row >= family.q**digit:
            row -= family.q**digit
            digit += 1
        seed, buckets = np.array([family.q**digit + row]), np.array([bucket])
        return reports_of(mechanism.report_dtype, seed=seed, bucket=buckets)


class StringHash(HashedItem[StringHashing]):
    """A hash of strings."""

    @property
    def n_seeds(self) -> int:
        """Every integer of 64 bits."""
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


FAMILIES: Final[Families] = {
    LocalHashing: FieldHash,
    StringHashing: StringHash,
}
