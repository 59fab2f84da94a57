"""Faults of what is promised: rows of guarantees, claims together, curves, and drafts."""

import dataclasses
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

from common.accounting import composition
from common.accounting import guarantees as coalitions
from common.accounting.amplification import epsilon_upper
from common.accounting.gaussian import gaussian_delta, gaussian_mu
from common.accounting.guarantees import Terms
from common.accounting.releases import CrowdRelease
from common.messages.guarantee import Guarantee, claimed
from common.task.draft import TaskDraft
from common.task.dummy_spec import DummySpec
from common.wire.tasks import draft_from_wire
from deploy.audit.faults import planting
from deploy.audit.faults.fault import Fault

_DELTA: Final = 1e-6


def all_are_charged() -> AbstractContextManager[None]:
    """Plant ledgers that charge what holds if all users are honest."""

    def other(guarantees: Sequence[Guarantee]) -> Guarantee:
        return next(row for row in guarantees if row.coalition == "analyzer")

    return planting.function(claimed, other)


def drawn_dummies_hide() -> AbstractContextManager[None]:
    """Plant an accountant that counts the most of one's own dummies against both parties."""
    honest = coalitions._against_shuffler_and_analyzer

    def other(terms: Terms) -> list[Guarantee]:
        most = DummySpec(law="fixed", per_user=terms.dummies.maximum)
        return honest(dataclasses.replace(terms, dummies=most))

    return planting.attribute(coalitions, "_against_shuffler_and_analyzer", other)


def revealed_forgotten() -> AbstractContextManager[None]:
    """Plant a composition of claims that forgets their δ."""
    afresh: Any = composition._claim_dots
    return planting.attribute(
        composition,
        "_claim_dots",
        lambda claim, step: afresh.__wrapped__((claim[0], 0.0), step),
    )


def normal_curve() -> AbstractContextManager[None]:
    """Plant rounds that are composed as if a round's privacy loss were normal."""

    def other(
        self: CrowdRelease, _epsilons: Sequence[float], _tolerance: float
    ) -> Callable[[float], float]:
        mu = gaussian_mu(epsilon_upper(self.reduction, self.crowd, _DELTA), _DELTA)
        return lambda epsilon: gaussian_delta(mu, epsilon)

    return planting.attribute(CrowdRelease, "curve", other)


def share_forgotten() -> AbstractContextManager[None]:
    """Plant an analyzer that reads a draft as if all users were assumed to be honest."""

    def other(message: Any) -> TaskDraft:
        return dataclasses.replace(draft_from_wire(message), assumed_honest_fraction=1.0)

    return planting.function(draft_from_wire, other)


PROMISES: Final = (
    Fault(
        name="all-are-charged",
        says="a release is charged what holds if all users are honest",
        scenario="accountant",
        check="a release is charged what holds of the assumed share",
        plant=all_are_charged,
    ),
    Fault(
        name="drawn-dummies-hide",
        says="the most of one's own drawn dummies are counted against shuffler and analyzer",
        scenario="accountant",
        check="that are drawn do not count against both parties",
        plant=drawn_dummies_hide,
    ),
    Fault(
        name="revealed-forgotten",
        says="claims are composed without their δ",
        scenario="accountant",
        check="several claims cost no less than their worst laws do",
        plant=revealed_forgotten,
    ),
    Fault(
        name="normal-curve",
        says="rounds are composed as if their privacy loss were normal",
        scenario="accountant",
        check="the curve of a round is nowhere below formula 1",
        plant=normal_curve,
    ),
    Fault(
        name="share-forgotten",
        says="the analyzer forgets which share of users an operator assumes to be honest",
        scenario="settings",
        check="an operator's assumed_honest_fraction reaches the analyzer",
        plant=share_forgotten,
    ),
)
