"""Among whom a victim hides: honest users and dummies, less what the adversary knows."""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from common.accounting.binomial import RELATIVE_ERROR
from common.accounting.count_distributions import (
    MAX_COUNT,
    Binomial,
    Conditioned,
    CountDistribution,
    NegativeBinomial,
    upper_quantile,
)
from common.accounting.item_noise import ItemNoiseRelease
from common.errors import AccountingError
from common.task.dummy_spec import DummySpec


@dataclass(frozen=True, slots=True, kw_only=True)
class AnonymitySet:
    """
    The users and dummies of one batch. The victim is one of `users`.

    Dummies may be the users' own or the shuffler's: the analyzer cannot tell. Those of colluding
    users, and of users who skip theirs, are not among them.
    """

    users: int
    dummies: int = 0
    """Honest dummies that are there for certain, the victim's own included."""
    random_dummies: CountDistribution | None = None
    """Law of the number of further honest dummies, independent of every value."""
    known_dummies: int = 0
    """Dummies, of all these, that the adversary can tell apart and drop."""
    colluders: int = 0
    """Users among `users` whose reports the adversary knows."""

    def __post_init__(self) -> None:
        for name, value, least in (
            ("users", self.users, 1),
            ("dummies", self.dummies, 0),
            ("known_dummies", self.known_dummies, 0),
            ("colluders", self.colluders, 0),
        ):
            if not least <= value <= MAX_COUNT:
                raise AccountingError(f"{name} is {value}; it must be {least} .. {MAX_COUNT}")
        if self.colluders >= self.users:
            raise AccountingError(
                f"{self.colluders} colluders among {self.users} users leave nobody to protect"
            )
        if self.random_dummies is None and self.known_dummies > self.dummies:
            raise AccountingError(
                f"known_dummies is {self.known_dummies}; there are {self.dummies} dummies"
            )

    @property
    def others(self) -> int:
        """Honest users besides the victim."""
        return self.users - 1 - self.colluders


_LEAST_KEPT: Final = 1e-6
"""Where less than this is left of a law, nothing is known of what it is conditioned on."""
_CROWDED_TAIL: Final = 1e-20
"""Probability that more users than are counted out had no room; it is charged to δ."""


def uniform_dummies(spec: DummySpec, users: int) -> CountDistribution:
    """
    Give the law of the uniform dummies beyond the certain ones, of so many users together.

    A negative binomial number is conditioned on at most `most`, by each user alone: on an event
    of probability (1 - P(X > most))^users. Where next to nothing is left of it, none is counted:
    fewer dummies never protect more.
    """
    # Of users beyond what is counted the dummies are left out.
    users = min(users, MAX_COUNT // max(1, spec.trials))
    trials, chance = users * spec.trials, spec.extra_chance
    if spec.law != "negative-binomial":
        return Binomial(trials, chance)
    odds = chance / (1 - chance)
    missing = _missing(_beyond(NegativeBinomial(spec.trials, spec.trials * odds), spec.most), users)
    if missing == 0:
        return NegativeBinomial(trials, trials * odds)
    if missing > 1 - _LEAST_KEPT:
        return Binomial(0, 0.0)
    return Conditioned(NegativeBinomial(trials, trials * odds), missing)


def each_item_release(spec: DummySpec, users: int) -> ItemNoiseRelease:
    """
    Give one round in which so many users add a dummy of each item with a chance c [BC20].

    All of a user's are conditioned on at most `most`. Let W be how many of the d - 2 items other
    than x and x' it adds. Suppose that the adversary is told everybody's W and, of whoever has
    W > most - 2, the dummies of x and x' too: it then knows more than it does. All other users'
    dummies of x and x' are independent with the chance c, as if nothing were conditioned.
    P(W > most - 2 | at most `most` in all) ≤ P(W > most - 2) / P(at most `most` in all) bounds how
    many users are to be counted out; that there are more of them is charged to δ.
    """
    chance = spec.extra_chance
    crowded = _beyond(Binomial(max(0, spec.trials - 2), chance), spec.most - 2)
    drawn = 1 - _beyond(Binomial(spec.trials, chance), spec.most)
    share = crowded / drawn * (1 + RELATIVE_ERROR) if drawn > 0 else 1.0
    without_room = Binomial(users, min(share, 1.0))
    out = min(int(upper_quantile(without_room, _CROWDED_TAIL)), users)
    return ItemNoiseRelease(noise=Binomial(users - out, chance), missing=_beyond(without_room, out))


def _beyond(law: CountDistribution, most: int) -> float:
    """Give P(X > most), rounded up."""
    return float(law.tails(np.array([float(most)]))[1][0]) * (1 + RELATIVE_ERROR)


def _missing(chance: float, users: int) -> float:
    """Give 1 - (1 - chance)^users, rounded up."""
    if chance >= 1:
        return 1.0
    return min(1.0, -math.expm1(users * math.log1p(-chance)) * (1 + RELATIVE_ERROR))
