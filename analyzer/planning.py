"""
From wishes to parameters: the design with the least error that keeps a promise. Pure.

Every figure of a plan is the exact accountant's or an exact variance; what was drawn in the
Gaussian approximation only says where to look.
"""

from dataclasses import dataclass

from analyzer.calibration import Checked, central_epsilon
from analyzer.design import Design
from analyzer.remedies import binding, refusal
from analyzer.survey import Survey
from analyzer.wishes import Wishes
from common.accounting.coalitions import FORMULA_1, LOCAL
from common.accounting.gaussian import gaussian_mu
from common.guarantee import REPLACE_ONE, Coalition, Guarantee


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
    guarantees: tuple[Guarantee, ...]
    """For n_min users and all rounds together, one a coalition."""
    binding: tuple[str, ...]
    """Names of the wishes of which more would lower the error."""

    @property
    def promise(self) -> Guarantee:
        """The guarantee that was wished for: that of the users assumed honest."""
        return self.guarantees[0 if self.wishes.honest == self.wishes.n_min else 1]

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
    return Plan(
        wishes=wishes,
        best=_prediction(survey.best, wishes),
        runners_up=tuple(_prediction(other, wishes) for other in survey.found[1:]),
        guarantees=_guarantees(survey.best.design, wishes),
        binding=binding(survey),
    )


def _prediction(checked: Checked, wishes: Wishes) -> Prediction:
    return Prediction(
        design=checked.design,
        mse=checked.mse,
        mse_head=tuple(checked.design.variances(wishes.head, wishes.n_users).tolist()),
    )


def _guarantees(design: Design, wishes: Wishes) -> tuple[Guarantee, ...]:
    """
    Give the guarantee against the analyzer, the analyzer with users, and shuffler and analyzer.

    The users who collude are those whom the operator does not assume honest; if that is nobody,
    half of all, which shows what would be left.
    """
    colluders = wishes.n_min - wishes.honest or wishes.n_min // 2
    rounds = f", over {wishes.rounds} rounds that the same users answer" * (wishes.rounds > 1)
    local = Guarantee(
        coalition="shuffler+analyzer",
        epsilon=wishes.rounds * design.reduction.local_epsilon,
        delta=0.0,
        neighbouring=REPLACE_ONE,
        theorem=LOCAL,
        assumptions=(
            f"your own device randomizes as the task says{rounds}",
            "nobody else needs to be honest; your dummies are not counted",
        ),
    )
    return (
        _central(design, wishes, "analyzer", 0, rounds),
        _central(design, wishes, "analyzer+users", colluders, rounds),
        local,
    )


def _central(
    design: Design, wishes: Wishes, coalition: Coalition, colluders: int, rounds: str
) -> Guarantee:
    honest = wishes.n_min - colluders
    adding = (
        f" and add uniform dummies, {design.dummies_per_user:g} each on average"
        if design.dummies_per_user
        else ""
    )
    randomizing = (
        f"{honest} of the {wishes.n_min} users, you among them, randomize as the task says{adding}"
    )
    others = (
        f"the other {colluders} may do and tell the analyzer what they like"
        if colluders
        else "nobody else knows which reports are theirs"
    )
    return Guarantee(
        coalition=coalition,
        epsilon=central_epsilon(design, wishes, design.crowd(honest)),
        delta=wishes.delta,
        neighbouring=REPLACE_ONE,
        theorem=FORMULA_1,
        assumptions=(
            f"the shuffler permutes uniformly and does not collude with the analyzer{rounds}",
            randomizing,
            others,
            "the encryption holds",
        ),
    )
