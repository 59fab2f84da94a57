"""Reports on texts, numbers and pairs, drawn by the deployed code, and their laws by view."""

from dataclasses import dataclass
from math import comb
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from common.mechanisms.base import Reports, Vector
from common.mechanisms.key_value.pairs import Pairs
from common.mechanisms.numeric.multi_rphm import projection
from common.mechanisms.rappor.rappor import Rappor
from common.mechanisms.registry import randomizer_of
from common.messages.value import Value
from common.task.specs import KeyValueSpec, NumberSpec, RapporSpec, spec_as
from common.task.task import Task
from common.task_digest import DIGEST_BYTES, TaskDigest
from deploy.audit.laws.value_laws import AnswerLaw, answer_law, corner_law, pair_law, to_unit
from user_agent.encoding import layout_of

DIGEST: Final = TaskDigest(bytes(DIGEST_BYTES))
_SECRET_BYTES: Final = 32
_AT_ONCE: Final = 2_000_000
"""Numbers, or keys, of people whose reports are drawn together."""
FEW_CORNERS: Final = 8
"""Numbers of a vector up to which all corners of the cube are listed."""

Cells = NDArray[np.int64]


def draw(task: Task, value: Value, count: int, rng: np.random.Generator) -> Reports:
    """Make reports of so many people who all hold one value, as their devices would."""
    randomizer = randomizer_of(task)
    if task.kind == "string":
        # A permanent response is drawn anew for each person, whose secret nobody else has.
        secrets = [rng.bytes(_SECRET_BYTES) for _ in range(count)]
        responses = cast("Rappor", randomizer).permanent([str(value)] * count, secrets)
        return randomizer.randomize(responses, rng)
    laid_out = layout_of(task, None)(value, rng)
    together = max(1, _AT_ONCE // task.domain_size)
    parts = [min(together, count - start) for start in range(0, count, together)]
    return np.concatenate([randomizer.randomize(_many(laid_out, part), rng) for part in parts])


def _many(laid_out: Any, count: int) -> Any:  # noqa: ANN401  # as the mechanism takes it
    """Give one person's value so many times."""
    if not isinstance(laid_out, Pairs):
        return np.repeat(laid_out, count, axis=0)
    return Pairs(
        offsets=np.arange(count + 1, dtype=np.int64) * len(laid_out.keys),
        keys=np.tile(laid_out.keys, count),
        values=np.tile(laid_out.values, count),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class View:
    """One thing to be seen of each report, and its law for a value."""

    name: str
    cells: Cells
    """What each report shows, shape (n,)."""
    chances: Vector
    """Of each cell."""


def views(task: Task, value: Value, reports: Reports) -> tuple[View, ...]:
    """Give what reports on one value show, and their law; of bits nothing: see `set_bits`."""
    if task.kind == "key-value":
        spec = spec_as(task.mechanism, KeyValueSpec)
        owned = cast("dict[int, float]", value)
        cells = reports["key"].astype(np.int64) * 3 + reports["said"]
        law = pair_law(spec, task.domain_size, owned)
        return (View(name="keys and what is said of them", cells=cells, chances=law),)
    if task.kind == "string":
        cohorts = spec_as(task.mechanism, RapporSpec).cohorts
        even = np.full(cohorts, 1 / cohorts)
        return (View(name="cohorts", cells=reports["cohort"].astype(np.int64), chances=even),)
    return _number_views(spec_as(task.mechanism, NumberSpec), numbers_of(task, value), reports)


def numbers_of(task: Task, value: Value) -> list[float]:
    """Give a person's numbers in -1 .. 1, projected where the task projects them."""
    spec = spec_as(task.mechanism, NumberSpec)
    given = value if isinstance(value, tuple) else (cast("float", value),)
    numbers = [to_unit(number, spec.low, spec.high) for number in given]
    if not spec.projected:
        return numbers
    matrix = projection(task.nonce, task.domain_size, spec.projected)
    return [float(number) for number in np.clip(np.asarray(numbers) @ matrix, -1, 1)]


def _number_views(spec: NumberSpec, numbers: list[float], reports: Reports) -> tuple[View, ...]:
    names = reports.dtype.names or ()
    if "bits" in names:
        if len(numbers) > FEW_CORNERS:
            return ()
        law, _ = corner_law(spec, numbers)
        cells = reports["bits"][:, 0].astype(np.int64)
        return (View(name="corners", cells=cells, chances=law),)
    if "coordinates" not in names:
        cells = reports[names[0]].astype(np.int64)
        return (View(name="answers", cells=cells, chances=answer_law(spec, numbers[0]).chances),)
    laws = [answer_law(spec, number) for number in numbers]
    return tuple(
        _told(spec, laws, reports, place, name)
        for place, name in ((0, "the first answer"), (spec.sampled - 1, "the last answer"))
    )


def _told(spec: NumberSpec, laws: list[AnswerLaw], reports: Reports, place: int, name: str) -> View:
    """Look at one of the coordinates that are told in rising order: which, and what of it."""
    size, told = len(laws), spec.sampled
    codes = len(laws[0].chances)
    which = [comb(c, place) * comb(size - 1 - c, told - 1 - place) for c in range(size)]
    law = [ways / comb(size, told) * one.chances for ways, one in zip(which, laws, strict=True)]
    coordinates = reports["coordinates"][:, place].astype(np.int64)
    cells = coordinates * codes + reports["codes"][:, place].astype(np.int64)
    return View(name=name, cells=cells, chances=np.concatenate(law))


def set_bits(spec: RapporSpec, reports: Reports) -> NDArray[np.bool_]:
    """Give which bits reports show as set, shape (n, bits)."""
    bits = np.unpackbits(reports["bits"], axis=1, count=spec.bits, bitorder="little")
    return bits.astype(np.bool_)


def stand_for(task: Task, reports: Reports) -> Vector:
    """
    Give what each report on numbers stands for, by its law alone; shape (n, told dimensions).

    Of a projection: for the projected numbers.
    """
    spec = spec_as(task.mechanism, NumberSpec)
    size = spec.projected or task.domain_size
    names = reports.dtype.names or ()
    if "bits" in names:
        _, scale = corner_law(spec, [0.0] * size)
        bits = np.unpackbits(reports["bits"], axis=1, count=size, bitorder="little")
        return np.where(bits > 0, scale, -scale)
    stands = answer_law(spec, 0.0).stands
    if "coordinates" not in names:
        return stands[reports[names[0]].astype(np.int64)][:, np.newaxis]
    told = np.zeros((len(reports), size))
    worth = size / spec.sampled * stands[reports["codes"].astype(np.int64)]
    np.put_along_axis(told, reports["coordinates"].astype(np.int64), worth, axis=1)
    return told


def law_of_one(task: Task, numbers: list[float]) -> tuple[Vector, Vector]:
    """Give the variance of what one report stands for, and the most it is off; by dimension."""
    spec = spec_as(task.mechanism, NumberSpec)
    size, told = len(numbers), np.asarray(numbers)
    if spec.name == "mean-est":
        _, scale = corner_law(spec, numbers)
        return scale**2 - told**2, np.full(size, scale + 1)
    worth = size / spec.sampled
    laws = [answer_law(spec, number) for number in numbers]
    squares = np.array([worth * law.square for law in laws])
    return squares - told**2, np.full(size, worth * float(np.abs(laws[0].stands).max()) + 1)


def name_of(task: Task) -> str:
    """Name a task's mechanism, with what tells tasks of one mechanism apart."""
    spec = task.mechanism
    if isinstance(spec, RapporSpec):
        return f"rappor of {spec.bits} bits"
    return spec.name
