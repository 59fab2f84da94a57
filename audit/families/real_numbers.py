"""Reports on one or several numbers [DMNS06], [DJW18], [NXY+16], [WXY+19], or on pairs [YHMZ19]."""

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Final, TypeVar, cast

import numpy as np

from shuffledp.audit.families.family import Families, Family, ReportPart
from shuffledp.common.mechanisms.base import Randomizer, Reports, Vector
from shuffledp.common.mechanisms.key_value.privkv import PrivKv
from shuffledp.common.mechanisms.numeric import coordinate_sampling
from shuffledp.common.mechanisms.numeric.coded_number import Duchi
from shuffledp.common.mechanisms.numeric.coordinate_sampling import Harmony, MultiHm, MultiRphm
from shuffledp.common.mechanisms.numeric.laplace import Laplace
from shuffledp.common.mechanisms.numeric.mean_est import MeanEst
from shuffledp.common.mechanisms.numeric.number import NumberMechanism
from shuffledp.common.mechanisms.numeric.piecewise import Hybrid, Piecewise
from shuffledp.common.messages.submission import Value
from shuffledp.common.task import specs

_USUAL_NUMBERS: Final = (-0.73, 0.31)
"""Numbers in -1 .. 1 that lie between grid points."""
_LAPLACE_CUT: Final = 64
"""Distance beyond the ends of the range, in scales, at which Laplace noise is cut."""
_MAX_CORNER_DIMENSIONS: Final = 8
"""Maximum dimensions for listing all corners of the cube."""

AnyNumbers = TypeVar("AnyNumbers", bound=Randomizer)


class RangeFamily(Family[AnyNumbers]):
    """Values whose numbers lie in the range of the task."""

    @property
    def _range(self) -> tuple[float, float]:
        return self.spec.low, self.spec.high

    def _in_unit(self, number: float) -> float:
        """Map a number linearly from the task's range to -1 .. 1."""
        low, high = self._range
        return 2 * (number - low) / (high - low) - 1

    @property
    def _usual_numbers(self) -> list[float]:
        low, high = self._range
        return [low + (number + 1) / 2 * (high - low) for number in _USUAL_NUMBERS]


class NumberFamily(RangeFamily[AnyNumbers]):
    """One number, or several in one range."""

    def _value(self, numbers: list[float]) -> Value:
        """Repeat numbers in the dimensions by turns; a mean is the first."""
        vector = tuple(numbers[place % len(numbers)] for place in range(self.task.domain_size))
        return vector[0] if self.task.kind == "mean" else vector

    def unit_numbers(self, value: Value) -> list[float]:
        """Return a value's numbers in -1 .. 1."""
        held = value if isinstance(value, tuple) else (cast("float", value),)
        return [self._in_unit(number) for number in held]

    @property
    def worst_values(self) -> tuple[tuple[Value, Value], ...]:
        low, high = self._range
        return ((self._value([high]), self._value([low])),)

    @property
    def usual_value(self) -> Value:
        return self._value(self._usual_numbers)


