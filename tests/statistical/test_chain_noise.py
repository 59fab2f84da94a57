"""The noise that either of two shufflers draws keeps the claim against all the others."""

import math
from functools import cache
from typing import Final

import numpy as np
import pytest
from numpy.typing import NDArray

from shuffledp.audit.families.references import noise_chances
from shuffledp.audit.statistics import probability_lower, probability_upper
from shuffledp.common.task.shuffler_spec import BinomialNoise, GeometricNoise
from shuffledp.common.task.task import Task
from shuffledp.shuffler.shuffle_job import _draw_dummies
from tests.support.chains import chain
from tests.support.tasks import published

_Noise = BinomialNoise | GeometricNoise
_NOISES: Final[dict[str, tuple[_Noise, _Noise]]] = {
    "sageo": (
        GeometricNoise(peak=9, left_weight=2**29, right_weight=2**29, most=18),
        GeometricNoise(peak=14, left_weight=5 * 2**27, right_weight=5 * 2**27, most=28),
    ),
    "sbin": (BinomialNoise(trials=40), BinomialNoise(trials=150)),
}
_ITEMS: Final = 20_000
_SEEDS: Final = 100
"""Draws of all items: a million pairs of items together."""
_LEVEL: Final = 1e-4 / 2


@cache
def _task(protocol: str) -> Task:
    return published(**chain(*_NOISES[protocol]), domain_size=_ITEMS, delta=0.01).task


@cache
def _drawn(protocol: str, hop: int) -> NDArray[np.int64]:
    """Draw as the shuffler does, each time from another seed; pairs of items, shape (pairs, 2)."""
    rng = np.random.default_rng(hop + 1)
    drawn = [_draw_dummies(_task(protocol), hop, rng.bytes(32)) for _ in range(_SEEDS)]
    return np.concatenate(drawn).reshape(-1, 2)


@pytest.mark.parametrize("hops", [(0,), (1,), (0, 1)], ids=["first", "second", "both"])
@pytest.mark.parametrize("protocol", _NOISES)
def test_no_game_on_a_million_draws_beats_the_claim(protocol: str, hops: tuple[int, ...]) -> None:
    """
    A user with one of two items is guessed from the counts of both, all others' values known.

    The region of guesses is the best for the exact distribution, so that 80 % of ε is beaten. With
    the seeds 1 and 2; over seeds a bound above the claim appears by chance with probability 1e-4.
    """
    task, law = _task(protocol), np.ones(1)
    noise = np.sum([_drawn(protocol, hop) for hop in hops], axis=0)
    for hop in hops:
        law = np.convolve(law, noise_chances(_NOISES[protocol][hop]))
    claim = task.central_epsilon if len(hops) > 1 else task.coalition_epsilon

    assert _bound(noise, law, claim) <= task.delta
    if hops != (1,):  # whose noise is the larger of two
        assert _bound(noise, law, 0.8 * claim) > task.delta


def _bound(noise: NDArray[np.int64], law: NDArray[np.float64], epsilon: float) -> float:
    """Return a lower bound on δ at ε, which is wrong with probability 1e-4."""
    with_user, without = np.append(0.0, law), np.append(law, 0.0)
    here, there = np.outer(with_user, without), np.outer(without, with_user)
    region = here > math.exp(epsilon) * there
    right, wrong = (
        int(region[noise[:, 0] + at_first, noise[:, 1] + 1 - at_first].sum()) for at_first in (1, 0)
    )
    lower = probability_lower(right, len(noise), _LEVEL)
    return float(lower - math.exp(epsilon) * probability_upper(wrong, len(noise), _LEVEL))


def test_the_game_beats_a_second_shuffler_that_only_permutes() -> None:
    """At any ε."""
    noise = np.zeros((_ITEMS * _SEEDS // 2, 2), dtype=np.int64)

    assert _bound(noise, np.ones(1), 8.0) > 0.9
