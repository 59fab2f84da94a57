"""
The parameters from which the guarantees of a task follow, and what they release.

Read by the analyzer, the user agent and the planner.
"""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Final, Self

from shuffledp.common.accounting import releases
from shuffledp.common.accounting.anonymity_set import AnonymitySet
from shuffledp.common.accounting.clones import CloneRelease
from shuffledp.common.accounting.cluster_noise import OF_CLAIMS, Fineness
from shuffledp.common.accounting.composition import ComposedRelease
from shuffledp.common.accounting.count_distributions import MAX_COUNT, Binomial, Groups
from shuffledp.common.accounting.dummy_entries import Arrivals, arrivals_of, entry_of, uncovered
from shuffledp.common.accounting.hybrid_noise import HybridRelease
from shuffledp.common.accounting.item_noise import ItemNoiseRelease
from shuffledp.common.accounting.releases import LocalRelease, Release
from shuffledp.common.accounting.two_items import amplified
from shuffledp.common.errors import AccountingError
from shuffledp.common.mechanisms.reduction import MatchCountReduction, Reduction
from shuffledp.common.mechanisms.registry import randomizer_of, rappor_of
from shuffledp.common.messages.guarantee import NONE_WAIVED, Waived, sum_upper
from shuffledp.common.task.dummies import Dummies
from shuffledp.common.task.shuffler_spec import PERMUTE_ONLY, ShufflerSpec
from shuffledp.common.task.task import Task, honest_share

