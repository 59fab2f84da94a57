"""
The true δ of tiny batches, of every kind that there is a formula for, beside what is claimed.

The batches are tasks of two or three users, their crowd and release those of the accountant; the
truth is found by listing everything that can be seen.
"""

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from common.accounting.guarantees import Terms
from common.mechanisms.reduction import MatchCountReduction
from common.task.dummy_spec import NO_DUMMIES, DummySpec
from common.task.shuffler_spec import KEEP_SUM, PERMUTES, RATIO_SUM, ShufflerSpec
from deploy.audit.checks import Checks
from deploy.audit.code.enumeration import (
    Law,
    grr_law,
    hashing_law,
    own_dummies_law,
    true_delta,
    true_delta_of_one_user,
    true_delta_with_item_noise,
    uniform_law,
)
from deploy.audit.laws.dummy_laws import law_of_added, law_of_extra

_ITEMS: Final = 3
_MANY_ITEMS: Final = (4, 12, 50)
_EPSILONS: Final = (0.2, 0.8, 1.5)
_LISTING_ERROR: Final = 1e-12
_LOOSE: Final = 2.5
"""How many times the truth a claim on a tiny batch may be, to be one on this very batch."""
_NOISY: Final = 2.0
_DELTA: Final = 1e-6
_MOST_HASHED: Final = 4
"""Messages of which all batches of hashes are listed: nine kinds each."""

