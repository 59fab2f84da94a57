"""The guarantees of a task: against whom, for how many honest users, and from which theorem.

Computed by the analyzer for the batch that really arrived, by the user agent for a task's claim
at n_min, and by the planner for a task that is not there yet.
"""

import dataclasses
import math
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context
from typing import Final, Self

from common.accounting.anonymity_set import AnonymitySet, each_item_release, uniform_dummies
from common.accounting.assumptions import (
    ALONE,
    CLONES,
    CLONES_COMPOSED,
    COMPOSED,
    ENCRYPTED,
    ENCRYPTION,
    FORMULA_1,
    HONEST_SHUFFLER,
    HYBRID,
    ITEM_NOISE,
    ITEM_NOISE_COMPOSED,
    LOCAL,
    NO_LOCAL_NOISE,
    longitudinal_assumptions,
    shuffler_assumptions,
    with_dummies,
)
from common.accounting.composition import composed_epsilon
from common.accounting.count_distributions import MAX_COUNT, Binomial
from common.accounting.hybrid_noise import HybridRelease
from common.accounting.item_noise import ItemNoiseRelease, shuffler_noise_distribution
from common.accounting.published import PUBLISHED, BoundSetting
from common.accounting.releases import (
    AmplifiedRelease,
    CloneRelease,
    LastingRelease,
    LocalRelease,
    Release,
)
from common.errors import AccountingError, BoundRangeError
from common.mechanisms.reduction import MatchCountReduction, PureReduction, Reduction
from common.mechanisms.registry import randomizer_of, rappor_of
from common.messages.guarantee import REPLACE_LASTING, REPLACE_ONE, Coalition, Guarantee, sum_upper
from common.task.dummy_spec import DummySpec
from common.task.shuffler_spec import PERMUTES, ShufflerSpec
from common.task.task import MIN_DELTA, Task, honest_share

_WORTH_SAYING: Final = 0.99
"""Own dummies that leave more than this share of the local ε are not worth a row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivacyParameters:
    """What a guarantee follows from, beside who arrived: of a task, or of one that is planned."""

    reduction: Reduction | None
    """Of one report; None where no shuffler is relied on."""
    local_epsilon: float
    """What is promised; no less than the reduction's own."""
    dummies: DummySpec
    shuffler: ShufflerSpec = PERMUTES
    delta: float
    """For all rounds together."""
    assumed_honest_fraction: float
    rounds: int = 1
    """Tasks like this that the same users answer."""
    lifetime_epsilon: float | None = None
    """What any number of answers give away of one value, where they share permanent noise."""

    @classmethod
    def of(cls, task: Task) -> Self:
        """Take them from a task: its integer weights, not what it claims of them."""
        return cls(
            reduction=randomizer_of(task).reduction if task.amplified else None,
            local_epsilon=task.local_epsilon,
            dummies=task.dummies,
            shuffler=task.shuffler,
            delta=task.delta,
            assumed_honest_fraction=task.assumed_honest_fraction,
            lifetime_epsilon=rappor_of(task).permanent_epsilon if task.lasting else None,
        )

    @property
    def local_epsilon_of_all_rounds(self) -> float:
        """Added up, upward: what holds whoever else is dishonest."""
        return sum_upper([self.local_epsilon] * self.rounds)

    def crowd(self, n_users: int, n_refused: int = 0) -> AnonymitySet:
        """
        Give the crowd that the claim may count on: the assumed share of users and their dummies.

        Each refused, repeated or unreadable report may be an honest user's, or its dummy:
        n_refused are taken off the ⌊n · fraction⌋ users assumed honest, each with its dummies. At
        least the victim is left, and of all honest dummies those that cannot have been refused.
        More dummies than the accountant counts protect no less than as many as it does.

        Raises:
            AccountingError: n_users is not at least 1.
        """
        honest = honest_share(n_users, self.assumed_honest_fraction)
        return self.crowd_of(n_users, honest, honest, n_refused)

    def crowd_of(self, n_users: int, honest: int, adding: int, n_refused: int) -> AnonymitySet:
        """
        Give the crowd of so many honest users, of whom `adding` add their dummies.

        Where dummies name each item, the random ones are those of one item.
        """
        _check_users(n_users)
        if not self.dummies.uniform:
            left = max(0, max(1, adding) - n_refused)
            return AnonymitySet(
                users=max(1, honest - n_refused),
                random_dummies=Binomial(left, self.dummies.extra_chance),
            )
        per_user = self.dummies.per_user
        users, adding = max(1, honest - n_refused), max(1, adding)
        left = max(1, adding - n_refused)
        dummies = max(0, min(left * per_user, adding * per_user - n_refused, MAX_COUNT))
        if self.dummies.law == "fixed":
            return AnonymitySet(users=users, dummies=dummies)
        # A user taken off takes its certain dummies along, as many as were refused or more; where
        # there are none, or no user is left to take off, drawn ones may have been refused.
        drawn = per_user == 0 or n_refused >= adding
        known = min(n_refused, MAX_COUNT) if drawn else 0
        return AnonymitySet(
            users=users,
            dummies=dummies,
            random_dummies=uniform_dummies(self.dummies, left),
            known_dummies=known,
        )

    def release(self, crowd: AnonymitySet) -> Release:
        """
        Give one round in such a crowd.

        Raises:
            AccountingError: There is no formula for it.
        """
        if self.reduction is None:
            alone = LocalRelease if self.lifetime_epsilon is None else LastingRelease
            return alone(local_epsilon=self.local_epsilon)
        named = not self.dummies.uniform
        if named == (not self.shuffler.idle):
            if named:
                raise AccountingError("no formula counts dummies of each item by both parties")
            if isinstance(self.reduction, PureReduction):
                return CloneRelease(local_epsilon=self.reduction.local_epsilon, crowd=crowd)
            return AmplifiedRelease(reduction=self.reduction, crowd=crowd)
        if isinstance(self.reduction, PureReduction) or self.reduction.collision != 0:
            raise AccountingError("dummies that name each item are for reports that name items")
        if named:
            adding = crowd.random_dummies
            users = adding.trials if isinstance(adding, Binomial) else 0
            return each_item_release(self.dummies, users)
        if math.isinf(self.reduction.local_epsilon):
            return ItemNoiseRelease(
                noise=shuffler_noise_distribution(self.shuffler), kept=self.shuffler.kept
            )
        return HybridRelease(reduction=self.reduction, crowd=crowd, shuffler=self.shuffler)


