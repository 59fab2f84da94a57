"""
The guarantees of a task: against whom, for how many honest users, and from which theorem.

Computed by the analyzer for the batch that really arrived, by the user agent for a task's claim
at n_min, and by the planner for a task that is not there yet.
"""

import dataclasses
import math
from dataclasses import dataclass
from typing import Final, Self

from common.accounting.composition import composed_epsilon
from common.accounting.counts import MAX_COUNT, Binomial, CountLaw, NegativeBinomial
from common.accounting.crowd import Crowd
from common.accounting.published import PUBLISHED
from common.accounting.release import CrowdRelease, LocalRelease, Release
from common.dummy_spec import EXTRA_WEIGHT_SUM, DummySpec
from common.errors import AccountingError, BoundRangeError
from common.guarantee import REPLACE_ONE, Coalition, Guarantee
from common.mechanisms.catalogue import mechanism_of
from common.mechanisms.reduction import MatchCountReduction
from common.shuffler_spec import ShufflerSpec
from common.task import Task, honest_share

FORMULA_1: Final = (
    "privacy blanket, exact two-binomial form, rounded up ([BBGN19]; "
    "formula 1 of common/accounting)"
)
COMPOSED: Final = (
    "privacy blanket for each round, dominating pairs composed ([BBGN19], [ZDW22]; "
    "common/accounting)"
)
LOCAL: Final = "randomized response with integer weights: the likelihood ratio is at most e^ε"
NO_LOCAL_NOISE: Final = "none: reports carry no local noise, and nothing is certified"
ENCRYPTION: Final = (
    "computational: HPKE [RFC 9180], every ciphertext of one length, as many from every user"
)

_HONEST_SHUFFLER: Final = "the shuffler permutes uniformly and does not collude with the analyzer"
_ALONE: Final = (
    "your own device randomizes as the task says",
    "nobody else needs to be honest",
)
_PERMUTES: Final = ShufflerSpec()
_WORTH_SAYING: Final = 0.99
"""Own dummies that leave more than this share of the local ε are not worth a row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a guarantee follows from, beside who arrived: of a task, or of one that is planned."""

    reduction: MatchCountReduction | None
    """Of one report; None where no shuffler is relied on."""
    local_epsilon: float
    """What is promised; no less than the reduction's own."""
    dummies: DummySpec
    shuffler: ShufflerSpec = _PERMUTES
    domain_size: int = 0
    """Items; where dummies name each of them."""
    delta: float
    """For all rounds together."""
    assumed_honest_fraction: float
    rounds: int = 1
    """Tasks like this that the same users answer."""

    @classmethod
    def of(cls, task: Task) -> Self:
        """Take them from a task: its integer weights, not what it claims of them."""
        return cls(
            reduction=mechanism_of(task).reduction if task.composition.amplified else None,
            local_epsilon=task.local_epsilon,
            dummies=task.dummies,
            shuffler=task.shuffler,
            domain_size=task.domain_size,
            delta=task.delta,
            assumed_honest_fraction=task.assumed_honest_fraction,
        )

    def crowd(self, n_users: int, n_refused: int = 0) -> Crowd:
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

    def crowd_of(self, n_users: int, honest: int, adding: int, n_refused: int) -> Crowd:
        """Give the crowd of so many honest users, of whom `adding` add their dummies."""
        if n_users < 1:
            raise AccountingError(f"a batch of {n_users} users has nobody to protect")
        per_user = self.dummies.per_user
        users, adding = max(1, honest - n_refused), max(1, adding)
        left = max(1, adding - n_refused)
        dummies = max(0, min(left * per_user, adding * per_user - n_refused, MAX_COUNT))
        if self.dummies.law == "fixed":
            return Crowd(users=users, dummies=dummies)
        # A user taken off takes its certain dummies along, as many as were refused or more; where
        # there are none, or no user is left to take off, drawn ones may have been refused.
        drawn = per_user == 0 or n_refused >= adding
        known = min(n_refused, MAX_COUNT) if drawn else 0
        return Crowd(
            users=users,
            dummies=dummies,
            random_dummies=self._drawn_dummies(left),
            known_dummies=known,
        )

    def _drawn_dummies(self, users: int) -> CountLaw:
        """Give the law of the dummies beyond the certain ones, of all these users together."""
        trials, chance = users * self.dummies.trials, self.dummies.extra_chance
        if self.dummies.law == "negative-binomial":
            return NegativeBinomial(trials, trials * chance / (1 - chance))
        return Binomial(trials, chance)

    def release(self, crowd: Crowd) -> Release:
        """
        Give one round in such a crowd.

        Raises:
            AccountingError: There is no formula for it.
        """
        if self.reduction is None:
            return LocalRelease(local_epsilon=self.local_epsilon)
        if not self.shuffler.idle or not self.dummies.uniform:
            raise AccountingError("dummies that name each item are not accounted for yet")
        return CrowdRelease(reduction=self.reduction, crowd=crowd)


