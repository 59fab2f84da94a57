"""
Distributions of reports on numbers, texts and pairs, written from the papers [DMNS06], [DJW18],
[NXY+16], [WXY+19], [EPK14], [YHMZ19] and a task's integers, apart from the mechanisms.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import md5
from typing import Final, cast

import numpy as np
from numpy.typing import NDArray

from common.mechanisms.base import Reports, Vector
from common.mechanisms.numeric.multi_rphm import projection
from common.messages.value import Value
from common.task.specs import (
    INSTANT_SUM,
    MIX_SUM,
    PERMANENT_SUM,
    KeyValueSpec,
    NumberSpec,
    RapporSpec,
    spec_as,
)
from common.task.task import Task

_CUT: Final = 64
"""Scales beyond the ends at which Laplace noise is cut."""
_FEW_CORNERS: Final = 8
"""Numbers of a vector up to which all corners of the cube are listed."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReportPart:
    """One part of each report, with its distribution; parts are independent."""

    name: str
    cells: NDArray[np.int64]
    """Cell of each report, shape (n,)."""
    chances: Vector
    """Probability of each cell under each of some distributions; shape (distributions, cells)."""
    which: NDArray[np.int64] | None = None
    """Distribution of each report, shape (n,); None for the first of all."""


def report_parts(task: Task, value: Value, reports: Reports) -> Iterator[ReportPart]:
    """Yield the parts of reports on one value, whose probabilities multiply to the report's."""
    if task.kind == "string":
        yield from _text_parts(task, str(value), reports)
    elif task.kind == "key-value":
        spec = spec_as(task.mechanism, KeyValueSpec)
        owned = cast("dict[int, float]", value)
        cells = reports["key"].astype(np.int64) * 3 + reports["said"]
        chances = _pair_distribution(spec, task.domain_size, owned)
        yield ReportPart(name="keys and answers", cells=cells, chances=chances[np.newaxis])
    else:
        yield from _number_parts(task, value, reports)


def log_likelihood(task: Task, value: Value, reports: Reports) -> Vector:
    """Return the log probability of each report under a value, up to a common term; shape (n,)."""
    total = np.zeros(len(reports))
    for part in report_parts(task, value, reports):
        with np.errstate(divide="ignore"):
            logs = np.log(part.chances)
        total += logs[0 if part.which is None else part.which, part.cells]
    return total


def _number_parts(task: Task, value: Value, reports: Reports) -> Iterator[ReportPart]:
    spec = spec_as(task.mechanism, NumberSpec)
    given = value if isinstance(value, tuple) else (cast("float", value),)
    numbers = np.array([to_unit(number, spec.low, spec.high) for number in given])
    if spec.projected:
        numbers = np.clip(numbers @ projection(task.nonce, task.domain_size, spec.projected), -1, 1)
    names = reports.dtype.names or ()
    if "bits" in names:
        if len(numbers) <= _FEW_CORNERS:
            cells = reports["bits"][:, 0].astype(np.int64)
            chances = _corner_distribution(spec, numbers.tolist())
            yield ReportPart(name="corners", cells=cells, chances=chances[np.newaxis])
        return
    answers = np.stack([_answer_distribution(spec, number) for number in numbers.tolist()])
    if "coordinates" not in names:
        cells = reports[names[0]].astype(np.int64)
        yield ReportPart(name="answers", cells=cells, chances=answers)
        return
    for place in range(spec.sampled):
        coordinates = reports["coordinates"][:, place].astype(np.int64)
        cells = reports["codes"][:, place].astype(np.int64)
        yield ReportPart(name="answers", cells=cells, chances=answers, which=coordinates)


def _answer_distribution(spec: NumberSpec, number: float) -> Vector:
    """Return the distribution of the answer's code for one number in -1 .. 1."""
    if spec.name == "laplace":
        return _rounded(spec, number, lambda point: _laplace(spec, point))
    true, other = spec.true_weight, spec.other_weight
    odd = (true - other) / (true + other)
    bit = np.array([(1 - number * odd) / 2, (1 + number * odd) / 2])
    if spec.steps == 0:
        return bit
    place = _rounded(spec, number, lambda point: _band(spec, point))
    if spec.name == "piecewise":
        return place
    often = spec.piecewise_weight / MIX_SUM
    return np.concatenate([(1 - often) * bit, often * place])


def _rounded(spec: NumberSpec, number: float, law: Callable[[int], Vector]) -> Vector:
    """Round to the two neighbours on the grid, so that the mean stays."""
    place = (number + 1) * spec.steps / 2
    down = min(math.floor(place), spec.steps - 1)
    up = place - down
    return (1 - up) * law(down) + up * law(down + 1)