class RandomizedNumbers(NumberFamily[NumberMechanism]):
    """Numbers that are randomized by the task's integer weights."""

    @property
    def _projection(self) -> Vector:
        nonce, size = self.task.nonce, self.task.domain_size
        return coordinate_sampling.projection(nonce, size, self.spec.projected)

    @property
    def worst_values(self) -> tuple[tuple[Value, Value], ...]:
        """Both ends of the range, in every dimension; of a projection, in the first of its own."""
        if not self.spec.projected:
            return super().worst_values
        (low, high), up = self._range, self._projection[:, 0] > 0
        first, second = (np.where(up, *ends).tolist() for ends in ((high, low), (low, high)))
        return ((tuple(first), tuple(second)),)

    def report_parts(self, value: Value, reports: Reports) -> Iterator[ReportPart]:
        """Yield the answers; none for mean-est over 8 numbers."""
        spec = self.spec
        numbers = np.array(self.unit_numbers(value))
        if spec.projected:
            numbers = np.clip(numbers @ self._projection, -1, 1)
        names = reports.dtype.names or ()
        if "bits" in names:
            if len(numbers) <= _MAX_CORNER_DIMENSIONS:
                cells = reports["bits"][:, 0].astype(np.int64)
                chances = self._corner_distribution(numbers)
                yield ReportPart(name="corners", cells=cells, chances=chances[np.newaxis])
            return
        answers = np.stack([self._answer_distribution(number) for number in numbers.tolist()])
        if "coordinates" not in names:
            cells = reports[names[0]].astype(np.int64)
            yield ReportPart(name="answers", cells=cells, chances=answers)
            return
        for place in range(spec.sampled):
            coordinates = reports["coordinates"][:, place].astype(np.int64)
            cells = reports["codes"][:, place].astype(np.int64)
            yield ReportPart(name="answers", cells=cells, chances=answers, which=coordinates)

    def _answer_distribution(self, number: float) -> Vector:
        """Return the distribution of the answer code for one number in -1 .. 1."""
        spec = self.spec
        if spec.name == "laplace":
            return self._rounded(number, self._laplace)
        true, other = spec.true_weight, spec.other_weight
        signal = (true - other) / (true + other)
        bit = np.array([(1 - number * signal) / 2, (1 + number * signal) / 2])
        if spec.steps == 0:
            return bit
        place = self._rounded(number, self._band)
        if spec.name == "piecewise":
            return place
        mixed = spec.piecewise_weight / specs.MIX_SUM
        return np.concatenate([(1 - mixed) * bit, mixed * place])

    def _rounded(self, number: float, distribution: Callable[[int], Vector]) -> Vector:
        """Mix the distributions at the two grid points around a number, preserving the mean."""
        place = (number + 1) * self.spec.steps / 2
        down = min(math.floor(place), self.spec.steps - 1)
        up = place - down
        return np.asarray((1 - up) * distribution(down) + up * distribution(down + 1))

    def _band(self, point: int) -> Vector:
        spec = self.spec
        weights = np.full(spec.steps + 1 + 2 * spec.reach, float(spec.other_weight))
        weights[point : point + 2 * spec.reach + 1] = spec.true_weight
        return np.asarray(weights / weights.sum())

    def _laplace(self, point: int) -> Vector:
        """Return Laplace noise P(x) = (1-a)/(1+a)·a^|x| at a point; tails move to the cuts."""
        cut = _LAPLACE_CUT * self.spec.scale
        a, last = math.exp(-1 / self.spec.scale), self.spec.steps + 2 * cut
        distance = np.abs(np.arange(last + 1) - (point + cut))
        chances: Vector = (1 - a) / (1 + a) * a**distance
        chances[[0, last]] = a ** distance[[0, last]] / (1 + a)
        return chances

    def _corner_distribution(self, numbers: Vector) -> Vector:
        """Return the distribution of mean-est's corner; bit j of its index is coordinate j."""
        corners = list(itertools.product((-1, 1), repeat=len(numbers)))
        table = np.array(corners)[:, ::-1]  # the first coordinate changes fastest
        true, other = float(self.spec.true_weight), float(self.spec.other_weight)
        toward = np.where(table @ table.T > 0, true, other)
        toward /= toward.sum(axis=1, keepdims=True)
        rounded = np.prod((1 + table * numbers) / 2, axis=1)
        return np.asarray(rounded @ toward)


class RandomizedPairs(RangeFamily[PrivKv]):
    """The presence of one key, and a sign of its value."""

    @property
    def worst_values(self) -> tuple[tuple[Value, Value], ...]:
        low, high = self._range
        keys = range(self.task.domain_size)
        everything, least = dict.fromkeys(keys, high), dict.fromkeys(keys, low)
        return ((everything, {}), (everything, least), (least, {}))

    @property
    def usual_value(self) -> Value:
        first, second = self._usual_numbers
        return {0: second, self.task.domain_size - 1: first}

    def report_parts(self, value: Value, reports: Reports) -> Iterator[ReportPart]:
        """Yield (key, answer), with answers absent, - and +."""
        spec, keys = self.spec, range(self.task.domain_size)
        owned = cast("dict[int, float]", value)
        truthful = spec.key_true_weight / (spec.key_true_weight + spec.key_other_weight)
        true, other = spec.value_true_weight, spec.value_other_weight
        fakes = spec.fakes or [(spec.low + spec.high) / 2] * len(keys)
        present = np.array([truthful if key in owned else 1 - truthful for key in keys])
        held = np.array([self._in_unit(owned.get(key, fakes[key])) for key in keys])
        plus = (1 + held * (true - other) / (true + other)) / 2
        chances = np.stack([1 - present, present * (1 - plus), present * plus], axis=1)
        cells = reports["key"].astype(np.int64) * 3 + reports["answer"]
        pairs = chances.ravel()[np.newaxis] / len(keys)
        yield ReportPart(name="keys and answers", cells=cells, chances=pairs)


FAMILIES: Final[Families] = {
    **dict.fromkeys(
        (Laplace, Duchi, Piecewise, Hybrid, Harmony, MeanEst, MultiHm, MultiRphm), RandomizedNumbers
    ),
    PrivKv: RandomizedPairs,
}