_DRAWN: Final[tuple[tuple[str, DummySpec], ...]] = (
    ("no dummies", NO_DUMMIES),
    ("two dummies each", DummySpec(law="fixed", per_user=2)),
    ("dummies by chance", DummySpec.averaging(1.4)),
    (
        "binomial dummies",
        DummySpec(law="binomial", per_user=0, trials=2, extra_weight=2**31, most=2),
    ),
    (
        "negative binomial dummies",
        DummySpec(law="negative-binomial", per_user=0, trials=1, extra_weight=2**31, most=2),
    ),
)
_ADDED: Final[tuple[tuple[str, ShufflerSpec], ...]] = (
    ("coins", ShufflerSpec(law="binomial", keep_weight=KEEP_SUM // 2, trials=6, most=6)),
    (
        "flanks",
        ShufflerSpec(
            law="geometric",
            peak=2,
            left_weight=RATIO_SUM // 3,
            right_weight=RATIO_SUM // 2,
            most=6,
        ),
    ),
)


def check_tiny(checks: Checks) -> None:
    """Compare, for dummies by users and by the shuffler, with and without local noise."""
    for name, dummies in _DRAWN:
        for users in (1, 2, 3):
            _check_drawn(checks, name, dummies, users)
    for name, shuffler in _ADDED:
        _check_added(checks, f"the shuffler's {name}", shuffler, math.inf)
    _check_added(checks, "the shuffler's flanks over noise", _ADDED[1][1], _NOISY)
    _check_each_item(checks)
    for items in _MANY_ITEMS:
        _check_many_items(checks, items)


def _terms(
    *,
    items: int = _ITEMS,
    local_epsilon: float = _NOISY,
    hashed: bool = False,
    dummies: DummySpec = NO_DUMMIES,
    shuffler: ShufflerSpec = PERMUTES,
) -> Terms:
    """Give what a guarantee over so many items follows from."""
    return Terms(
        reduction=MatchCountReduction.for_epsilon(
            answers=items, local_epsilon=local_epsilon, hashed=hashed
        ),
        local_epsilon=local_epsilon,
        dummies=dummies,
        shuffler=shuffler,
        delta=_DELTA,
        assumed_honest_fraction=1.0,
    )


def _compare(
    checks: Checks, name: str, terms: Terms, users: int, truths: dict[float, float]
) -> None:
    release = terms.release(terms.crowd_of(users, users, users, 0))
    for epsilon, truth in truths.items():
        claimed = release.delta(epsilon)
        checks.must(
            f"{name}: no δ of a tiny batch is below the truth", truth <= claimed + _LISTING_ERROR
        )
        checks.must(
            f"{name}: no δ of a tiny batch is far above it",
            claimed <= _LOOSE * truth + _LISTING_ERROR,
        )


def _check_drawn(checks: Checks, name: str, dummies: DummySpec, users: int) -> None:
    """List randomized response, and hashing with every seed, among uniform dummies."""
    kinds: tuple[tuple[str, Sequence[Law], bool], ...] = (
        ("answers", [grr_law(value, _ITEMS, _NOISY) for value in range(_ITEMS)], False),
        ("hashes", [hashing_law(v, _ITEMS, _NOISY, range(_ITEMS)) for v in range(_ITEMS)], True),
    )
    for kind, laws, hashed in kinds:
        if hashed and users * (1 + dummies.maximum) > _MOST_HASHED:
            continue  # too many batches to list
        truths = {
            epsilon: true_delta(
                laws,
                users=users,
                dummies=_of_all(dummies, users),
                dummy=uniform_law(list(laws[0])),
                epsilon=epsilon,
            )
            for epsilon in _EPSILONS
        }
        terms = _terms(dummies=dummies, hashed=hashed)
        _compare(checks, f"{kind} among {name}", terms, users, truths)


def _of_all(dummies: DummySpec, users: int) -> dict[int, float]:
    """Give the law of all users' dummies together."""
    law = np.ones(1)
    for _ in range(users):
        law = np.convolve(law, law_of_extra(dummies))
    return {users * dummies.per_user + more: chance for more, chance in enumerate(law.tolist())}


def _check_added(checks: Checks, name: str, shuffler: ShufflerSpec, local_epsilon: float) -> None:
    """List what the shuffler drops and adds, for two users."""
    noisy = math.isfinite(local_epsilon)
    terms = _terms(shuffler=shuffler, local_epsilon=local_epsilon)
    laws: list[Law] = [
        grr_law(value, _ITEMS, local_epsilon) if noisy else {(value,): 1.0}
        for value in range(_ITEMS)
    ]
    noise = dict(enumerate(law_of_added(shuffler).tolist()))
    truths = {
        epsilon: true_delta_with_item_noise(
            laws, users=2, noise=noise, epsilon=epsilon, kept=shuffler.keep_weight / KEEP_SUM
        )
        for epsilon in _EPSILONS
    }
    _compare(checks, name, terms, 2, truths)


def _check_each_item(checks: Checks) -> None:
    """List dummies of each item, for two users without noise."""
    laws: list[Law] = [{(value,): 1.0} for value in range(_ITEMS)]
    for most in (_ITEMS, _ITEMS - 1, _ITEMS - 2):
        spec = DummySpec(law="each-item", per_user=0, trials=_ITEMS, extra_weight=2**31, most=most)
        own = own_dummies_law(_ITEMS, 0.5, most)
        truths = {
            epsilon: true_delta_with_item_noise(
                laws, users=2, noise={0: 1.0}, own=own, epsilon=epsilon
            )
            for epsilon in _EPSILONS
        }
        terms = _terms(dummies=spec, local_epsilon=math.inf)
        _compare(checks, f"dummies of each item, {most} at most", terms, 2, truths)


def _check_many_items(checks: Checks, items: int) -> None:
    """Of what the noise of all other items tells about a report's being on one of them."""
    _, shuffler = _ADDED[1]
    noise = law_of_added(shuffler).tolist()
    truths = {
        epsilon: true_delta_of_one_user(_NOISY, items=items, noise=noise, epsilon=epsilon)
        for epsilon in _EPSILONS
    }
    terms = _terms(items=items, shuffler=shuffler)
    release = terms.release(terms.crowd_of(1, 1, 1, 0))
    for epsilon, truth in truths.items():
        checks.must(
            "no δ of one report among many items with noise is below the truth",
            truth <= release.delta(epsilon) + _LISTING_ERROR,
        )
