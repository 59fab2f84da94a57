"""
RAPPOR: texts as bits of a Bloom filter, with noise for good and noise anew [EPK14].

A person belongs to a cohort j of m for good. Its text sets h of k bits there (`bloom.py`), or the
one bit of a label. The permanent response replaces a bit by a fair coin with chance f, once and for
all (`permanent.py`). A report shows an unset permanent bit as set with chance p, a set one with
chance q, anew each time (`rappor_chances.py` has what comes of the three).

Four variants of the paper are one class: without noise anew (p = 0, q = 1) a report is the
permanent response, "one-time"; with a bit a label, one hash and one cohort it is "basic".
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from common.errors import ReportError, TaskError, ValueRangeError
from common.mechanisms.base import Counts, Reports
from common.mechanisms.rappor import bloom
from common.mechanisms.rappor import permanent_response as permanent
from common.mechanisms.rappor.permanent_response import Packed
from common.mechanisms.rappor.probabilities import Chance, RapporProbabilities
from common.mechanisms.reduction import PureReduction, Reduction
from common.task.specs import INSTANT_SUM, Encoding, RapporSpec
from common.task.text import check_labels

_DEFAULT_BYTES: Final = 256
_CHUNK_BITS: Final = 1 << 22
"""Bits that are drawn or counted at a time, so that memory stays bounded."""
_PREFIX: Final = permanent.encoder_prefix(b"")
"""That of the C++ client. What tells two questions apart is the secret: see `scope_secret`."""


def show(responses: Packed, unset_mask: Packed, set_mask: Packed) -> Packed:
    """
    Show bits through masks: an unset bit as the first has it, a set one as the second.

    With masks whose bits are set with chance p and q it is the noise that a report draws anew.
    """
    shown: Packed = (unset_mask & ~responses) | (set_mask & responses)
    return shown


@dataclass(frozen=True)
class Rappor:
    """RAPPOR with integer weights. Pure; vectorised over people."""

    spec: RapporSpec
    labels: tuple[str, ...] = ()
    """With the encoding `labels`, what each bit stands for; else nothing."""

    def __post_init__(self) -> None:
        if self.spec.report_bytes != self.report_dtype.itemsize:
            raise TaskError(
                f"report_bytes is {self.spec.report_bytes}; "
                f"a report of {self.spec.bits} bits has {self.report_dtype.itemsize}"
            )
        if self.spec.encoding == "bloom":
            bloom.check_hashes(self.spec.bits, self.spec.hashes)
            if self.labels:
                raise TaskError("the bits of a Bloom filter have no labels")
        elif not self.labels:
            raise TaskError("there are no labels; the encoding labels has a bit for each")
        else:
            check_labels(self.labels, self.spec.bits)

    @staticmethod
    def specify(
        *,
        bits: int,
        hashes: int = 1,
        cohorts: int = 1,
        f: Chance,
        p: Chance,
        q: Chance,
        encoding: Encoding = "bloom",
        most_bytes: int = _DEFAULT_BYTES,
        question: str = "",
    ) -> RapporSpec:
        """
        Work out the integers. Run by the analyzer.

        f, p and q are rounded, and no ε grows by it: see `RapporProbabilities.rounded`.

        Args:
            bits: k.
            hashes: h.
            cohorts: m.
            f: At least 0; below 1 after rounding.
            p: At least 0.
            q: At most 1; above p after rounding.
            encoding: Which bits a text sets.
            most_bytes: Longest text, as UTF-8.
            question: What permanent responses are shared for, if it may be asked again.

        Raises:
            TaskError: A number is out of its range, or nothing would be noise.
        """
        chances = RapporProbabilities.rounded(f, p, q)
        return RapporSpec(
            name="rappor",
            encoding=encoding,
            bits=bits,
            hashes=hashes,
            cohorts=cohorts,
            permanent_weight=chances.permanent,
            unset_weight=chances.unset,
            set_weight=chances.set,
            most_bytes=most_bytes,
            question=question,
            report_bytes=_layout(bits).itemsize,
        )

    @classmethod
    def of(cls, spec: RapporSpec, labels: Sequence[str]) -> Self:
        """
        Build it from what a task says. Run by the user agent and by the analyzer.

        Args:
            spec: The integers.
            labels: The task's. With a Bloom filter they are candidates, and not the mechanism's.

        Raises:
            TaskError: The integers describe no RAPPOR, or there is not a label for each bit.
        """
        return cls(spec, tuple(labels) if spec.encoding == "labels" else ())

    @property
    def report_dtype(self) -> np.dtype[Any]:
        """
        The cohort (uint16), and k bits, least significant first, in whole bytes.

        At least one bit is spare and 0, so that no report is the null report.
        """
        return _layout(self.spec.bits)

    @cached_property
    def _chances(self) -> RapporProbabilities:
        return RapporProbabilities.of(self.spec)

    @property
    def unset_chance(self) -> float:
        """p*: how likely one report shows a bit that the text leaves unset."""
        return self._chances.unset_chance

    @property
    def set_chance(self) -> float:
        """q*: how likely one report shows a bit that the text sets."""
        return self._chances.set_chance

    @cached_property
    def local_epsilon(self) -> float:
        """What ONE report gives away, rounded up; see `RapporProbabilities.report_epsilon`."""
        return self._chances.report_epsilon(self.spec.hashes)

    @cached_property
    def permanent_epsilon(self) -> float:
        """
        What any number of reports of ONE text give away: 2h·ln((1-f/2) / (f/2)), rounded up.

        It bounds a lifetime [EPK14]; infinite if f is 0. Of a text that changes every value counts,
        and where one is known from another it says nothing.
        """
        return self._chances.permanent_epsilon(self.spec.hashes)

    def keeps_promise(self, local_epsilon: float) -> bool:
        """
        Say whether one report gives away at most so much. Run by the user agent.

        What it gives away was worked out of the integers in 60 digits and rounded up: a float that
        is less is less than the exact value, or within 1e-27 of it.
        """
        return local_epsilon >= self.local_epsilon

    @property
    def reduction(self) -> Reduction:
        """For one hash a match count; for more, no more than their ε."""
        spec = self.spec
        if spec.hashes > 1:
            return PureReduction(local_epsilon=self.local_epsilon)
        sure = spec.encoding == "labels" and spec.bits > 2  # noqa: PLR2004  # two have no third
        return self._chances.one_hash_reduction(third=sure)

    def set_bits(self, texts: Sequence[str | bytes]) -> NDArray[np.intp]:
        """
        Give the bits that each text sets in each cohort, shape (texts, m, h).

        Raises:
            ValueRangeError: A text is too long, no text, or none of the labels.
        """
        spec, encoded = self.spec, [self._encoded(text) for text in texts]
        if spec.encoding == "labels":
            places = [self._place(text) for text in encoded]
            return np.array(places, dtype=np.intp).reshape(len(places), 1, 1)
        return bloom.all_positions(encoded, spec.cohorts, spec.bits, spec.hashes)

    def permanent(self, texts: Sequence[str | bytes], secrets: Sequence[bytes]) -> Reports:
        """
        Give each person's permanent response: the first stage. Run by the user agent.

        The same text and secret give the same response again, bit for bit that of the public C++
        client with an empty encoder id. It must not leave the device unless reports are one-time.

        Args:
            texts: One a person.
            secrets: One a person, as `permanent.scope_secret` derives it.

        Returns:
            n responses, laid out as reports are.

        Raises:
            ValueRangeError: A text is too long, no text, or none of the labels.

        Cost: 7 µs a person with up to 32 bits, 30 µs with 128.
        """
        spec = self.spec
        responses = np.zeros(len(texts), dtype=self.report_dtype)
        for part in self._parts(len(texts)):
            made = [
                self._noise_of(text, secret)
                for text, secret in zip(texts[part], secrets[part], strict=True)
            ]
            filters = np.frombuffer(b"".join(each for _, each, _ in made), dtype=np.uint8)
            streams = np.frombuffer(b"".join(each for _, _, each in made), dtype=np.uint8)
            found = permanent.respond(
                filters.reshape(len(made), -1),
                streams.reshape(len(made), spec.bits),
                spec.permanent_weight,
            )
            responses["cohort"][part] = [cohort for cohort, _, _ in made]
            responses["bits"][part, : found.shape[1]] = found
        return responses

    def _noise_of(self, text: str | bytes, secret: bytes) -> tuple[int, bytes, bytes]:
        """Give a person's cohort, packed filter and stream."""
        spec = self.spec
        encoded = self._encoded(text)
        cohort = permanent.cohort_of(secret, spec.cohorts, spec.bits)
        if spec.encoding == "labels":
            filled = 1 << self._place(encoded)
        else:
            filled = 0
            for bit in bloom.positions(encoded, cohort, spec.bits, spec.hashes):
                filled |= 1 << bit
        message = permanent.filter_message(filled, spec.bits, _PREFIX)
        packed = filled.to_bytes((spec.bits + 7) // 8, "little")
        return cohort, packed, permanent.stream(secret, message, spec.bits)[: spec.bits]

    def randomize(self, responses: Reports, rng: np.random.Generator) -> Reports:
        """
        Make a report of each permanent response: the second stage. Run by the user agent.

        One 16-bit integer u is drawn for each bit. An unset bit is shown as set if u is below
        p·2^16, a set one if it is below q·2^16; of these two coins only one is ever looked at.
        Where reports are one-time nothing is drawn.

        Args:
            responses: From `permanent`.
            rng: Source of randomness.

        Returns:
            n reports, fields cohort (uint16) and bits (bytes).

        Cost: sixteen random bits a bit; memory for the reports, and for 4 million bits.
        """
        spec = self.spec
        reports = responses.copy()
        if spec.one_time:
            return reports
        width = (spec.bits + 7) // 8
        for part in self._parts(len(reports)):
            bits = responses["bits"][part, :width]
            shape = (len(bits), spec.bits)
            draw = rng.integers(0, INSTANT_SUM, size=shape, dtype=np.uint16)
            masks = (
                np.packbits(draw < weight, axis=1, bitorder="little")
                for weight in (spec.unset_weight, spec.set_weight)
            )
            reports["bits"][part, :width] = show(bits, *masks)
        return reports

    def valid(self, reports: Reports) -> NDArray[np.bool_]:
        """Say which reports name a cohort, and have no bit set beyond the last. For analyzers."""
        spare = 0xFF << self.spec.bits % 8 & 0xFF
        fine: NDArray[np.bool_] = (reports["bits"][:, -1] & spare) == 0
        return fine & (reports["cohort"] < self.spec.cohorts)

    def tally(self, reports: Reports) -> Counts:
        """
        Count reports by cohort, and the set bits of each cohort's. Run by the analyzer.

        Returns:
            Shape (m + m·k,): the m cohorts' sizes, then k counts for each of them.

        Raises:
            ReportError: A cohort is out of range, or a bit beyond the last is set.

        Cost: one pass over all bits; memory for 4 million of them.
        """
        spec = self.spec
        if not self.valid(reports).all():
            raise ReportError(
                f"a cohort is not below {spec.cohorts}, or a bit is set beyond the first "
                f"{spec.bits}"
            )
        sizes = np.bincount(reports["cohort"], minlength=spec.cohorts)
        counts = np.zeros(spec.cohorts * spec.bits, dtype=np.int64)
        for part in self._parts(len(reports)):
            bits = np.unpackbits(reports["bits"][part], axis=1, count=spec.bits, bitorder="little")
            people, places = np.nonzero(bits)
            cells = reports["cohort"][part].astype(np.int64)[people] * spec.bits + places
            counts += np.bincount(cells, minlength=len(counts))
        return np.concatenate([sizes, counts])

    def sample_cells(
        self, users: Counts, texts: Sequence[str | bytes], rng: np.random.Generator
    ) -> Counts:
        """
        Draw what `tally` would give of a report from each of many people, without making any.

        Exact as it stands: cohorts are multinomial; and given its cohort and its text, the bits of
        one report are independent, since a secret that is used once makes the permanent response's
        noise independent from bit to bit. (Several reports of one person share that noise, and have
        another law.) So each count is a sum of two binomial numbers.

        Args:
            users: People by text, shape (texts,).
            texts: What they hold.
            rng: Source of randomness; never of a real collection.

        Returns:
            Shape (m + m·k,), of the very law that `tally` has.

        Raises:
            ValueRangeError: As of `permanent`.

        Cost: a digest for each text and cohort, and two binomial draws a cell, however many people.
        """
        spec = self.spec
        evenly = np.full(spec.cohorts, 1 / spec.cohorts)
        people = rng.multinomial(users, evenly)
        true = np.zeros((spec.cohorts, spec.bits), dtype=np.int64)
        for number, where in enumerate(self.set_bits(texts)):
            mine = np.zeros_like(true)
            np.put_along_axis(mine, where, people[number][:, None], axis=1)
            true += mine
        sizes = people.sum(axis=0)
        shown = rng.binomial(true, self.set_chance)
        shown += rng.binomial(sizes[:, None] - true, self.unset_chance)
        return np.concatenate([sizes, shown.ravel()])

    def _encoded(self, text: str | bytes) -> bytes:
        if isinstance(text, str):
            try:
                text = text.encode()
            except UnicodeEncodeError:
                # Its message, and so the chain's, would repeat what the person holds.
                raise ValueRangeError("a text holds half of a surrogate pair") from None
        if len(text) > self.spec.most_bytes:
            raise ValueRangeError(f"a text must have at most {self.spec.most_bytes} bytes in UTF-8")
        return text

    @cached_property
    def _places(self) -> dict[bytes, int]:
        return {label.encode(): place for place, label in enumerate(self.labels)}

    def _place(self, text: bytes) -> int:
        place = self._places.get(text)
        if place is None:
            raise ValueRangeError("a text must be one of the task's labels")
        return place

    def _parts(self, count: int) -> Iterator[slice]:
        size = max(1, _CHUNK_BITS // self.spec.bits)
        return (slice(start, start + size) for start in range(0, count, size))


def _layout(bits: int) -> np.dtype[Any]:
    return np.dtype([("cohort", "<u2"), ("bits", "u1", (bits // 8 + 1,))])
