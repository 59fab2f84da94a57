"""
The laws of reports on numbers, texts and pairs, written from the papers [DMNS06], [DJW18],
[NXY+16], [WXY+19], [EPK14], [YHMZ19] and a task's integers, apart from the mechanisms.
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import md5
from typing import Final

import numpy as np

from common.mechanisms.base import Vector
from common.task.specs import (
    INSTANT_SUM,
    MIX_SUM,
    PERMANENT_SUM,
    KeyValueSpec,
    NumberSpec,
    RapporSpec,
)

_CUT: Final = 64
"""Scales beyond the ends at which Laplace noise is cut."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AnswerLaw:
    """What one number's answer is: a code of several."""

    chances: Vector
    """Of each code, for the number; sums to 1."""
    stands: Vector
    """For what number each code stands, in -1 .. 1 and beyond."""

    @property
    def mean(self) -> float:
        """What an answer stands for on average."""
        return float(self.chances @ self.stands)

    @property
    def square(self) -> float:
        """Its square on average."""
        return float(self.chances @ self.stands**2)


def answer_law(spec: NumberSpec, number: float) -> AnswerLaw:
    """
    Give the law of the answer for one number in -1 .. 1.

    Args:
        spec: Of any mechanism but mean-est, whose answers are corners.
        number: Of a person.
    """
    if spec.name == "laplace":
        return _mixed(spec, number, lambda point: _laplace(spec, point), _laplace_stands(spec))
    true, other = spec.true_weight, spec.other_weight
    scale, odd = (true + other) / (true - other), (true - other) / (true + other)
    bit = np.array([(1 - number * odd) / 2, (1 + number * odd) / 2])
    ends = np.array([-scale, scale])
    often = spec.piecewise_weight / MIX_SUM if spec.name != "piecewise" else 1.0
    if spec.steps == 0:
        return AnswerLaw(chances=bit, stands=ends)
    place = _mixed(spec, number, lambda point: _band(spec, point), _band_stands(spec))
    if spec.name == "piecewise":
        return place
    return AnswerLaw(
        chances=np.concatenate([(1 - often) * bit, often * place.chances]),
        stands=np.concatenate([ends, place.stands]),
    )


def _mixed(
    spec: NumberSpec, number: float, law: Callable[[int], Vector], stands: Vector
) -> AnswerLaw:
    """Round to the two neighbours on the grid, so that the mean stays."""
    place = (number + 1) * spec.steps / 2
    down = min(math.floor(place), spec.steps - 1)
    up = place - down
    return AnswerLaw(chances=(1 - up) * law(down) + up * law(down + 1), stands=stands)


def _band(spec: NumberSpec, point: int) -> Vector:
    weights = np.full(spec.steps + 1 + 2 * spec.reach, float(spec.other_weight))
    weights[point : point + 2 * spec.reach + 1] = spec.true_weight
    law: Vector = weights / weights.sum()
    return law


def _band_stands(spec: NumberSpec) -> Vector:
    """Weigh places from the middle so that the upper end of the range stands for 1 on average."""
    places = np.arange(spec.steps + 1 + 2 * spec.reach) - (spec.steps // 2 + spec.reach)
    stands: Vector = places / float(_band(spec, spec.steps) @ places)
    return stands


def _laplace(spec: NumberSpec, point: int) -> Vector:
    """P(x) = (1-a)/(1+a)·a^|x|, what lies beyond the cut put on the cut."""
    a, last = math.exp(-1 / spec.scale), spec.steps + 2 * _CUT * spec.scale
    off = np.abs(np.arange(last + 1) - (point + _CUT * spec.scale))
    law: Vector = (1 - a) / (1 + a) * a**off
    for end in (0, last):
        law[end] = a ** off[end] / (1 + a)
    return law


def _laplace_stands(spec: NumberSpec) -> Vector:
    places = np.arange(spec.steps + 1 + 2 * _CUT * spec.scale)
    stands: Vector = (places - (spec.steps // 2 + _CUT * spec.scale)) / (spec.steps / 2)
    return stands


def corner_law(spec: NumberSpec, numbers: Sequence[float]) -> tuple[Vector, float]:
    """
    Give the law of mean-est's corner, by listing all of them, and B, what a bit stands for.

    Returns:
        Chances of shape (2^d,), bit j of a corner's number set where its coordinate j is up.
    """
    corners = list(itertools.product((-1, 1), repeat=len(numbers)))
    table = np.array(corners)[:, ::-1]  # the first coordinate changes fastest
    toward = np.where(table @ table.T > 0, float(spec.true_weight), float(spec.other_weight))
    toward /= toward.sum(axis=1, keepdims=True)
    rounded = np.prod((1 + table * np.asarray(numbers)) / 2, axis=1)
    scale = 1 / float(toward[-1] @ table[:, 0])  # of the corner that is up everywhere
    law: Vector = rounded @ toward
    return law, scale


def pair_law(spec: KeyValueSpec, keys: int, owned: Mapping[int, float]) -> Vector:
    """
    Give the law of a report on pairs: cells of a key and absent, - or +; shape (3·keys,).

    Args:
        spec: The task's integers.
        keys: Of the task.
        owned: Values by key, in the units of the task.
    """
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


def bit_chances(spec: RapporSpec) -> tuple[float, float]:
    """Give p* and q* of [EPK14]: how often one report shows an unset bit, and a set one, as set."""
    f, p, q = (
        spec.permanent_weight / PERMANENT_SUM,
        spec.unset_weight / INSTANT_SUM,
        spec.set_weight / INSTANT_SUM,
    )
    return (1 - f) * p + f * (p + q) / 2, (1 - f) * q + f * (p + q) / 2


def bit_law(spec: RapporSpec, labels: Sequence[str], text: str) -> Vector:
    """Give how likely each bit of a report on a text is set, by cohort; (cohorts, bits)."""
    unset, shown = bit_chances(spec)
    law = np.full((spec.cohorts, spec.bits), unset)
    for cohort in range(spec.cohorts):
        law[cohort, list(_set_bits(spec, labels, text, cohort))] = shown
    return law


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


def report_epsilon(spec: RapporSpec) -> float:
    """Give h·ln(q*(1-p*) / p*(1-q*)): what one report gives away at most [EPK14]."""
    unset, shown = bit_chances(spec)
    return spec.hashes * math.log(shown * (1 - unset) / (unset * (1 - shown)))


def to_unit(value: float, low: float, high: float) -> float:
    """Move low .. high to -1 .. 1."""
    return 2 * (value - low) / (high - low) - 1