MAX_DISTINCT_VIEWS: Final = 16
"""Maximum number of different views: each takes a device a tenth of a second to check."""
_ROUNDING: Final = 1e-9
"""Relative margin for the rounding of sums of hazards."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivacyParameters:
    """The parameters of a task, published or planned, from which its guarantees follow."""

    reduction: Reduction | None
    """The reduction of one report; None if the guarantee relies on no shuffler."""
    local_epsilon: float
    """The promised local ε of one round, at least the reduction's own."""
    dummies: Dummies
    shuffler: ShufflerSpec = PERMUTE_ONLY
    """What all shufflers together do; of several views, with the dummies of the first."""
    hops: tuple[tuple[str, ShufflerSpec], ...] = ()
    """The name of each of two shufflers, and what it does alone, as above; empty for one."""
    delta: float
    """δ of all rounds together."""
    assumed_honest_fraction: float
    tokens: bool = False
    """Whether each submission spends a one-time token."""
    rounds: int = 1
    """Number of such tasks that the same users answer."""
    permanent: releases.PermanentRelease | None = None
    """One round whose reports share permanent noise with other rounds; None for other tasks."""
    views: tuple["PrivacyParameters", ...] = ()
    """Those of each of several views, as if a value were reported to it alone."""
    waived: Waived = NONE_WAIVED
    """The checks that the batch failed."""
    arrivals: tuple[Arrivals, ...] = ()
    """Dummies of each kind, if they are not counted by their distribution."""
    fineness: Fineness = OF_CLAIMS
    """How fine the bounds of clusters are."""

    @classmethod
    def of(cls, task: Task, waived: Waived = NONE_WAIVED, fineness: Fineness = OF_CLAIMS) -> Self:
        """
        Return the parameters of a task for one round; the reduction uses the integer weights.

        Raises AccountingError if the waived lengths are not the task's.
        """
        randomizer, shown = randomizer_of(task), entry_of(task.dummies).shown
        chain = [each.name for each in task.shufflers] if task.relay else []
        together = task.shuffler.by_view
        hops = [task.hop(place).by_view for place in range(len(chain))]
        by_arrivals = waived.by_length or (shown is not None and "refusals" in waived.checks)
        permanent = None
        if task.lasting:
            permanent = releases.PermanentRelease(
                local_epsilon=task.local_epsilon,
                scope=task.permanent_scope,
                permanent_epsilon=rappor_of(task).permanent_epsilon,
            )
        first = cls(
            waived=waived,
            fineness=fineness,
            arrivals=arrivals_of(task.dummies, waived.by_length) if by_arrivals else (),
            reduction=randomizer.reduction if task.amplified else None,
            local_epsilon=task.local_epsilon,
            dummies=task.dummies,
            shuffler=together[0],
            hops=tuple((name, hop[0]) for name, hop in zip(chain, hops, strict=True)),
            delta=task.delta,
            assumed_honest_fraction=task.assumed_honest_fraction,
            tokens=task.tokens is not None,
            permanent=permanent,
        )
        views = tuple(
            dataclasses.replace(
                first,
                reduction=reduction,
                dummies=task.views[view].dummies,
                shuffler=together[view],
                hops=tuple((name, hop[view]) for name, hop in zip(chain, hops, strict=True)),
                arrivals=first.arrivals[view : view + 1],
            )
            for view, reduction in enumerate(randomizer.view_reductions)
        )
        return dataclasses.replace(first, views=views)

    @property
    def match_count(self) -> MatchCountReduction | None:
        """The reduction, if it is not the local ε alone."""
        return None if self.reduction is None else self.reduction.match_count

    @property
    def local_epsilon_of_all_rounds(self) -> float:
        """Sum of the local ε over rounds, rounded up; it holds against every coalition."""
        return sum_upper([self.local_epsilon] * self.rounds)

    def anonymity_set(self, n_users: int, n_refused: int = 0) -> AnonymitySet:
        """
        Return the anonymity set of the claim: the users assumed honest and their dummies.

        A refused, repeated or unreadable report may have been an honest user's, or a dummy. So
        n_refused users, with their dummies, are subtracted from the ⌊n · fraction⌋ users assumed
        honest. The victim remains, and so do honest dummies that cannot have been refused. Dummies
        beyond MAX_COUNT are not counted.

        Raises AccountingError if n_users is not at least 1.
        """
        honest = honest_share(n_users, self.assumed_honest_fraction)
        return self.anonymity_set_of(n_users, honest, honest, n_refused)

    def anonymity_set_of(
        self, n_users: int, honest: int, adding: int, n_refused: int
    ) -> AnonymitySet:
        """
        Return the anonymity set of `honest` users, of whom `adding` add their dummies.

        If dummies name each item, the random ones are those of one item; if they are clusters, the
        rooms that are shown. Errors: `anonymity_set`.
        """
        check_users(n_users)
        left = self.still_adding(adding, n_refused)
        users, adding = max(1, honest - n_refused), max(1, adding)
        trials, chance = self.dummies.hiding_trials
        if trials:
            draws = min(left * trials, MAX_COUNT)
            return AnonymitySet(users=users, random_dummies=Binomial(draws, chance))
        per_user = self.dummies.per_user
        if self.arrivals:
            [(dummies, fewer)] = self._arrived(adding, n_refused)
            all_or_none = Groups(Binomial(1, 1 - fewer), dummies) if dummies else None
            return AnonymitySet(users=users, random_dummies=all_or_none)
        dummies = max(0, min(left * per_user, adding * per_user - n_refused, MAX_COUNT))
        if (total := entry_of(self.dummies).total) is None:
            return AnonymitySet(users=users, dummies=dummies)
        # Subtracting a user also subtracts at least one fixed dummy for each refusal. Without fixed
        # dummies, or without a user left to subtract, random ones may have been refused.
        random_refused = per_user == 0 or n_refused >= adding
        known = min(n_refused, MAX_COUNT) if random_refused else 0
        return AnonymitySet(
            users=users,
            dummies=dummies,
            random_dummies=total(self.dummies, left),
            known_dummies=known,
        )

    def still_adding(self, adding: int, n_refused: int) -> int:
        """
        Return how many of the `adding` users are counted with their dummies after refusals.

        Each refusal may concern one of them. If dummies are uniform, in all or within views, the
        victim always counts.
        """
        trials, _ = self.dummies.hiding_trials
        return max(0 if trials else 1, max(1, adding) - n_refused)

    def _arrived(self, adding: int, n_refused: int) -> list[tuple[int, float]]:
        """Return the `least` dummies of each kind; a refused report may have been any of them."""
        left = self.still_adding(adding, n_refused)
        found = [(each.least(left), each.least(max(1, adding))[0]) for each in self.arrivals]
        return [(max(0, min(n, most - n_refused)), fewer) for (n, fewer), most in found]

    def release_of(self, n_users: int, honest: int, adding: int, n_refused: int = 0) -> Release:
        """
        Return one round with the `anonymity_set_of` these users.

        Errors: AccountingError if n_users is below 1, or no formula covers the parameters.
        """
        if "sentinels" in self.waived.checks:
            return self.either_alone if self.hops else self.own_release()
        shown, counted = entry_of(self.dummies).shown, self.match_count
        if shown and self.arrivals and counted:
            return shown(self.dummies, self._arrived(adding, n_refused), counted, self.fineness)
        if not self.views:
            return self.release(self.anonymity_set_of(n_users, honest, adding, n_refused))
        of_views = (view.release_of(n_users, honest, adding, n_refused) for view in self.views)
        return ComposedRelease(releases=grouped([*of_views]))

    @property
    def either_alone(self) -> releases.WeakestRelease:
        """One round if only one of two shufflers is honest, whichever: its noise alone counts."""
        return releases.WeakestRelease(releases=tuple(map(self.release_by, range(len(self.hops)))))

    def release_by(self, hop: int) -> Release:
        """Return one round that only the noise of one of two shufflers hides; 0 is the first."""
        if self.views:
            return ComposedRelease(releases=tuple(view.release_by(hop) for view in self.views))
        return ItemNoiseRelease.of_shuffler(self.hops[hop][1])

    def own_release(self) -> Release:
        """
        Return one round against an analyzer that knows whose each report is.

        A fixed number of the user's own uniform dummies, in every view, may give an (ε, δ): formula
        1 with the victim as the only user. A random one is visible and may be small.
        """
        own = tuple(view.own_release() for view in self.views)
        if own and not any(isinstance(each, LocalRelease) for each in own):
            return ComposedRelease(releases=grouped(own))
        per_user = self.dummies.per_user  # 0 unless dummies are uniform
        if self.reduction is not None and per_user and self.shuffler.only_permutes:
            return self.release(AnonymitySet(users=1, dummies=per_user))
        return self.local_release

    def release(self, anonymity_set: AnonymitySet) -> Release:
        """Return one round in this anonymity set; raise AccountingError if no formula covers it."""
        if self.reduction is None:
            return self.local_release
        counted, by_shuffler = self.match_count, not self.shuffler.only_permutes
        named = entry_of(self.dummies).release
        if self.dummies.uniform and not by_shuffler:
            if counted is None:
                return CloneRelease.with_a_coin(self.reduction.local_epsilon, anonymity_set)
            return amplified(counted, anonymity_set)
        if by_shuffler and not self.dummies.uniform:
            raise AccountingError("no formula covers dummies of each item from both parties")
        if counted is None or counted.collision != 0:
            raise AccountingError("dummies of each item need reports that name items")
        adding = anonymity_set.random_dummies
        draws = adding.trials if isinstance(adding, Binomial) else 0
        if not by_shuffler:
            if named is None:
                raise uncovered(self.dummies)
            return named(self.dummies, draws, counted, self.fineness)
        if math.isinf(counted.local_epsilon):
            return ItemNoiseRelease.of_shuffler(self.shuffler)
        return HybridRelease(amplified=amplified(counted, anonymity_set), shuffler=self.shuffler)

    @property
    def local_release(self) -> LocalRelease:
        """One round protected by local noise alone."""
        return self.permanent or LocalRelease(local_epsilon=self.local_epsilon)


