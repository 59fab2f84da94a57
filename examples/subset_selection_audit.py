"""What an audit knows of subset selection [YB18]: to import, like a file of audit/families/."""

from typing import Final

import numpy as np
from numpy.random import Generator

from examples.subset_selection import SubsetSelection
from shuffledp.audit.families.family import Families, ItemFamily, Items, SupportDistribution
from shuffledp.common.mechanisms.base import Reports, reports_of


class NamedItems(ItemFamily[SubsetSelection]):
    """A report names k of the d items, a dummy any k with equal probability."""

    @property
    def support(self) -> SupportDistribution:
        """The paper's probabilities; a report names two given items if both are among its k."""
        k, d = self.mechanism.size, self.task.domain_size
        own = k * self.power / (k * self.power + d - k)
        both = own * (k - 1) / (d - 1)
        other = both + (1 - own) * k / (d - 1)
        return SupportDistribution(own=own, other=other, dummy=k / d, both=both)

    def crafted(self, targets: Items, rng: Generator) -> Reports:
        """Name as many targets as a report holds, and then any other items."""
        others = np.setdiff1d(np.arange(self.task.domain_size), targets)
        items = np.sort(np.concatenate([targets, others])[: self.mechanism.size])
        return reports_of(self.mechanism.report_dtype, items=items[np.newaxis])

    def heaviest(self, r: int) -> float:
        """At most k targets."""
        return float(min(r, self.mechanism.size))


FAMILIES: Final[Families] = {SubsetSelection: NamedItems}
