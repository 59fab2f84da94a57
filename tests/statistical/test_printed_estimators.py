"""
Printed formulas of the OD-HP paper [CC24], and the corrected ones that this program uses.

The error of a printed formula follows from the mechanism. Four hundred collections from 5,000
people over twenty items; seeds are stated.
"""

from typing import Any, Final

import numpy as np
import pytest

from common.mechanisms.base import Mixture, Vector
from common.mechanisms.hashing.local_hashing import LocalHashing, family_for
from common.mechanisms.support import SupportCounting
from common.mechanisms.weights import ResponseWeights

_ITEMS: Final = 20
_USERS: Final = 5000
_DUMMIES: Final = 5000
"""One for each user."""
_H: Final = 7
_RUNS: Final = 400
_LIMIT: Final = 7.0
_EPSILON: Final = 2.0

_COUNTS: Final = np.concatenate([[2000, 1000], np.repeat(2000 // 18, 17), [0]])
_USERS_BY_ITEM: Final = np.append(_COUNTS[:-1], _USERS - _COUNTS.sum())
_TRUTH: Final = _USERS_BY_ITEM / _USERS


def _hashing() -> LocalHashing:
    return LocalHashing(
        _ITEMS, family_for(_ITEMS, _H), ResponseWeights.for_epsilon(_EPSILON), b"n" * 32
    )


def _supports(mechanism: Any, seed: int, *, n_dummies: int) -> Vector:
    """Return C_v of many collections, shape (runs, items)."""
    assert isinstance(mechanism, SupportCounting)
    rng = np.random.default_rng(seed)
    cells = (
        mechanism.sample_cells(_USERS_BY_ITEM, n_dummies, rng)  # type: ignore[attr-defined]
        for _ in range(_RUNS)
    )
    return np.array([mechanism.support_counts(each) for each in cells], dtype=np.float64)


def _off_by(estimates: Vector, bias: Vector) -> float:
    """Return the largest distance of the mean error from a bias, in standard errors."""
    errors = estimates - _TRUTH
    spread = errors.std(axis=0) / np.sqrt(_RUNS)
    return float((np.abs(errors.mean(axis=0) - bias) / spread).max())


def _printed(supports: Vector, p: float) -> Vector:
    """Equation in the text: (C_v/n - 1/h) / (p - 1/h)."""
    return (supports / _USERS - 1 / _H) / (p - 1 / _H)


@pytest.mark.parametrize("n_dummies", [0, _DUMMIES])
def test_the_corrected_estimator_is_unbiased(n_dummies: int) -> None:
    """
    (C_v - n/h - M/h) / (n(p - 1/h)), the one of this program.

    Seed 1; 20 means of 400 collections within seven standard errors: false alarm below 1e-9.
    """
    mechanism = _hashing()
    supports = _supports(mechanism, 1, n_dummies=n_dummies)
    signal = mechanism.p - 1 / _H
    corrected = (supports - _USERS / _H - n_dummies / _H) / (_USERS * signal)
    mixture = Mixture(n_real=_USERS, n_dummies=n_dummies)
    rng = np.random.default_rng(1)
    cells = mechanism.sample_cells(_USERS_BY_ITEM, n_dummies, rng)

    assert _off_by(corrected, np.zeros(_ITEMS)) < _LIMIT
    np.testing.assert_allclose(mechanism.debias(cells, mixture), corrected[0], rtol=1e-9)


def test_the_printed_estimator_is_too_high_by_the_support_of_dummies() -> None:
    """
    Every share, by m/h / (p - 1/h): one dummy a user in seven buckets, .35.

    Seed 3; false alarm below 1e-9. Its squared error is hundreds of times the theory's.
    """
    mechanism = _hashing()
    printed = _printed(_supports(mechanism, 3, n_dummies=_DUMMIES), mechanism.p)
    bias = 1 / _H / (mechanism.p - 1 / _H)
    mixture = Mixture(n_real=_USERS, n_dummies=_DUMMIES)
    theory = mechanism.variance(_TRUTH, mixture).mean()

    assert 0.35 == pytest.approx(bias, abs=0.01)
    assert _off_by(printed, np.full(_ITEMS, bias)) < _LIMIT
    assert _off_by(printed, np.zeros(_ITEMS)) > 100
    assert ((printed - _TRUTH) ** 2).mean() > 300 * theory


def test_theorem_3_is_corrected_for_the_collisions_of_hashes() -> None:
    """
    (1+m)(e^ε+h-1)² / (n(h-1)(e^ε-1)²) for a rare item, within 10 %.

    Printed is plain items' variance, with (e^ε+h-2)² in the part of the dummies: half of it.
    Seed 6; 2,000 collections of 19 items: the ratio's deviation is below 1 % (3 % if all items
    were one), so that the limits are passed by chance with probability below 1e-9.
    """
    mechanism, e, m, n = _hashing(), np.exp(_EPSILON), 1, _USERS
    corrected = (1 + m) * (e + _H - 1) ** 2 / (n * (_H - 1) * (e - 1) ** 2)
    printed = (e + _H - 2) / (n * (e - 1) ** 2) + m * (_H - 1) / (n * _H**2) * (
        (e + _H - 2) / (e - 1)
    ) ** 2
    rng, users = np.random.default_rng(6), np.zeros(_ITEMS, dtype=np.int64)
    users[0] = n
    mixture = Mixture(n_real=n, n_dummies=_DUMMIES)
    rare = [
        mechanism.debias(mechanism.sample_cells(users, _DUMMIES, rng), mixture)[1:]
        for _ in range(2000)
    ]
    ratio = float(np.var(rare, axis=0).mean()) / corrected

    assert 1 == pytest.approx(ratio, abs=0.1)
    assert ratio * corrected / printed > 1.5
