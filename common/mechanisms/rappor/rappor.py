"""
RAPPOR: texts as bits of a Bloom filter, with permanent and instantaneous noise [EPK14].

A user permanently belongs to one of m cohorts. The text sets h of k bits there (`bloom.py`), or the
one bit of a label. With probability f the permanent response replaces a bit, once and for all, by a
fair coin (`permanent_response.py`). Each report draws new bits: it sets a bit with probability
q if the permanent bit is set, and p otherwise.

One class covers the paper's variants: "one-time" has no instantaneous noise (p = 0, q = 1), so that
a report is the permanent response; "basic" has one bit for each label, one hash and one cohort.

A report sets a bit with probability p* if the text leaves it unset, and q* if the text sets it:

    p* = (1-f)·p + f·(p+q)/2,    q* = (1-f)·q + f·(p+q)/2.
"""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from shuffledp.common.errors import TaskError, ValueRangeError
from shuffledp.common.mechanisms import base
from shuffledp.common.mechanisms.arguments import CheckedArguments
from shuffledp.common.mechanisms.base import Counts, Reports
from shuffledp.common.mechanisms.bits import bit_field, chunks, pack, spare_bits_clear
from shuffledp.common.mechanisms.rappor import bloom
from shuffledp.common.mechanisms.rappor import permanent_response as permanent
from shuffledp.common.mechanisms.reduction import MatchCountReduction, PureReduction, Reduction
from shuffledp.common.mechanisms.weights import epsilon_of_odds
from shuffledp.common.task.specs import INSTANT_SUM, PERMANENT_SUM, Encoding, RapporSpec

Probability = Fraction | Decimal | float

_DEFAULT_BYTES: Final = 256
_TOTAL: Final = 2 * PERMANENT_SUM * INSTANT_SUM
"""Denominator of p* and q*: 256 for the permanent bit, times 65536 for the report's."""


def rounded_weights(f: Probability, p: Probability, q: Probability) -> tuple[int, int, int]:
    """
    Round f up to 128ths, p up and q down to 65536ths, and return these weights.

    Rounding only adds noise, so no ε exceeds that of the given probabilities. Raises TaskError if a
    number is not in 0 .. 1, f rounds to 1, or p does not stay below q.
    """
    replaced = math.ceil(_exact("f", f) * PERMANENT_SUM)
    unset = math.ceil(_exact("p", p) * INSTANT_SUM)
    shown = math.floor(_exact("q", q) * INSTANT_SUM)
    if replaced == PERMANENT_SUM:
        raise TaskError(f"f is {f}; rounded up to {PERMANENT_SUM}ths it must be below 1")
    if unset >= shown:
        raise TaskError(f"p is {p} and q {q}; rounded to {INSTANT_SUM}ths p must be below q")
    return replaced, unset, shown