def honest_anonymity_set(task: Task, n_users: int, n_refused: int = 0) -> AnonymitySet:
    """Give the crowd that a task's claim may count on; see Terms.crowd."""
    return PrivacyParameters.of(task).crowd(n_users, n_refused)


def claimed_release(task: Task, n_users: int, n_refused: int = 0) -> Release:
    """Give what a task's claim is about, and what its release is charged: see honest_crowd."""
    terms = PrivacyParameters.of(task)
    return terms.release(terms.crowd(n_users, n_refused))


def guarantees(task: Task, n_users: int, n_refused: int) -> tuple[Guarantee, ...]:
    """Give every guarantee of a batch that arrived; `claimed` tells which a task is charged."""
    return guarantees_under(PrivacyParameters.of(task), n_users, n_refused)


def guarantees_under(
    terms: PrivacyParameters, n_users: int, n_refused: int = 0
) -> tuple[Guarantee, ...]:
    """
    Give every guarantee that holds under some terms, one a coalition and theorem.

    Raises:
        AccountingError: n_users is not at least 1, or delta is out of range.

    Cost: up to four searches for ε, tenths of a second each; compositions for several rounds.
    """
    if terms.reduction is None:
        _check_users(n_users)
        coalitions: tuple[Coalition, ...] = ("analyzer", "shuffler+analyzer")
        return (*(local_guarantee(each, terms) for each in coalitions), *_outside(terms))
    honest = honest_share(n_users, terms.assumed_honest_fraction)
    rows = [analyzer_guarantee(terms, n_users, n_users, n_refused)]
    if honest < n_users:
        rows.append(claimed_guarantee(terms, n_users, n_refused))
        if terms.dummies.maximum:
            rows.append(skippers_guarantee(terms, n_users, honest, n_refused))
    rows.extend(_against_shuffler_and_analyzer(terms))
    rows.extend(_outside(terms))
    return tuple(rows)