def grouped(views: Sequence[Release]) -> tuple[Release, ...]:
    """
    Return at most MAX_DISTINCT_VIEWS kinds of views that together reveal at least as much.

    So a device can check a claim of many tables in time. The smallest views stay. One stand-in for
    the others has their least size m, and a share of about 1/m fewer dummies. Views with local
    noise or known dummies stay.

    Without local noise, δ depends on the number T of dummies of two items, and falls in it. T
    counts the heads of independent coins, one for each dummy of the view. Equal coins, each with at
    least the chance of any other, whose hazards -ln(1 - chance) sum to at most those of another
    view, show stochastically fewer heads; so their δ is at least as large. Proof:
    docs/theory/accounting.md#views.
    """
    kinds, plain = {*views}, dict[releases.AmplifiedRelease, float]()
    for each in kinds:
        if isinstance(each, releases.AmplifiedRelease) and (hazards := _hazards(each)):
            plain[each] = hazards
    kept = MAX_DISTINCT_VIEWS - 1 - (len(kinds) - len(plain))
    others = sorted(plain, key=lambda each: each.reduction.answers)[max(0, kept) :]
    if len(kinds) <= MAX_DISTINCT_VIEWS or not others:
        return tuple(views)
    least = min(plain[each] for each in others) / _hazard(2 / others[0].reduction.answers)
    dummies = min(MAX_COUNT, math.floor(least * (1 - _ROUNDING)))
    among = AnonymitySet(users=others[0].anonymity_set.users, dummies=dummies)
    stand_in = dataclasses.replace(others[0], anonymity_set=among)
    return tuple(stand_in if each in others else each for each in views)


def _hazard(chance: float) -> float:
    return -math.log1p(-chance)


def _hazards(view: releases.AmplifiedRelease) -> float:
    """Return the sum of hazards of a view's dummies; 0 if the view must stay."""
    added, share = view.anonymity_set, 2 / view.reduction.answers
    random = added.random_dummies or Binomial(0, 0.0)
    stays = view.reduction.signal < 1 or added.known_dummies or share >= 1
    if stays or not isinstance(random, Binomial):
        return 0.0
    return added.dummies * _hazard(share) + random.trials * _hazard(random.chance * share)


def check_users(n_users: int) -> None:
    """Raise AccountingError unless this is a number of users."""
    if not isinstance(n_users, Integral) or n_users < 1:
        raise AccountingError(f"n_users is {n_users}; it must be a whole number, at least 1")
