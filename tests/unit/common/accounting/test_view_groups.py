"""Stand-ins for views of many sizes: never more private, and hardly less."""

import math
from dataclasses import replace
from functools import reduce
from typing import Any, Final

import numpy as np
import pytest

from shuffledp.common.accounting.anonymity_set import AnonymitySet
from shuffledp.common.accounting.composition import ComposedRelease
from shuffledp.common.accounting.count_distributions import Binomial, Groups
from shuffledp.common.accounting.privacy_parameters import MAX_DISTINCT_VIEWS, grouped
from shuffledp.common.accounting.releases import AmplifiedRelease, LocalRelease, Release
from tests.support.reductions import of_grr

_SIZES: Final = tuple(range(4, 4 + 3 * MAX_DISTINCT_VIEWS))


def _view(items: int, each: float, users: int = 100) -> AmplifiedRelease:
    """Return a view among so many dummies of each item, a part of them random."""
    fixed, random = divmod(each * items, users)
    added = AnonymitySet(
        users=users, dummies=users * int(fixed), random_dummies=Binomial(users, random / users)
    )
    return AmplifiedRelease(reduction=of_grr(items, math.inf), anonymity_set=added)


def _on_two_items(release: AmplifiedRelease) -> Any:
    """Enumerate the number of dummies of two given items: coins, one after the other."""
    added, share = release.anonymity_set, 2 / release.reduction.answers
    random = added.random_dummies or Binomial(0, 0.0)
    assert isinstance(random, Binomial)
    coins = [share] * added.dummies + [random.chance * share] * random.trials
    return reduce(lambda law, chance: np.convolve(law, [1 - chance, chance]), coins, np.ones(1))


@pytest.mark.parametrize("each", [0.4, 3.0, 25.0])
def test_a_stand_in_has_stochastically_fewer_dummies_of_two_items(each: float) -> None:
    """Than every view that it stands for, whatever these have of each item; by enumeration."""
    views = [_view(size, each * (1 + size % 3 / 7)) for size in _SIZES]
    found = grouped(views)

    assert MAX_DISTINCT_VIEWS == len({*found})
    for view, instead in zip(views, found, strict=True):
        assert isinstance(instead, AmplifiedRelease)
        own, other = (np.cumsum(_on_two_items(one)) for one in (view, instead))
        least = min(len(own), len(other))
        assert (own[:least] <= other[:least] + 1e-12).all()
        assert (own[least:] <= 1 + 1e-12).all()


def test_many_tables_are_hardly_charged_more_for_being_checked_in_time() -> None:
    """24 tables of 24 sizes cost at most 2 % more in ε, and not less."""
    views = [_view(size, 400.0) for size in _SIZES[:24]]
    exact = ComposedRelease(releases=tuple(views)).epsilon(1e-6)

    assert exact <= ComposedRelease(releases=grouped(views)).epsilon(1e-6) <= 1.02 * exact


def test_what_has_no_stand_in_stays() -> None:
    """Few kinds, local noise, dummies that are known or come all or none, other releases."""
    few = [_view(size, 3.0) for size in _SIZES[:MAX_DISTINCT_VIEWS]] * 3
    assert tuple(few) == grouped(few)

    many = [_view(size, 3.0) for size in _SIZES]
    added = many[-1].anonymity_set
    others: list[Release] = [
        replace(many[-1], reduction=of_grr(90, 2.0)),
        replace(many[-1], anonymity_set=replace(added, known_dummies=1)),
        replace(many[-1], anonymity_set=replace(added, random_dummies=Groups(Binomial(1, 0.9), 9))),
        _view(2, 3.0),
        LocalRelease(local_epsilon=1.0),
    ]
    found = grouped([*many, *others])

    assert tuple(others) == found[-len(others) :]
    assert MAX_DISTINCT_VIEWS == len({*found})


def test_a_stand_in_has_no_more_dummies_than_can_be_counted() -> None:
    """Views with the most fixed dummies, and more of a random number."""
    most = AnonymitySet(users=9, dummies=10**9, random_dummies=Binomial(10**8, 0.5))
    views = [
        AmplifiedRelease(reduction=of_grr(1000 + more, math.inf), anonymity_set=most)
        for more in range(20)
    ]
    [*_, last] = grouped(views)

    assert isinstance(last, AmplifiedRelease)
    assert 10**9 == last.anonymity_set.dummies
