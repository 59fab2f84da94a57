"""
A dishonest one of two shufflers, with the analyzer, at δ = .01 over a million draws.

Adversaries of its own, apart from the audit's: each scores the counts of the victim's two items,
and chooses a threshold on draws of their own. Bounds are one-sided, of confidence 99.99 %: over
seeds, each is above the true δ with probability 1e-4. Seeds are fixed.
"""

import itertools
import math
from collections.abc import Callable
from functools import cache
from typing import Final

import numpy as np
import pytest
from numpy.typing import NDArray

from audit.statistics import probability_lower, probability_upper
from common.accounting.guarantees import PrivacyParameters, guarantees_under
from common.messages.guarantee import Guarantee
from common.task.shuffler_spec import BinomialNoise, GeometricNoise, ShufflerSpec
from common.task.task import Task
from tests.support.chains import chain
from tests.support.tasks import published

pytestmark = pytest.mark.slow

Scores = NDArray[np.float64]
_Noise = GeometricNoise | BinomialNoise
_DRAWS: Final = 1_000_000
_CHOOSING: Final = 200_000
"""More draws, which choose the threshold."""
_LEVEL: Final = 1e-4
_DELTA: Final = 0.01
_NOISES: Final[dict[str, tuple[_Noise, _Noise]]] = {
    "sageo": (
        GeometricNoise(peak=8, left_weight=2**29, right_weight=2**29, most=16),
        GeometricNoise(peak=15, left_weight=5 * 2**27, right_weight=3 * 2**28, most=45),
    ),
    "sbin": (BinomialNoise(trials=40), BinomialNoise(trials=150)),
}
_HONEST: Final = {"analyzer+second-shuffler": 0, "analyzer+first-shuffler": 1}
"""Place of the honest shuffler, by the coalition."""


@cache
def _task(protocol: str) -> Task:
    sizes = {"domain_size": 4, "n_min": 10, "target_size": 20}
    return published(**chain(*_NOISES[protocol]), **sizes, delta=_DELTA).task


def _claim(task: Task, coalition: str) -> Guarantee:
    rows = guarantees_under(PrivacyParameters.of(task), task.n_min)
    return next(row for row in rows if row.coalition == coalition)


def _counts(spec: ShufflerSpec, copies: int, rng: np.random.Generator) -> tuple[Scores, Scores]:
    """Draw the counts of the item that the victim holds and of the other, (draws, 2) in all."""
    held, other = spec.draw_item_dummies(2 * (_DRAWS + _CHOOSING), rng).reshape(2, -1)
    return held.astype(np.float64) + copies, other.astype(np.float64)


@cache
def _odds(spec: ShufflerSpec) -> Scores:
    """Return the log odds that the report is in a count, by frequencies of the noise."""
    drawn = spec.draw_item_dummies(4 * _DRAWS, np.random.default_rng(8))
    chances = np.bincount(drawn, minlength=spec.noise.most + 60) / len(drawn)
    with np.errstate(divide="ignore", invalid="ignore"):
        odds = np.log(np.concatenate([[0.0], chances[:-1]])) - np.log(chances)
    return np.asarray(np.nan_to_num(odds, nan=0.0, posinf=1e9, neginf=-1e9))


def _likely(spec: ShufflerSpec, first: Scores, second: Scores) -> Scores:
    odds = _odds(spec)
    return np.asarray(odds[first.astype(int)] - odds[second.astype(int)])


_ADVERSARIES: Final[dict[str, Callable[[ShufflerSpec, Scores, Scores], Scores]]] = {
    "likelihood": _likely,
    "difference": lambda _, first, second: first - second,
    "one count": lambda _, first, __: first,
    "the other count": lambda _, __, second: -second,
    "rarest count": lambda spec, first, second: (
        np.where(second == 0, 1e9, 0) + np.where(first > spec.noise.most, 1e9, 0)
    ),
}


def _delta(first: Scores, second: Scores, epsilon: float) -> tuple[float, float]:
    """Bound and estimate δ at ε, for the event that scores favour the first world."""
    chosen = [np.sort(scores[:_CHOOSING]) for scores in (first, second)]
    values = np.unique(np.concatenate(chosen))
    hits, misses = (len(scores) - np.searchsorted(scores, values) for scores in chosen)
    threshold = values[int(np.argmax(hits - math.exp(epsilon) * misses))]
    hit, missed = (int((scores[_CHOOSING:] >= threshold).sum()) for scores in (first, second))
    true = float(probability_lower(hit, _DRAWS, _LEVEL / 2))
    bound = true - math.exp(epsilon) * float(probability_upper(missed, _DRAWS, _LEVEL / 2))
    return bound, (hit - math.exp(epsilon) * missed) / _DRAWS


def _worlds(spec: ShufflerSpec, adversary: str, copies: int, seed: int) -> tuple[Scores, Scores]:
    """Return an adversary's scores if the victim holds the first item, and if the second."""
    score, rng = _ADVERSARIES[adversary], np.random.default_rng(seed)
    held, other = _counts(spec, copies, rng)
    its, another = _counts(spec, copies, rng)
    return score(spec, held, other), score(spec, another, its)


@pytest.mark.parametrize(
    ("protocol", "coalition", "adversary"), [*itertools.product(_NOISES, _HONEST, _ADVERSARIES)]
)
def test_no_adversary_gains_more_than_the_row_of_its_coalition(
    protocol: str, coalition: str, adversary: str
) -> None:
    """In both orders of the neighbours; the likelihood ratio gains half of δ or more."""
    task, claimed = _task(protocol), _claim(_task(protocol), coalition)
    worlds = _worlds(task.hop(_HONEST[coalition]), adversary, 1, 1)
    negative = (-worlds[1], -worlds[0])
    found = [_delta(*pair, claimed.epsilon) for pair in (worlds, negative)]
    bounds, estimates = zip(*found, strict=True)

    assert claimed.delta == _DELTA
    assert _DELTA >= max(bounds)
    assert adversary != "likelihood" or min(estimates) > 0.5 * _DELTA


@pytest.mark.parametrize("copies", [1, 50], ids=["only permuted", "repeats kept"])
@pytest.mark.parametrize("coalition", _HONEST)
def test_the_same_adversary_breaks_shufflers_that_fall_short(coalition: str, copies: int) -> None:
    """Without noise, or with every copy of the victim's report counted."""
    task, epsilon = _task("sbin"), _claim(_task("sbin"), coalition).epsilon
    spec = task.hop(_HONEST[coalition]) if copies > 1 else ShufflerSpec()

    bound, _ = _delta(*_worlds(spec, "difference", copies, 2), epsilon)

    assert bound > 0.99