def honest_crowd(task: Task, n_users: int, n_refused: int = 0) -> Crowd:
    """Give the crowd that a task's claim may count on; see Terms.crowd."""
    return Terms.of(task).crowd(n_users, n_refused)


def claimed_release(task: Task, n_users: int, n_refused: int = 0) -> Release:
    """Give what a task's claim is about, and what its release is charged: see honest_crowd."""
    terms = Terms.of(task)
    return terms.release(terms.crowd(n_users, n_refused))


def guarantees(task: Task, n_users: int, n_refused: int) -> tuple[Guarantee, ...]:
    """Give every guarantee of a batch that arrived; `claimed` tells which a task is charged."""
    return guarantees_under(Terms.of(task), n_users, n_refused)


def guarantees_under(terms: Terms, n_users: int, n_refused: int = 0) -> tuple[Guarantee, ...]:
    """
    Give every guarantee that holds under some terms, one a coalition and theorem.

    Raises:
        AccountingError: n_users is not at least 1, or delta is out of range.

    Cost: up to four searches for ε, tenths of a second each; compositions for several rounds.
    """
    honest = honest_share(n_users, terms.assumed_honest_fraction)
    rows = [_against_analyzer("analyzer", terms, n_users, n_refused, honest=n_users)]
    if honest < n_users:
        rows.append(claimed_guarantee(terms, n_users, n_refused))
        if terms.dummies.maximum:
            rows.append(_against_skippers(terms, n_users, n_refused, honest))
    rows.extend(_against_shuffler_and_analyzer(terms))
    rows.extend(_against_outsiders())
    return tuple(rows)


def claimed_guarantee(terms: Terms, n_users: int, n_refused: int = 0) -> Guarantee:
    """
    Give what a task claims, and what its release is charged: that of the users assumed honest.

    Cost: one search for ε, tenths of a second.
    """
    honest = honest_share(n_users, terms.assumed_honest_fraction)
    coalition: Coalition = "analyzer" if honest == n_users else "analyzer+users"
    return _against_analyzer(coalition, terms, n_users, n_refused, honest=honest)


def _against_analyzer(
    coalition: Coalition, terms: Terms, n_users: int, n_refused: int, *, honest: int
) -> Guarantee:
    crowd = terms.crowd_of(n_users, honest, honest, n_refused)
    others = (
        "nobody else knows which reports are theirs"
        if honest == n_users
        else f"the other {n_users - crowd.users} may do and tell the analyzer what they like"
    )
    return _amplified(
        coalition,
        terms,
        crowd,
        f"{crowd.users} of the {n_users} users, you among them, randomize as the task says"
        f"{_and_add(terms)}",
        others,
    )


def central_epsilon(terms: Terms, crowd: Crowd) -> float:
    """
    Bound the central ε of all rounds together, in a crowd that is there in each; at δ.

    Cost: a search for ε, or a composition.
    """
    together = [terms.release(crowd)] * terms.rounds
    return min(composed_epsilon(together, terms.delta), terms.rounds * terms.local_epsilon)


def _theorem(terms: Terms) -> str:
    return FORMULA_1 if terms.rounds == 1 else COMPOSED


def _over_rounds(terms: Terms) -> tuple[str, ...]:
    if terms.rounds == 1:
        return ()
    return (f"the same users answer {terms.rounds} such tasks, and so many in each",)