def claimed_guarantee(terms: PrivacyParameters, n_users: int, n_refused: int = 0) -> Guarantee:
    """
    Give what a task claims, and what its release is charged: that of the users assumed honest.

    Cost: one search for ε, tenths of a second.
    """
    if terms.reduction is None:
        _check_users(n_users)
        return local_guarantee("analyzer", terms)
    honest = honest_share(n_users, terms.assumed_honest_fraction)
    return analyzer_guarantee(terms, n_users, honest, n_refused)


def analyzer_guarantee(
    terms: PrivacyParameters, n_users: int, honest: int, n_refused: int = 0
) -> Guarantee:
    """
    Give what holds against the analyzer, if so many users are honest and the others collude.

    Cost: one search for ε, tenths of a second.
    """
    crowd = terms.crowd_of(n_users, honest, honest, n_refused)
    others = (
        "nobody else knows which reports are theirs"
        if honest == n_users
        else f"the other {n_users - crowd.users} may do and tell the analyzer what they like"
    )
    return _amplified(
        "analyzer" if honest == n_users else "analyzer+users",
        terms,
        crowd,
        f"{crowd.users} of the {n_users} users, you among them, randomize as the task says"
        f"{with_dummies(terms.dummies)}",
        others,
    )


def central_epsilon(terms: PrivacyParameters, crowd: AnonymitySet) -> float:
    """
    Bound the central ε of all rounds together, in a crowd that is there in each; at δ.

    Cost: a search for ε, or a composition.
    """
    together = [terms.release(crowd)] * terms.rounds
    return min(composed_epsilon(together, terms.delta), terms.local_epsilon_of_all_rounds)


def _theorem(release: Release, rounds: int) -> str:
    """Say from what the central ε of so many rounds like this follows."""
    if isinstance(release, AmplifiedRelease):
        return FORMULA_1 if rounds == 1 else COMPOSED
    if isinstance(release, CloneRelease):
        return CLONES if rounds == 1 else CLONES_COMPOSED
    if rounds > 1:
        return ITEM_NOISE_COMPOSED
    return ITEM_NOISE if isinstance(release, ItemNoiseRelease) else HYBRID


def _over_rounds(terms: PrivacyParameters) -> tuple[str, ...]:
    if terms.rounds == 1:
        return ()
    return (f"the same users answer {terms.rounds} such tasks, and so many in each",)


def skippers_guarantee(
    terms: PrivacyParameters, n_users: int, adding: int, n_refused: int = 0
) -> Guarantee:
    """
    Give what holds against the analyzer, if all users are honest but only some add dummies.

    Cost: one search for ε, tenths of a second.
    """
    crowd = terms.crowd_of(n_users, n_users, adding, n_refused)
    return _amplified(
        "analyzer+skippers",
        terms,
        crowd,
        f"{crowd.users} of the {n_users} users, you among them, randomize as the task says",
        f"{adding} of them{with_dummies(terms.dummies).removeprefix(' and')}; the others add none",
    )


def _amplified(
    coalition: Coalition, terms: PrivacyParameters, crowd: AnonymitySet, *assumptions: str
) -> Guarantee:
    return Guarantee(
        coalition=coalition,
        epsilon=central_epsilon(terms, crowd),
        delta=terms.delta,
        neighbouring=REPLACE_ONE,
        theorem=_theorem(terms.release(crowd), terms.rounds),
        assumptions=(
            HONEST_SHUFFLER,
            *assumptions,
            *shuffler_assumptions(terms.shuffler),
            *_over_rounds(terms),
            ENCRYPTED,
        ),
    )


def _against_shuffler_and_analyzer(terms: PrivacyParameters) -> list[Guarantee]:
    """
    Say what is left when both pool what they saw: your own reports, and nothing of anybody else.

    Dummies never mend the pure ε. A number that is certain improves (ε, δ), by formula 1 with
    the victim alone; one that is drawn does not, since it is visible and may be least.
    """
    local = local_guarantee("shuffler+analyzer", terms)
    own = terms.dummies.per_user
    if not own or not terms.dummies.uniform or not terms.shuffler.idle:
        return [local]
    crowd = AnonymitySet(users=1, dummies=own)
    epsilon = central_epsilon(terms, crowd)
    if epsilon > _WORTH_SAYING * local.epsilon:
        return [local]
    dummies = dataclasses.replace(
        local,
        epsilon=epsilon,
        delta=terms.delta,
        theorem=_theorem(terms.release(crowd), terms.rounds),
        assumptions=(
            *ALONE,
            f"your device adds at least {own} uniform dummies of its own",
            *_over_rounds(terms),
        ),
    )
    return [local, dummies]


