"""
OD-HP as its paper prints it: a user's dummies reuse the seed of the user's own report.

The reader of a batch can then group each user's messages by their seed. Here the printed algorithm
runs with the deployed reports and dummies, the dummies' seeds overwritten, and refutes Theorem 1
[CC24]: all users but the victim hold one value z, and the odds of a group are compared with z's.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from common.accounting.anonymity_set import AnonymitySet
from common.accounting.assumptions import HONEST_SHUFFLER
from common.accounting.published import od_hp_theorem_1
from common.mechanisms.base import Vector
from common.mechanisms.hashing.string_hashing import StringHashing
from common.mechanisms.weights import ResponseWeights
from common.messages.guarantee import REPLACE_ONE
from deploy.audit.coalitions.messages import weights
from deploy.audit.finding import Finding, Findings
from deploy.audit.game import run_game
from deploy.audit.statistics import CONFIDENCE
from deploy.audit.subject import AuditSubject

_X, _OTHER_X, _Z = 0, 1, 2
_ITEMS: Final = ("x", "x'", "z")
_USERS: Final = 350
_BUCKETS: Final = 16
_DUMMIES: Final = 10
_LOCAL_EPSILON: Final = 12.0
_DELTA: Final = 1e-6
_LEAST_TRIALS: Final = 1000
_TRIALS_EACH: Final = 1500
"""Messages of the sample size for each trial."""
_MESSAGES: Final = 10**6
"""Messages drawn together."""


def run_printed(
    subject: AuditSubject,
    rng: np.random.Generator,
    fresh: bool = False,  # noqa: FBT001, FBT002
) -> Findings:
    """
    Refute the printed theorem; the audited task plays no part.

    Args:
        subject: Gives the sample sizes.
        rng: Source of all draws.
        fresh: Whether dummies have fresh seeds, unlike in print.
    """
    weights_of_print = ResponseWeights.for_epsilon(_LOCAL_EPSILON)
    mechanism = StringHashing(_ITEMS, _BUCKETS, weights_of_print, bytes(32))
    crowd = AnonymitySet(users=_USERS, dummies=_USERS * _DUMMIES)
    claim = od_hp_theorem_1(mechanism.reduction, crowd, _DELTA)
    trials = max(_LEAST_TRIALS, subject.sizes.crowds // _TRIALS_EACH)
    together = max(1, _MESSAGES // (_USERS * (1 + _DUMMIES)))

    def world(item: int) -> Vector:
        parts = [min(together, trials - start) for start in range(0, trials, together)]
        return np.concatenate([_scores(mechanism, item, part, fresh, rng) for part in parts])

    result = run_game(world(_X), world(_OTHER_X), _DELTA)
    return Findings(
        findings=(
            Finding(
                verdict="refuted" if result.epsilon_lower > claim else "not refuted",
                claim_epsilon=claim,
                empirical_epsilon_lower=result.epsilon_lower,
                ceiling=result.ceiling,
                confidence=CONFIDENCE,
                trials=result.trials,
                advantage=result.advantage,
                statistic="likelihood ratio of messages grouped by their seed",
                tests=1,
                roc=result.roc,
                scenario="reused-seeds",
                subject="OD-HP as printed",
                title=f"The printed dummies, {_USERS} users",
                heading="anonymity",
                coalition="analyzer",
                delta=_DELTA,
                theorem="OD-HP, Theorem 1, as printed: dummies reuse their user's seed [CC24]",
                neighbouring=REPLACE_ONE,
                assumptions=(
                    HONEST_SHUFFLER,
                    "all users randomize and add dummies as printed",
                ),
                sentence="Printed as it is, the algorithm lets the analyzer put each user's "
                "messages together again, and its theorem promises more than it keeps.",
                advice="Nothing to change here: every dummy of this project has a fresh seed. Do "
                "not deploy the algorithm as it is printed.",
            ),
        )
    )


def _scores(
    mechanism: StringHashing,
    item: int,
    batches: int,
    fresh: bool,  # noqa: FBT001
    rng: np.random.Generator,
) -> Vector:
    """Draw batches whose first user holds an item, and return their log odds of x against x'."""
    held = np.full((batches, _USERS), _Z, dtype=np.int64)
    held[:, 0] = item
    own = mechanism.randomize(held.ravel(), rng)
    dummies = mechanism.dummies(held.size * _DUMMIES, rng)
    if not fresh:
        dummies["seed"] = np.repeat(own["seed"], _DUMMIES)
    messages = np.concatenate([own, dummies])
    _, first, group = np.unique(messages["seed"], return_index=True, return_inverse=True)
    users: NDArray[np.int64] = np.arange(held.size)
    batch = np.concatenate([users, np.repeat(users, _DUMMIES)])[first] // _USERS
    of_x, of_other, of_z = (
        np.bincount(group, weights=weights(mechanism, messages, value))
        for value in range(len(_ITEMS))
    )
    odds = [np.bincount(batch, weights=of / of_z) for of in (of_x, of_other)]
    return np.asarray(np.log(odds[0]) - np.log(odds[1]))