@dataclass(frozen=True)
class Rappor(CheckedArguments, base.Randomizer):
    """RAPPOR with integer weights. Pure; vectorized over users."""

    spec: RapporSpec
    labels: tuple[str, ...] = ()
    """Labels of the bits with the encoding `labels`, else empty."""

    def __post_init__(self) -> None:
        base.check_report_bytes(self.spec, self.report_dtype)
        if self.spec.encoding == "bloom":
            bloom.check_hashes(self.spec.bits, self.spec.hashes)

    @staticmethod
    def specify(
        *,
        bits: int,
        hashes: int = 1,
        cohorts: int = 1,
        f: Probability,
        p: Probability,
        q: Probability,
        encoding: Encoding = "bloom",
        most_bytes: int = _DEFAULT_BYTES,
        question: str = "",
    ) -> RapporSpec:
        """
        Choose the integer weights for f, p and q. Run by the analyzer.

        f, p and q are rounded so that no ε grows; see `rounded_weights`. The other arguments are
        fields of RapporSpec. Raises TaskError if one is out of its range, or there is no noise.
        """
        permanent_weight, unset_weight, set_weight = rounded_weights(f, p, q)
        return RapporSpec(
            name="rappor",
            encoding=encoding,
            bits=bits,
            hashes=hashes,
            cohorts=cohorts,
            permanent_weight=permanent_weight,
            unset_weight=unset_weight,
            set_weight=set_weight,
            most_bytes=most_bytes,
            lasting_question=question,
            report_bytes=_layout(bits).itemsize,
        )

    @classmethod
    def of(cls, spec: RapporSpec, labels: Sequence[str]) -> Self:
        """
        Build the mechanism from a task's description. Run by the user agent and the analyzer.

        With a Bloom filter the labels are candidates, and the mechanism does not use them. Raises
        TaskError if the integers are not valid for RAPPOR; a Task has checked its labels.
        """
        return cls(spec, tuple(labels) if spec.encoding == "labels" else ())

    @property
    def report_dtype(self) -> np.dtype[Any]:
        """The cohort (uint16), and k bits and a spare one, least significant first, in bytes."""
        return _layout(self.spec.bits)

    @cached_property
    def _odds(self) -> tuple[int, int]:
        """p* and q* times _TOTAL."""
        unset, shown = self.spec.unset_weight, self.spec.set_weight
        other = self.spec.permanent_weight
        same = 2 * PERMANENT_SUM - other
        return same * unset + other * shown, same * shown + other * unset

    @property
    def unset_probability(self) -> float:
        """Probability p* that a report sets a bit that the text leaves unset."""
        return self._odds[0] / _TOTAL

    @property
    def set_probability(self) -> float:
        """Probability q* that a report sets a bit that the text sets."""
        return self._odds[1] / _TOTAL

    @cached_property
    def local_epsilon(self) -> float:
        """
        Local ε of ONE report: h·ln(q*(1-p*) / (p*(1-q*))), rounded up [EPK14].

        In the least private pair, two texts set 2h different bits. Texts that share bits, or whose
        hashes coincide, are more private. The cohort does not depend on the text.
        """
        unset, shown = self._odds
        likelier, rarer = shown * (_TOTAL - unset), unset * (_TOTAL - shown)
        return epsilon_of_odds(likelier, rarer, self.spec.hashes)

    @cached_property
    def permanent_epsilon(self) -> float:
        """
        Local ε of any number of reports on ONE text: 2h·ln((1-f/2) / (f/2)), rounded up [EPK14].

        Infinite if f is 0. If a user's text changes, each text has its own ε; the bound fails if
        one text can be inferred from another.
        """
        weight = self.spec.permanent_weight
        return epsilon_of_odds(2 * PERMANENT_SUM - weight, weight, 2 * self.spec.hashes)

    def keeps_promise(self, local_epsilon: float) -> bool:
        return local_epsilon >= self.local_epsilon  # which is rounded up from 60 digits

    @property
    def reduction(self) -> Reduction:
        """
        A match count for one hash, in any number of cohorts, else the local ε alone.

        Let U draw a uniform cohort and set every bit with probability p*. A report supports a text
        if the text's bit in the report's cohort is set; U supports any text with probability p*.
        Relative to U a report has density q*/p* if it supports its own text, and γ = (1-q*)/(1-p*)
        otherwise: it is a draw from U with probability γ, else one from U given that it supports
        its text, with l = 1/p*. Two texts that share their bit in a share s of the cohorts collide
        with probability s + (1-s)·p* ≥ 1/l; fewer collisions are less private, so 1/l bounds every
        pair.

        Attacks cover it only if there are three texts, and no two of them ever share a bit.
        """
        if self.spec.hashes > 1:
            return PureReduction(local_epsilon=self.local_epsilon)
        unset, shown = self._odds
        rest = _TOTAL - unset
        reduction = MatchCountReduction.of_support_sets(
            answers=_TOTAL / unset,
            local_epsilon=self.local_epsilon,
            blanket=(_TOTAL - shown) / rest,
            signal=(shown - unset) / rest,
            independent=True,
        )
        third = self.spec.encoding == "labels" and self.spec.bits > 2  # noqa: PLR2004  # third text
        return reduction if third else dataclasses.replace(reduction, third_value="none")

    def set_bits(self, texts: Sequence[str | bytes]) -> NDArray[np.intp]:
        """Return the bits of texts, (texts, m, h), in 2 µs for each cohort. Errors: `permanent`."""
        cohorts, encoded = range(self.spec.cohorts), [self._encoded(text) for text in texts]
        rows = [self._positions(text, cohort) for text in encoded for cohort in cohorts]
        shape = (len(encoded), len(cohorts), self.spec.hashes)
        return np.array(rows, dtype=np.intp).reshape(shape)

    def permanent(self, texts: Sequence[str | bytes], secrets: Sequence[bytes]) -> Reports:
        """
        Return each user's permanent response, the first stage. Run by the user agent.

        The same text and secret give the same response, equal to that of the public C++ client with
        an empty encoder id. No response may leave the device unless reports are one-time.

        There is a text, and a secret from `scope_secret`, for each user. Returns n responses in the
        layout of reports. Raises ValueRangeError if a text is too long, not encodable, or not one
        of the labels. Cost: 7 µs per user with up to 32 bits, 30 µs with 128.
        """
        spec = self.spec
        responses = np.zeros(len(texts), dtype=self.report_dtype)
        for part in chunks(len(texts), spec.bits):
            rows = [
                self._noise_of(text, secret)
                for text, secret in zip(texts[part], secrets[part], strict=True)
            ]
            filters = np.frombuffer(b"".join(packed for _, packed, _ in rows), dtype=np.uint8)
            streams = np.frombuffer(b"".join(stream for _, _, stream in rows), dtype=np.uint8)
            bits = permanent.respond(
                filters.reshape(len(rows), -1),
                streams.reshape(len(rows), spec.bits),
                spec.permanent_weight,
            )
            responses["cohort"][part] = [cohort for cohort, _, _ in rows]
            responses["bits"][part, : bits.shape[1]] = bits
        return responses

    def _noise_of(self, text: str | bytes, secret: bytes) -> tuple[int, bytes, bytes]:
        """Return a user's cohort, the packed filter and its noise stream."""
        spec = self.spec
        encoded = self._encoded(text)
        cohort = permanent.cohort_of(secret, spec.cohorts, spec.bits)
        filter_bits = sum(1 << bit for bit in set(self._positions(encoded, cohort)))
        message = permanent.filter_message(filter_bits, spec.bits, permanent.ENCODER_PREFIX)
        packed = filter_bits.to_bytes((spec.bits + 7) // 8, "little")
        return cohort, packed, permanent.stream(secret, message, spec.bits)[: spec.bits]

    def randomize(self, responses: Reports, rng: np.random.Generator) -> Reports:
        """
        Add instantaneous noise to each permanent response, the second stage. Run by the user agent.

        Draws a 16-bit integer u for each bit. An unset bit is shown as set if u is below p·2^16, a
        set bit if u is below q·2^16. Nothing is drawn for one-time reports. Cost: 16 random bits
        for each bit; memory for the reports and 4 million bits.
        """
        spec = self.spec
        if getattr(responses, "dtype", None) != self.report_dtype:
            raise TypeError("responses must be an array that the method permanent returns")
        reports = responses.copy()
        if spec.one_time:
            return reports
        for part in chunks(len(reports), spec.bits):
            bits = responses["bits"][part]
            draw = rng.integers(0, INSTANT_SUM, size=(len(bits), spec.bits), dtype=np.uint16)
            unset, shown = pack(draw < spec.unset_weight), pack(draw < spec.set_weight)
            reports["bits"][part] = (unset & ~bits) | (shown & bits)
        return reports

    def valid(self, reports: Reports) -> NDArray[np.bool_]:
        clear = spare_bits_clear(reports["bits"], self.spec.bits)
        return clear & (reports["cohort"] < self.spec.cohorts)

    def tally(self, reports: Reports) -> Counts:
        """
        Count the reports of each cohort, and its set bits. Run by the analyzer.

        Returns shape (m + m·k,): the sizes of the m cohorts, then k counts for each cohort. Cost:
        one pass over all bits; memory for 4 million of them.
        """
        spec = self.spec
        base.check_valid(
            self.valid(reports),
            f"a cohort is not below {spec.cohorts}, or a bit is set beyond the first {spec.bits}",
        )
        sizes = np.bincount(reports["cohort"], minlength=spec.cohorts)
        counts = np.zeros(spec.cohorts * spec.bits, dtype=np.int64)
        for part in chunks(len(reports), spec.bits):
            bits = np.unpackbits(reports["bits"][part], axis=1, count=spec.bits, bitorder="little")
            rows, places = np.nonzero(bits)
            cells = reports["cohort"][part].astype(np.int64)[rows] * spec.bits + places
            counts += np.bincount(cells, minlength=len(counts))
        return np.concatenate([sizes, counts])

    def sample_cells(
        self, users: Counts, texts: Sequence[str | bytes], rng: np.random.Generator
    ) -> Counts:
        """
        Draw the tally of one report per user directly. Run by the simulator.

        Cohorts are multinomial. Given cohort and text, the bits of one report are independent if
        the secret is used once, so each count is a sum of two binomial numbers. (Several reports of
        one user would share permanent noise.)

        `users` counts users by text, shape (texts,); `rng` must never be that of a real collection.
        Returns counts in the layout of `tally`. Raises the errors of `permanent`. Cost: a digest
        for each text and cohort, and two binomial draws for each cell.
        """
        spec = self.spec
        by_cohort = rng.multinomial(users, np.full(spec.cohorts, 1 / spec.cohorts))
        true = np.zeros((spec.cohorts, spec.bits), dtype=np.int64)
        for number, positions in enumerate(self.set_bits(texts)):
            set_here = np.zeros_like(true)
            np.put_along_axis(set_here, positions, by_cohort[number][:, None], axis=1)
            true += set_here
        sizes = by_cohort.sum(axis=0)
        shown = rng.binomial(true, self.set_probability)
        shown += rng.binomial(sizes[:, None] - true, self.unset_probability)
        return np.concatenate([sizes, shown.ravel()])

    def _encoded(self, text: str | bytes) -> bytes:
        """Encode a text as UTF-8; raise ValueRangeError if it is too long or not encodable."""
        if isinstance(text, str):
            try:
                text = text.encode()
            except UnicodeEncodeError:
                # The original error, even if only chained, contains the user's text.
                raise ValueRangeError("a text must not contain a lone surrogate") from None
        if len(text) > self.spec.most_bytes:
            raise ValueRangeError(f"a text must have at most {self.spec.most_bytes} bytes in UTF-8")
        return text

    @cached_property
    def _places(self) -> dict[bytes, int]:
        return {label.encode(): place for place, label in enumerate(self.labels)}

    def _positions(self, text: bytes, cohort: int) -> tuple[int, ...]:
        """Return the bits that a text sets; raise ValueRangeError if it should be a label."""
        if self.spec.encoding != "labels":
            return bloom.positions(text, cohort, self.spec.bits, self.spec.hashes)
        place = self._places.get(text)
        if place is None:
            raise ValueRangeError("a text must be one of the task's labels")
        return (place,)


def _layout(bits: int) -> np.dtype[Any]:
    return np.dtype([("cohort", "<u2"), bit_field(bits)])


def _exact(name: str, probability: Probability) -> Fraction:
    """Return a probability as a fraction; raise TaskError unless it is in 0 .. 1."""
    try:
        exact = Fraction(probability)
    except (ValueError, OverflowError) as error:
        raise TaskError(f"{name} must be a number") from error
    if not 0 <= exact <= 1:
        raise TaskError(f"{name} is {probability}; it must lie between 0 and 1")
    return exact
