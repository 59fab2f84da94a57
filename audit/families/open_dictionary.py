"""Reports that name the length of a prefix, a seed and the bucket of the hashed prefix."""

from collections.abc import Iterator
from functools import cached_property
from typing import Final

import numpy as np

from audit.families.family import Families, Family, ReportPart
from common.mechanisms.base import Reports
from common.mechanisms.discovery.prefix_hashing import PrefixHashing
from common.messages.submission import Value
from common.task.specs import OpenSpec, spec_as
from user_agent.contribution import encoder_for


class HashedPrefix(Family[PrefixHashing]):
    """Local hashing of a random prefix, as in PEM [WLJ19]."""

    @cached_property
    def _spec(self) -> OpenSpec:
        return spec_as(self.task.mechanism, OpenSpec)

    @property
    def worst_values(self) -> tuple[tuple[Value, Value], ...]:
        """Any two that differ in their first byte."""
        whole = self._spec.encoding == "code"
        return (("0", str(256**self._spec.code_bytes - 1)),) if whole else (("a", "b"),)

    def report_parts(self, value: Value, reports: Reports) -> Iterator[ReportPart]:
        """Yield uniform levels and seed elements, then buckets relative to the value's."""
        spec, mechanism = self._spec, self.mechanism
        seeds = [("seeds", element, spec.buckets) for element in reports["seed"].T]
        for name, cells, size in (("levels", reports["level"], mechanism.levels), *seeds):
            even = np.full((1, size), 1 / size)
            yield ReportPart(name=name, cells=cells.astype(np.int64), chances=even)
        held = encoder_for(self.task, None)(value, np.random.default_rng(0))
        hashed = mechanism.hashed(reports, np.repeat(held, len(reports), axis=0))
        chances = np.full((1, spec.buckets), float(spec.other_weight))
        chances[0, 0] = spec.true_weight
        cells = (reports["bucket"] - hashed) % spec.buckets
        yield ReportPart(name="buckets", cells=cells, chances=chances / chances.sum())


FAMILIES: Final[Families] = {PrefixHashing: HashedPrefix}
