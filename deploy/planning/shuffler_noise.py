"""Whether a design keeps the wish, with the room that its task will claim on top. Pure."""

import math
from collections.abc import Callable
from typing import Final

from common.accounting.epsilon_search import LEAST_EPSILON, MOST_EPSILON
from common.accounting.gaussian import gaussian_mu
from common.accounting.guarantees import Terms, central_epsilon
from common.errors import AccountingError, PlanError, TaskError
from common.mechanisms.support import Support, bernoulli_variance
from common.task.shuffler_spec import PERMUTES, ShufflerSpec
from deploy.planning.calibration import Checked
from deploy.planning.design import Design
from deploy.planning.frontier import Verdict
from deploy.planning.noise_calibration import binomial_trials, geometric_spec
from deploy.planning.requirements import Wishes

MARGIN: Final = 0.99
"""Of the wished δ, so that what a task then claims, with its own room, is no more than the wish."""
CLAIM_ROOM: Final = 1.00015
"""By which a task's claim may lie above the ε that its noise is made for: it leaves a device room
to compute for itself, and is rounded up."""


def keeps_promise(terms: Terms, wishes: Wishes) -> bool:
    """
    Ask the exact accountant whether a task under these terms keeps the wish.

    Cost: an evaluation of δ, or a composition if there are several rounds.
    """
    crowd = terms.crowd(wishes.n_min)
    epsilon = wishes.central_epsilon / CLAIM_ROOM
    if wishes.rounds == 1:
        return terms.release(crowd).delta(epsilon) <= MARGIN * wishes.delta
    return central_epsilon(terms, crowd) <= epsilon


HYBRID_LOCAL_EPSILON: Final = 8.0
"""Of hybrid where no cap was asked for."""
_CLOSE: Final = 1.01
_MOST_HALVINGS: Final = 40


def shuffler_designs(wishes: Wishes) -> list[Checked]:
    """
    Find the best design of every protocol whose dummies the shuffler makes.

    Cost: some twenty evaluations of δ for each; of compositions if there are several rounds.
    """
    kinds = [hybrid_design]
    if wishes.may_be_plain:
        kinds += [sageo_design, sbin_design]
    found = []
    for kind in kinds:
        try:
            design = kind(wishes)
        except (PlanError, AccountingError, TaskError):
            continue  # what it would take is more than there can be
        found.append(
            Checked(
                design=design,
                mse=design.mse(wishes.n_users, wishes.domain_size),
                verdict=Verdict(answers=design.answers, tightness=0.0),
            )
        )
    return found


def drawn_mse(wishes: Wishes) -> float:
    """
    Draw the least error of these protocols: the central mechanisms' of the same noise.

    Of hybrid, randomized response's own and the central Laplace mechanism's beside it. What it
    draws is searched, never stated.
    """
    n, rounds, epsilon = wishes.n_users, wishes.rounds, wishes.central_epsilon
    laplace = 8 * (rounds / (epsilon * n)) ** 2
    support = _hybrid_support(wishes)
    alone = bernoulli_variance(
        1 / wishes.domain_size, n_real=n, n_dummies=0, p=support.p, q=support.q, q_dummy=0.0
    )
    drawn = [float(alone) + laplace / (support.p - support.q) ** 2]
    if wishes.may_be_plain:
        mu = gaussian_mu(epsilon, wishes.delta)
        drawn += [laplace, 2 * rounds / (mu * n) ** 2]
    return min(drawn)


def _hybrid_support(wishes: Wishes) -> Support:
    """Give p and q of hybrid's reports."""
    return _design("hybrid", _hybrid_local(wishes), PERMUTES, wishes).support


def _hybrid_local(wishes: Wishes) -> float:
    return wishes.noise_cap if math.isfinite(wishes.local_cap) else HYBRID_LOCAL_EPSILON


def sageo_design(wishes: Wishes) -> Design:
    """
    True items, and two geometric flanks of dummies for each [MSE25].

    Raises:
        PlanError: No noise that there can be keeps the promise.
    """

    def at(epsilon: float) -> Design:
        spec = geometric_spec(epsilon / CLAIM_ROOM, MARGIN * wishes.delta / wishes.rounds, 1.0)
        return _design("sageo", math.inf, spec, wishes)

    return _sharpest(at, wishes)


def sbin_design(wishes: Wishes) -> Design:
    """
    True items, and heads among fair coins as dummies for each [MSE25].

    Raises:
        PlanError: No number of coins that there can be keeps the promise.
    """

    def at(epsilon: float) -> Design:
        trials = binomial_trials(epsilon / CLAIM_ROOM, MARGIN * wishes.delta, 1.0)
        spec = ShufflerSpec(law="binomial", trials=trials, most=trials)
        return _design("sbin", math.inf, spec, wishes)

    return _sharpest(at, wishes)


def hybrid_design(wishes: Wishes) -> Design:
    """
    Randomized response as sharp as the cap allows, and geometric dummies for each item.

    Raises:
        PlanError: No noise that there can be keeps the promise.
    """
    local = _hybrid_local(wishes)

    def at(epsilon: float) -> Design:
        spec = geometric_spec(epsilon, MARGIN * wishes.delta / wishes.rounds, 1.0)
        return _design("hybrid", local, spec, wishes)

    return _sharpest(at, wishes)


def _design(protocol: str, local_epsilon: float, spec: ShufflerSpec, wishes: Wishes) -> Design:
    return Design(
        protocol=protocol,
        answers=wishes.domain_size,
        hashed=False,
        local_epsilon=local_epsilon,
        shuffler=spec,
    )


def _sharpest(at: Callable[[float], Design], wishes: Wishes) -> Design:
    """Find the design with the least noise, which grows as the ε that it is made for falls."""
    epsilon = wishes.central_epsilon
    design = at(epsilon)
    if wishes.rounds == 1 and math.isinf(design.local_epsilon):
        return design  # made for just this
    kept: tuple[float, Design] | None = None
    broken: float | None = None
    for _ in range(_MOST_HALVINGS):
        if keeps_promise(design.terms(wishes), wishes):
            kept = (epsilon, design)
        else:
            broken = epsilon
        if kept is None or broken is None:
            epsilon = epsilon * 2 if broken is None else epsilon / 2
        elif broken / kept[0] < _CLOSE:
            break
        else:
            epsilon = math.sqrt(kept[0] * broken)
        if not LEAST_EPSILON <= epsilon <= MOST_EPSILON:
            break  # hardly any noise is needed, or none is enough
        design = at(epsilon)
    if kept is None:
        raise PlanError("no number of shuffler-made dummies keeps the promise")
    return kept[1]
