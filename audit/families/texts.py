"""Reports on texts: noisy bits of a Bloom filter [EPK14], or a hashed prefix [WLJ19]."""

import itertools
from collections.abc import Iterator
from functools import cached_property
from hashlib import md5
from typing import Final, cast

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from shuffledp.audit.families.family import Families, Family, ReportPart
from shuffledp.common.mechanisms.base import Reports
from shuffledp.common.mechanisms.discovery.prefix_hashing import PrefixHashing
from shuffledp.common.mechanisms.rappor.rappor import Rappor
from shuffledp.common.messages.submission import Value
from shuffledp.common.task import specs
from shuffledp.user_agent.contribution import encoder_for

_MAX_TEXTS: Final = 24
"""Maximum number of texts searched for the pair whose bits differ most."""
_SECRET_BYTES: Final = 32
_DIVISOR: Final = 1000
_MIN_REPORTS: Final = 24_000
"""Minimum reports on a text; each permanent response takes ten microseconds."""


class NoisyBits(Family[Rappor]):
    """RAPPOR, with a permanent and an instantaneous response."""

    @cached_property
    def worst_values(self) -> tuple[tuple[Value, Value], ...]:
        """The two texts whose bits differ most, over all cohorts."""
        texts = self.task.labels[:_MAX_TEXTS] or tuple(f"t{number}" for number in range(_MAX_TEXTS))
        bits = {text: self.set_bits(text) for text in texts}
        pairs = itertools.combinations(texts, 2)
        return (max(pairs, key=lambda pair: int((bits[pair[0]] != bits[pair[1]]).sum())),)

    def report_parts(self, value: Value, reports: Reports) -> Iterator[ReportPart]:
        """Yield the cohorts, then each bit, whose distribution depends on the hashed bit."""
        spec, cohort = self.spec, reports["cohort"].astype(np.int64)
        even = np.full((1, spec.cohorts), 1 / spec.cohorts)
        yield ReportPart(name="cohorts", cells=cohort, chances=even)
        f = spec.permanent_weight / specs.PERMANENT_SUM
        p, q = (weight / specs.INSTANT_SUM for weight in (spec.unset_weight, spec.set_weight))
        shown = np.array([(1 - f) * p + f * (p + q) / 2, (1 - f) * q + f * (p + q) / 2])
        chances = np.stack([1 - shown, shown], axis=1)
        bits = np.unpackbits(reports["bits"], axis=1, count=spec.bits, bitorder="little")
        hashed = self.set_bits(str(value))[cohort].astype(np.int64)
        for bit in range(spec.bits):
            cells = bits[:, bit].astype(np.int64)
            yield ReportPart(name="bits", cells=cells, chances=chances, which=hashed[:, bit])

    def set_bits(self, text: str) -> NDArray[np.bool_]:
        """
        Return which bits a text sets in each cohort; shape (cohorts, bits).

        The bit of the label, or those whose numbers are bytes (pairs above 256 bits) of the MD5 of
        big-endian cohort and text, as in the public client.
        """
        spec = self.spec
        bits = np.zeros((spec.cohorts, spec.bits), dtype=np.bool_)
        if spec.encoding == "labels":
            bits[:, self.task.labels.index(text)] = True
            return bits
        width = 1 if spec.bits <= 256 else 2  # noqa: PLR2004  # the values of one byte
        for cohort in range(spec.cohorts):
            message = cohort.to_bytes(4, "big") + text.encode()
            digest = md5(message, usedforsecurity=False).digest()[: width * spec.hashes]
            bits[cohort, np.frombuffer(digest, dtype=f"<u{width}").astype(int) % spec.bits] = True
        return bits

    def reports_each(self, games: int) -> int:
        return int(max(_MIN_REPORTS, games // _DIVISOR) // self.spec.hashes)

    def draw(self, value: Value, count: int, rng: Generator) -> Reports:
        """Draw reports of users with different secrets, hence different permanent responses."""
        secrets = [rng.bytes(_SECRET_BYTES) for _ in range(count)]
        responses = self.mechanism.permanent([cast("str", value)] * count, secrets)
        return self.mechanism.randomize(responses, rng)

    def less_revealing(self, local_epsilon: str) -> str:
        return "Raise permanent or unset, or lower set: they determine what a report reveals"


class HashedPrefix(Family[PrefixHashing]):
    """Local hashing of a random prefix, as in PEM [WLJ19]."""

    @property
    def worst_values(self) -> tuple[tuple[Value, Value], ...]:
        """Any two that differ in their first byte."""
        whole = self.spec.encoding == "code"
        return (("0", str(256**self.spec.code_bytes - 1)),) if whole else (("a", "b"),)

    def report_parts(self, value: Value, reports: Reports) -> Iterator[ReportPart]:
        """Yield uniform levels and seed elements, then buckets relative to the value's."""
        spec, mechanism = self.spec, self.mechanism
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


FAMILIES: Final[Families] = {Rappor: NoisyBits, PrefixHashing: HashedPrefix}
