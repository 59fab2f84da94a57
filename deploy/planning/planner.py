"""
From wishes to parameters: the design with the least error that keeps a promise. Pure.

Every figure of a plan is the exact accountant's or an exact variance; what was drawn in the
Gaussian approximation only says where to look.
"""

import dataclasses
from dataclasses import dataclass
from typing import Final

from common.accounting.gaussian import gaussian_mu
from common.accounting.guarantees import claimed_guarantee, guarantees_under
from common.messages.guarantee import Guarantee
from deploy.planning.calibration import Checked
from deploy.planning.design import Design
from deploy.planning.plan_hints import binding, refusal
from deploy.planning.protocol_search import Survey
from deploy.planning.requirements import Wishes

_ILLUSTRATION: Final = "for illustration, not promised: if half of all users colluded"


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """A design with the error that it is expected to have."""

    design: Design
    mse: float
    """Mean squared error of a share, averaged over the values."""
    mse_head: tuple[float, ...]
    """The same for each value of the head."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to run, what it gives, what it promises, and what stands in its way."""

    wishes: Wishes
    best: Prediction
    runners_up: tuple[Prediction, ...]
    """The best of every other protocol, by error."""
    promise: Guarantee
    """The guarantee that was wished for: that of the users assumed honest."""
    guarantees: tuple[Guarantee, ...]
    """For n_min users and all rounds together, one a coalition."""
    binding: tuple[str, ...]
    """Names of the wishes of which more would lower the error."""

    @property
    def ratio_to_central_gaussian(self) -> float:
        """The error over that of Gaussian noise on the true counts under the same promise."""
        return self.best.mse / central_gaussian_mse(self.wishes)


def central_gaussian_mse(wishes: Wishes) -> float:
    """
    Give the error of Gaussian noise on the true counts, in one of the equal rounds.

    σ²/n² with σ² = 2/μ²: counts have sensitivity √2, and T rounds have μ√T.
    """
    mu = gaussian_mu(wishes.central_epsilon, wishes.delta)
    return 2 * wishes.rounds / (mu * wishes.n_users) ** 2


def plan(wishes: Wishes) -> Plan:
    """
    Find the design with the least mean squared error under which every wish is kept.

    Raises:
        PlanError: The wanted error cannot be reached; says what would do.

    Cost: some thirty evaluations of δ, seconds at a million users; more over several rounds.
    """
    survey = Survey.of(wishes)
    if survey.best.mse > wishes.max_mse:
        raise refusal(survey)
    promise = claimed_guarantee(survey.best.design.terms(wishes), wishes.n_min)
    return Plan(
        wishes=wishes,
        best=_prediction(survey.best, wishes),
        runners_up=tuple(_prediction(other, wishes) for other in survey.found[1:]),
        promise=promise,
        guarantees=_guarantees(survey.best.design, wishes, promise),
        binding=binding(survey),
    )


def _prediction(checked: Checked, wishes: Wishes) -> Prediction:
    return Prediction(
        design=checked.design,
        mse=checked.mse,
        mse_head=tuple(checked.design.variances(wishes.head, wishes.n_users).tolist()),
    )


def _guarantees(design: Design, wishes: Wishes, promise: Guarantee) -> tuple[Guarantee, ...]:
    """
    Give the guarantees that a task of this design would state at n_min users.

    Where everybody is assumed honest, one more row shows what would be left if half colluded.
    """
    terms = design.terms(wishes)
    first, *others = guarantees_under(terms, wishes.n_min)
    if first != promise or wishes.n_min == 1:
        return (first, *others)
    half = claimed_guarantee(dataclasses.replace(terms, assumed_honest_fraction=0.5), wishes.n_min)
    shown = dataclasses.replace(half, assumptions=(_ILLUSTRATION, *half.assumptions))
    return (first, shown, *others)