def local_guarantee(coalition: Coalition, terms: PrivacyParameters) -> Guarantee:
    """Give what holds whoever else is dishonest: the pure local ε."""
    uncounted = []
    if terms.dummies.maximum:
        uncounted.append("your dummies are not counted")
    if not terms.shuffler.idle:
        uncounted.append("what the shuffler adds and drops is known to it, and not counted")
    lifetime = terms.lifetime_epsilon
    lasts = () if lifetime is None else longitudinal_assumptions(lifetime)
    return Guarantee(
        coalition=coalition,
        epsilon=terms.local_epsilon_of_all_rounds,
        delta=0.0,
        neighbouring=REPLACE_LASTING if lasts else REPLACE_ONE,
        theorem=NO_LOCAL_NOISE if math.isinf(terms.local_epsilon) else LOCAL,
        assumptions=(*ALONE, *uncounted, *lasts, *_over_rounds(terms)),
    )


def _outside(terms: PrivacyParameters) -> list[Guarantee]:
    """Say what encryption alone is relied on for: whoever holds no key that opens a report."""
    seen = (
        "the encryption holds; what breaking it may gain is not counted in delta",
        "that you take part, and when, is seen",
    )
    knows = (
        "the result is not shown to the shuffler: it could take its own dummies off the counts",
    )
    coalitions: tuple[Coalition, ...] = ("shuffler", "network")
    return [
        Guarantee(
            coalition=coalition,
            epsilon=0.0,
            delta=0.0,
            neighbouring=REPLACE_ONE,
            theorem=ENCRYPTION,
            assumptions=(
                *seen,
                *(knows if coalition == "shuffler" and not terms.shuffler.idle else ()),
            ),
        )
        for coalition in coalitions
    ]


def _check_users(n_users: int) -> None:
    if n_users < 1:
        raise AccountingError(f"a batch of {n_users} users has nobody to protect")


def published_claim(task: Task, n_users: int, n_refused: int) -> str:
    """Say what the protocol's published bound claims against the analyzer, or why nothing."""
    stated, reduction = task.composition.published_bound, randomizer_of(task).reduction
    if stated is None or not isinstance(reduction, MatchCountReduction):
        return f"no paper states a bound for {task.protocol} against the analyzer alone"
    name, bound = PUBLISHED[stated]
    setting = BoundSetting(
        reduction=reduction,
        crowd=honest_anonymity_set(task, n_users, n_refused),
        delta=task.delta,
        dummies=task.dummies,
        shuffler=task.shuffler,
    )
    try:
        epsilon = bound(setting)
    except BoundRangeError as error:
        return f"{name} makes no claim here: {error}"
    return f"{name} would claim epsilon {epsilon:.4g} at delta {task.delta:g}"


_ROOM: Final = 1e-4
"""Relative; on top of ε."""
_DELTA_ROOM: Final = 5e-3
"""Relative: what `delta_upper` may lie above the formula itself."""
_STATED: Final = Context(prec=6, rounding=ROUND_CEILING)


def claimable_epsilon(task: Task) -> float:
    """
    Give the central ε that a task may claim: what holds at n_min, rounded up a little.

    Whatever the task claims now is not looked at. Never above its local ε.

    Cost: one search for ε, tenths of a second.
    """
    delta = max(MIN_DELTA, task.delta * (1 - _DELTA_ROOM))
    epsilon = claimed_release(task, task.n_min).epsilon(delta) * (1 + _ROOM)
    return min(float(_STATED.create_decimal_from_float(epsilon)), task.local_epsilon)


def delta_at_claim(task: Task) -> float:
    """
    Bound from above the δ at which a task's claimed central ε really holds at n_min.

    The claim is true if that is at most the task's own δ. That of a claim of the local ε is 0.

    Cost: one evaluation, tenths of a second.
    """
    return claimed_release(task, task.n_min).delta(task.central_epsilon)