def _against_skippers(terms: Terms, n_users: int, n_refused: int, honest: int) -> Guarantee:
    crowd = terms.crowd_of(n_users, n_users, honest, n_refused)
    return _amplified(
        "analyzer+skippers",
        terms,
        crowd,
        f"{crowd.users} of the {n_users} users, you among them, randomize as the task says",
        f"{honest} of them{_and_add(terms).removeprefix(' and')}; the others add none",
    )


def _and_add(terms: Terms) -> str:
    dummies = terms.dummies
    if dummies.maximum == 0:
        return ""
    certain = f" and add uniform dummies, {dummies.per_user} each"
    if dummies.law == "fixed":
        return certain
    more = f"{certain} and one more" if dummies.per_user else " and add one uniform dummy"
    return (
        f"{more} with probability {dummies.extra_chance:.6g} "
        f"({dummies.extra_weight} in {EXTRA_WEIGHT_SUM}), drawn by each alone"
    )


def _amplified(coalition: Coalition, terms: Terms, crowd: Crowd, *assumptions: str) -> Guarantee:
    return Guarantee(
        coalition=coalition,
        epsilon=central_epsilon(terms, crowd),
        delta=terms.delta,
        neighbouring=REPLACE_ONE,
        theorem=_theorem(terms),
        assumptions=(
            _HONEST_SHUFFLER,
            *assumptions,
            *_over_rounds(terms),
            "the encryption holds",
        ),
    )


def _against_shuffler_and_analyzer(terms: Terms) -> list[Guarantee]:
    """
    Say what is left when both pool what they saw: your own reports, and nothing of anybody else.

    Dummies never mend the pure ε. A number that is certain improves (ε, δ), by formula 1 with
    the victim alone; one that is drawn does not, since it is visible and may be least.
    """
    local = Guarantee(
        coalition="shuffler+analyzer",
        epsilon=terms.rounds * terms.local_epsilon,
        delta=0.0,
        neighbouring=REPLACE_ONE,
        theorem=NO_LOCAL_NOISE if math.isinf(terms.local_epsilon) else LOCAL,
        assumptions=(*_ALONE, "your dummies are not counted", *_over_rounds(terms)),
    )
    own = terms.dummies.per_user
    if not own:
        return [local]
    epsilon = central_epsilon(terms, Crowd(users=1, dummies=own))
    if epsilon > _WORTH_SAYING * local.epsilon:
        return [local]
    dummies = dataclasses.replace(
        local,
        epsilon=epsilon,
        delta=terms.delta,
        theorem=_theorem(terms),
        assumptions=(
            *_ALONE,
            f"your device adds at least {own} uniform dummies of its own",
            *_over_rounds(terms),
        ),
    )
    return [local, dummies]


def _against_outsiders() -> list[Guarantee]:
    """Say what encryption alone is relied on for: whoever holds no key that opens a report."""
    coalitions: tuple[Coalition, ...] = ("shuffler", "network")
    return [
        Guarantee(
            coalition=coalition,
            epsilon=0.0,
            delta=0.0,
            neighbouring=REPLACE_ONE,
            theorem=ENCRYPTION,
            assumptions=(
                "the encryption holds; what breaking it may gain is not counted in delta",
                "that you take part, and when, is seen",
            ),
        )
        for coalition in coalitions
    ]


def published_claim(task: Task, n_users: int, n_refused: int) -> str:
    """Say what the protocol's published bound claims against the analyzer, or why nothing."""
    stated, reduction = task.composition.published_bound, mechanism_of(task).reduction
    if stated is None or stated not in PUBLISHED or reduction is None:
        return f"no paper states a bound for {task.protocol} against the analyzer alone"
    crowd = honest_crowd(task, n_users, n_refused)
    name, bound = PUBLISHED[stated]
    try:
        epsilon = bound(reduction, crowd, task.delta)
    except BoundRangeError as error:
        return f"{name} makes no claim here: {error}"
    return f"{name} would claim epsilon {epsilon:.4g} at delta {task.delta:g}"
