"""
The guarantees of a task: against whom, for how many honest users, and from which theorem.

Computed by the analyzer for the batch that really arrived, and for a task's claim at n_min.
"""

from typing import Final

from common.accounting.amplification import epsilon_upper
from common.accounting.counts import MAX_COUNT, Binomial
from common.accounting.crowd import Crowd
from common.accounting.published import PUBLISHED
from common.dummy_spec import EXTRA_WEIGHT_SUM, DummySpec
from common.errors import AccountingError, BoundRangeError
from common.guarantee import REPLACE_ONE, Guarantee
from common.mechanisms.catalogue import mechanism_of
from common.task import Task

FORMULA_1: Final = (
    "privacy blanket, exact two-binomial form, rounded up ([BBGN19]; "
    "formula 1 of common/accounting)"
)
LOCAL: Final = "randomized response with integer weights: the likelihood ratio is at most e^ε"
NO_LOCAL_NOISE: Final = "none: reports carry no local noise, and nothing is certified"


def honest_crowd(task: Task, n_users: int, n_refused: int) -> Crowd:
    """
    Give the crowd that a guarantee may count on: honest users and their dummies.

    Each refused, repeated or unreadable report may be an honest user's, or its dummy: n_refused are
    taken off the ⌊n · fraction⌋ users that the task assumes honest, each with its dummies. At least
    the victim is left, and of all honest dummies those that cannot have been refused. More dummies
    than the accountant counts protect no less than as many as it does.

    Where the number is fractional, each honest user adds one more dummy with a chance of its own.
    Any refused report may have been one of these as well: that many are taken for known.

    Args:
        task: Whose users.
        n_users: Users in the batch, at least 1.
        n_refused: Reports that were not counted, 0 or more.

    Raises:
        AccountingError: n_users is not at least 1.
    """
    if n_users < 1:
        raise AccountingError(f"a batch of {n_users} users has nobody to protect")
    per_user, assumed = task.dummies.per_user, max(1, task.honest_users(n_users))
    honest = max(1, assumed - n_refused)
    dummies = max(0, min(honest * per_user, assumed * per_user - n_refused, MAX_COUNT))
    if task.dummies.law == "fixed":
        return Crowd(users=honest, dummies=dummies)
    return Crowd(
        users=honest,
        dummies=dummies,
        random_dummies=Binomial(honest, task.dummies.extra_chance),
        known_dummies=min(n_refused, MAX_COUNT),
    )


def central_guarantee(task: Task, n_users: int, n_refused: int = 0) -> Guarantee:
    """
    Give the guarantee against the analyzer alone, for n_users users who really arrived.

    Cost: one search for ε, tenths of a second.
    """
    crowd = honest_crowd(task, n_users, n_refused)
    return Guarantee(
        coalition="analyzer",
        epsilon=epsilon_upper(mechanism_of(task).reduction, crowd, task.delta),
        delta=task.delta,
        neighbouring=REPLACE_ONE,
        theorem=FORMULA_1,
        assumptions=(
            "the shuffler permutes uniformly and does not collude with the analyzer",
            f"{crowd.users} of the {n_users} users, you among them, randomize as the task says "  # noqa: ISC004
            f"and {_dummies_in_words(task.dummies)}",
            "nobody else knows which reports are theirs",
            "the encryption holds",
        ),
    )


def _dummies_in_words(dummies: DummySpec) -> str:
    """Say what each honest user adds."""
    if dummies.maximum == 0:
        return "add no dummies"
    certain = f"add uniform dummies, {dummies.per_user} each"
    if dummies.law == "fixed":
        return certain
    more = f"{certain} and one more" if dummies.per_user else "add one uniform dummy"
    return (
        f"{more} with probability {dummies.extra_chance:.6g} "
        f"({dummies.extra_weight} in {EXTRA_WEIGHT_SUM}), drawn by each alone"
    )


def local_guarantee(task: Task) -> Guarantee:
    """
    Give the guarantee against the shuffler and the analyzer together: the local one.

    Without local noise its ε is infinite.
    """
    return Guarantee(
        coalition="shuffler+analyzer",
        epsilon=task.local_epsilon,
        delta=0.0,
        neighbouring=REPLACE_ONE,
        theorem=NO_LOCAL_NOISE if task.mechanism.noiseless else LOCAL,
        assumptions=(
            "your own device randomizes as the task says",
            "nobody else needs to be honest; your dummies are not counted",
        ),
    )


def guarantees(task: Task, n_users: int, n_refused: int) -> tuple[Guarantee, ...]:
    """Give every guarantee of a batch, one a coalition, the analyzer's first."""
    return (central_guarantee(task, n_users, n_refused), local_guarantee(task))


def published_claim(task: Task, n_users: int, n_refused: int) -> str:
    """Say what the protocol's published bound claims against the analyzer, or why nothing."""
    crowd = honest_crowd(task, n_users, n_refused)
    known = PUBLISHED.get(task.composition.published_bound)
    if known is None:
        return f"this program does not compute the bound {task.composition.published_bound}"
    name, bound = known
    if crowd.random_dummies is not None:
        return f"{name} makes no claim here: the number of dummies is random, not fixed"
    try:
        epsilon = bound(mechanism_of(task).reduction, crowd, task.delta)
    except BoundRangeError as error:
        return f"{name} makes no claim here: {error}"
    return f"{name} would claim epsilon {epsilon:.4g} at delta {task.delta:g}"
