"""Reports on ordered items: a place near the item [LWLWLS20], or its node at each level."""

from typing import Final, cast

import numpy as np

from audit.families.family import Families, ItemFamily, Items, SupportDistribution
from common.mechanisms.base import Reports, Vector
from common.mechanisms.hierarchy import Hierarchy
from common.mechanisms.square_wave import SquareWave
from common.task.named_dummies import LevelDummies


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
        """Return the places."""
        places = reports["item"].astype(np.int64)
        return places, self.chances_around(self._places, value, self._width)


class NodePerLevel(ItemFamily[Hierarchy]):
    """True nodes at each level, hidden by dummies alone."""

    supports_items = False

    @property
    def _level_shares(self) -> Vector:
        """Share of each level among all dummies."""
        weights = np.array(cast("LevelDummies", self.task.dummies).levels, dtype=np.float64)
        return np.asarray(weights / weights.sum())

    @property
    def support(self) -> SupportDistribution:
        """The first and the last item share no node."""
        dummy = float(self._level_shares @ (1 / np.array(self.task.level_sizes)))
        return SupportDistribution(own=1.0, other=0.0, dummy=dummy, far_only=True)

    def place_chances(self, reports: Reports, value: int | None) -> tuple[Items, Vector] | None:
        """Return the nodes of dummies; users' are all true."""
        return None if value is not None else (reports["item"].astype(np.int64), self.dummy_places)

    def level_of(self, reports: Reports) -> Items:
        """Return the level of each node."""
        return self.mechanism.level_of(reports)

    @property
    def dummy_places(self) -> Vector:
        """All nodes of one level are equally likely."""
        sizes = np.array(self.task.level_sizes)
        return np.repeat(self._level_shares / sizes, sizes)


FAMILIES: Final[Families] = {
    SquareWave: NearbyPlace,
    Hierarchy: NodePerLevel,
}
