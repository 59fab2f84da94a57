"""Faults of the accountant, of estimates, and of what the shuffler draws."""

from contextlib import AbstractContextManager
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from common.accounting import hybrid_noise as hybrid
from common.accounting.anonymity_set import Crowd
from common.accounting.composition import composed_epsilon
from common.accounting.guarantees import Terms
from common.mechanisms.base import Vector
from common.mechanisms.support import debias
from common.task.shuffler_spec import ShufflerSpec
from deploy.audit.faults import planting
from deploy.audit.faults.fault import Fault
from shuffler.dummies import draw_item_dummies


def nine_tenths_of_epsilon() -> AbstractContextManager[None]:
    """Plant an accountant that states too little."""

    def other(*arguments: Any, **named: Any) -> float:
        return 0.9 * composed_epsilon(*arguments, **named)

    return planting.function(composed_epsilon, other)


def refused_reports_counted() -> AbstractContextManager[None]:
    """Plant an accountant to whom every refused report is somebody who hides the others."""
    honest = Terms.crowd_of

    def other(self: Terms, n_users: int, honest_users: int, adding: int, n_refused: int) -> Crowd:
        del n_refused
        return honest(self, n_users, honest_users, adding, 0)

    return planting.attribute(Terms, "crowd_of", other)


def noise_as_usual() -> AbstractContextManager[None]:
    """Plant a hybrid bound that takes the noise of all other items for what it is on average."""
    afresh: Any = hybrid._lattice
    return planting.both(
        planting.attribute(hybrid, "_lattice", afresh.__wrapped__),
        planting.attribute(hybrid, "_elsewhere", lambda *_: (1.0, 0.0)),
    )


def two_percent_too_high() -> AbstractContextManager[None]:
    """Plant an estimator of the wrong slope."""

    def other(*arguments: Any, **named: Any) -> Vector:
        return debias(*arguments, **named) * 1.02

    return planting.function(debias, other)


def less_shuffler_noise() -> AbstractContextManager[None]:
    """Plant dummies by the shuffler that are drawn nearer to their mean."""

    def other(spec: ShufflerSpec, domain_size: int, rng: np.random.Generator) -> NDArray[np.int64]:
        drawn = draw_item_dummies(spec, domain_size, rng)
        return drawn if spec.law == "none" else np.minimum(drawn, int(np.median(drawn)) + 3)

    return planting.function(draw_item_dummies, other)


COUNTING: Final = (
    Fault(
        name="too-low-epsilon",
        says="the accountant states nine tenths of ε",
        scenario="accountant",
        check="no less than by another program",
        plant=nine_tenths_of_epsilon,
    ),
    Fault(
        name="refused-reports-counted",
        says="refused reports are not taken off the honest users",
        scenario="accountant",
        check="refused reports are taken off",
        plant=refused_reports_counted,
    ),
    Fault(
        name="noise-as-usual",
        says="the noise of other items hides a report as well as it does on average",
        scenario="accountant",
        check="no δ of one report among many items with noise",
        plant=noise_as_usual,
    ),
    Fault(
        name="biased-estimates",
        says="every share is estimated 2 % too high",
        scenario="estimates",
        check="a common value",
        plant=two_percent_too_high,
    ),
    Fault(
        name="shuffler-noise",
        says="the shuffler's dummies vary less than the task says",
        scenario="draws",
        check="the shuffler's binomial dummies",
        plant=less_shuffler_noise,
    ),
)