def _band(spec: NumberSpec, point: int) -> Vector:
    weights = np.full(spec.steps + 1 + 2 * spec.reach, float(spec.other_weight))
    weights[point : point + 2 * spec.reach + 1] = spec.true_weight
    law: Vector = weights / weights.sum()
    return law


def _laplace(spec: NumberSpec, point: int) -> Vector:
    """P(x) = (1-a)/(1+a)·a^|x|, with all beyond the cut on the cut."""
    a, last = math.exp(-1 / spec.scale), spec.steps + 2 * _CUT * spec.scale
    off = np.abs(np.arange(last + 1) - (point + _CUT * spec.scale))
    law: Vector = (1 - a) / (1 + a) * a**off
    for end in (0, last):
        law[end] = a ** off[end] / (1 + a)
    return law


def _corner_distribution(spec: NumberSpec, numbers: Sequence[float]) -> Vector:
    """Return the distribution of mean-est's corner; bit j of its number tells coordinate j."""
    corners = list(itertools.product((-1, 1), repeat=len(numbers)))
    table = np.array(corners)[:, ::-1]  # the first coordinate changes fastest
    toward = np.where(table @ table.T > 0, float(spec.true_weight), float(spec.other_weight))
    toward /= toward.sum(axis=1, keepdims=True)
    rounded = np.prod((1 + table * np.asarray(numbers)) / 2, axis=1)
    law: Vector = rounded @ toward
    return law


def _pair_distribution(spec: KeyValueSpec, keys: int, owned: dict[int, float]) -> Vector:
    """Return the distribution of a key and absent, - or +; shape (3·keys,)."""
    tells = spec.key_true_weight / (spec.key_true_weight + spec.key_other_weight)
    signal = (spec.value_true_weight - spec.value_other_weight) / (
        spec.value_true_weight + spec.value_other_weight
    )
    law = np.empty((keys, 3))
    for key in range(keys):
        there = tells if key in owned else 1 - tells
        fake = spec.fakes[key] if spec.fakes else (spec.low + spec.high) / 2
        number = to_unit(owned.get(key, fake), spec.low, spec.high)
        law[key] = (1 - there, there * (1 - signal * number) / 2, there * (1 + signal * number) / 2)
    return law.ravel() / keys


def _text_parts(task: Task, text: str, reports: Reports) -> Iterator[ReportPart]:
    """Yield the cohort, and each bit by whether the text sets it in the report's cohort [EPK14]."""
    spec, cohort = spec_as(task.mechanism, RapporSpec), reports["cohort"].astype(np.int64)
    even = np.full((1, spec.cohorts), 1 / spec.cohorts)
    yield ReportPart(name="cohorts", cells=cohort, chances=even)
    f, p, q = (
        spec.permanent_weight / PERMANENT_SUM,
        spec.unset_weight / INSTANT_SUM,
        spec.set_weight / INSTANT_SUM,
    )
    shown = np.array([(1 - f) * p + f * (p + q) / 2, (1 - f) * q + f * (p + q) / 2])
    chances = np.stack([1 - shown, shown], axis=1)
    bits = np.unpackbits(reports["bits"], axis=1, count=spec.bits, bitorder="little")
    own = set_bits(spec, task.labels, text)[cohort].astype(np.int64)
    for bit in range(spec.bits):
        cells = bits[:, bit].astype(np.int64)
        yield ReportPart(name="bits", cells=cells, chances=chances, which=own[:, bit])


def set_bits(spec: RapporSpec, labels: Sequence[str], text: str) -> NDArray[np.bool_]:
    """Return which bits a text sets in each cohort; shape (cohorts, bits)."""
    bits = np.zeros((spec.cohorts, spec.bits), dtype=np.bool_)
    for cohort in range(spec.cohorts):
        bits[cohort, list(_set_bits(spec, labels, text, cohort))] = True
    return bits


def _set_bits(spec: RapporSpec, labels: Sequence[str], text: str, cohort: int) -> set[int]:
    """Name bits by the bytes of MD5(cohort, big-endian, and text), as the public client does."""
    if spec.encoding == "labels":
        return {labels.index(text)}
    message = cohort.to_bytes(4, "big") + text.encode()
    digest = md5(message, usedforsecurity=False).digest()
    width = 1 if spec.bits <= 256 else 2  # noqa: PLR2004  # what one byte names
    return {
        int.from_bytes(digest[start : start + width], "little") % spec.bits
        for start in range(0, width * spec.hashes, width)
    }


def to_unit(value: float, low: float, high: float) -> float:
    """Map low .. high to -1 .. 1."""
    return 2 * (value - low) / (high - low) - 1
