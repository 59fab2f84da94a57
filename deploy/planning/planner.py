"""
Find the design with the least error that keeps a guarantee, for every kind of value. Pure.

Every figure of a plan is the exact accountant's or an exact variance; approximations only guide
the search.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from common.accounting.gaussian import gaussian_mu
from common.accounting.guarantees import claimed_guarantee, guarantees_under
from common.errors import PlanError, TaskError
from common.messages.guarantee import Guarantee
from common.protocols import protocols_of
from deploy.planning.design import Design
from deploy.planning.plan_hints import binding_constraints, infeasible
from deploy.planning.protocol_search import ProtocolSearch
from deploy.planning.requirements import Requirements
from deploy.planning.value_design import ValueDesign, predicted_mse, value_design

_ILLUSTRATION: Final = "for illustration, not promised: if half of all users colluded"


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """A design with its predicted error."""

    design: Design | ValueDesign
    mse: float
    """Mean squared error: of a share, or of a mean in the task's units; averaged over the values"""
    mse_head: tuple[float, ...] = ()
    """The same for each item of the head; nothing for other kinds of values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The best design and the best of every other protocol, with the guarantees of the best."""

    wanted: Requirements
    best: Prediction
    runners_up: tuple[Prediction, ...]
    promise: Guarantee
    """The guarantee that was asked for: that of the users assumed honest."""
    guarantees: tuple[Guarantee, ...]
    """For n_min users and all rounds together, one a coalition."""
    binding: tuple[str, ...] = ()
    """Names of the constraints of which more would lower the error; known for items only."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Why there is no design of a protocol, by its name; for other kinds than items."""

    @property
    def ratio_to_central_gaussian(self) -> float:
        """The error over that of Gaussian noise on the true counts under the same guarantee."""
        return self.best.mse / central_gaussian_mse(self.wanted)


def central_gaussian_mse(wanted: Requirements) -> float:
    """
    Return the error of a share by Gaussian noise on the true counts, in one of the equal rounds.

    σ²/n² with σ² = 2/μ²: counts have sensitivity √2, and T rounds have μ√T.
    """
    mu = gaussian_mu(wanted.central_epsilon, wanted.delta)
    return 2 * wanted.rounds / (mu * wanted.n_users) ** 2


def plan(wanted: Requirements) -> Plan:
    """
    Find the design with the least mean squared error that keeps every requirement.

    Raises:
        PlanError: The wanted error cannot be reached, and why; or no protocol of the kind keeps the
            guarantee.
        TaskError: The requirements break a rule of tasks of the kind.

    Cost: some thirty evaluations of δ, seconds at a million users; more over several rounds. For
    other kinds than items some ten tasks a protocol, tenths of a second each.
    """
    binding, left_out = tuple[str, ...](), dict[str, str]()
    if wanted.kind == "categorical":
        search = ProtocolSearch.of(wanted)
        if search.best.mse > wanted.max_mse:
            raise infeasible(search)
        found = [_of_items(each.design, wanted) for each in search.found]
        binding = binding_constraints(search)
    else:
        found, left_out = _of_values(wanted)
    terms = found[0].design.terms(wanted)
    promise = claimed_guarantee(terms, wanted.n_min)
    first, *others = guarantees_under(terms, wanted.n_min)
    if first == promise and wanted.n_min > 1:
        half = dataclasses.replace(terms, assumed_honest_fraction=0.5)
        row = claimed_guarantee(half, wanted.n_min)
        others.insert(0, dataclasses.replace(row, assumptions=(_ILLUSTRATION, *row.assumptions)))
    return Plan(
        wanted=wanted,
        best=found[0],
        runners_up=tuple(found[1:]),
        promise=promise,
        guarantees=(first, *others),
        binding=binding,
        left_out=left_out,
    )


def _of_items(design: Design, wanted: Requirements) -> Prediction:
    return Prediction(
        design=design,
        mse=design.mse(wanted.n_users, wanted.domain_size),
        mse_head=tuple(design.variances(wanted.head, wanted.n_users).tolist()),
    )


def _of_values(wanted: Requirements) -> tuple[list[Prediction], dict[str, str]]:
    """Return the designs, unbiased ones first, then by error; and why protocols are left out."""
    found, errors = list[tuple[bool, float, ValueDesign]](), dict[str, PlanError | TaskError]()
    for name in protocols_of(wanted.kind):
        try:
            design = value_design(name, wanted)
        except (PlanError, TaskError) as error:  # such as too many numbers to be projected
            errors[name] = error
        else:
            found.append((design.biased, predicted_mse(design.task, wanted.n_users), design))
    if not found:
        raise next(iter(errors.values()))
    found.sort(key=lambda each: each[:2])
    left_out = {name: str(error) for name, error in errors.items()}
    return [Prediction(design=design, mse=mse) for _, mse, design in found], left_out
