"""Reports that name one item [KBR16], also among clusters of positive and negative reports."""

from typing import Final

import numpy as np
from numpy.random import Generator

from audit.families.family import Families, ItemFamily, Items, SupportDistribution
from common.mechanisms.base import Reports, Vector
from common.mechanisms.randomized_response import Grr
from common.mechanisms.signed import Signed
from common.messages.submission import plain_reports


class NamedItem(ItemFamily[Grr]):
    """Randomized response over the items."""

    @property
    def support(self) -> SupportDistribution:
        """Of randomized response."""
        return SupportDistribution.of_response(self.power, self.task.domain_size)

    def place_chances(self, reports: Reports, value: int | None) -> tuple[Items, Vector]:
        """Return the named items."""
        chances = np.ones(self.task.domain_size)
        if value is not None:
            own = self.support.own
            chances[:] = (1 - own) / (self.task.domain_size - 1)
            chances[value] = own
        return reports["item"].astype(np.int64), chances

    def crafted(self, targets: Items, rng: Generator) -> Reports:
        """Name one target."""
        del rng
        return plain_reports(targets[:1])

    def heaviest(self, r: int) -> float:
        """One item, however many targets there are."""
        del r
        return 1.0


class SignedItem(NamedItem):
    """Randomized response among clusters; a negative report counts as -w."""

    mechanism: Signed

    def negative(self, targets: Items) -> Reports:
        """Name one target negatively."""
        return plain_reports(targets[:1] + self.task.domain_size)

    def spread(self, r: int) -> float:
        """Return the range of a cluster's weight."""
        del r
        clusters = self.mechanism.clusters
        return float(max(i + clusters.negative_weight * j for i, j, _ in clusters.clusters))

    def counted(self, reports: Reports) -> Vector:
        """Return 1, or -w for a negative report."""
        negative = reports["item"] >= self.task.domain_size
        return np.where(negative, -float(self.mechanism.clusters.negative_weight), 1.0)

    def supported(self, reports: Reports, targets: Items) -> Vector:
        """Return what each report counts as if it names a target."""
        named = np.isin(reports["item"] % self.task.domain_size, targets)
        return named * self.counted(reports)


FAMILIES: Final[Families] = {Grr: NamedItem, Signed: SignedItem}
