"""What every mechanism offers, whatever kind of value it randomizes."""

from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from common.errors import TaskError, ValueRangeError
from common.mechanisms.reduction import MatchCountReduction, Reduction
from common.mechanisms.weights import ResponseWeights
from common.protocols import MechanismName
from common.task.specs import MechanismSpec

Reports = NDArray[np.void]
"""n reports: shape (n,), of a mechanism's report_dtype."""
Counts = NDArray[np.int64]
Vector = NDArray[np.float64]


class Randomizer(Protocol):
    """
    One randomizer: what the device, the analyzer and the accountant ask of any of them.

    What values look like, and the estimator, are those of each kind of value: see mechanism.py for
    items, number.py for numbers, rappor.py for texts, priv_kv.py for pairs.
    """

    @property
    def local_epsilon(self) -> float:
        """What a report gives away by itself, rounded up; infinite without noise."""

    def keeps_promise(self, local_epsilon: float) -> bool:
        """Say whether no report gives away more, in exact arithmetic. Run by the user agent."""

    @property
    def report_dtype(self) -> np.dtype[Any]:
        """Fixed-size layout of a report; its bytes are the plaintext of a sealed report."""

    @property
    def reduction(self) -> Reduction | None:
        """What accounting for a shuffler needs; None of a mechanism that it has no formula for."""

    def randomize(self, values: Any, rng: np.random.Generator) -> Reports:  # noqa: ANN401
        """Randomize n people's values, laid out as their kind is. Run by the user agent."""

    def valid(self, reports: Reports) -> NDArray[np.bool_]:
        """Say which reports this mechanism can make. Run by the analyzer."""

    def tally(self, reports: Reports) -> Counts:
        """Add valid reports up, in whole numbers: all that the analyzer keeps. Shape (cells,)."""


_NULL_BYTE: Final = 0xFF


class Incidence(Protocol):
    """Which cells support which items: the linear map A[cell, item] in {0, 1}, and its adjoint."""

    def forward(self, theta: Vector) -> Vector:
        """Sum theta over the items that each cell supports. (domain_size,) -> (cells,)."""

    def adjoint(self, weights: Vector) -> Vector:
        """Sum weights over the cells that support each item. (cells,) -> (domain_size,)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Channel:
    """
    The exact probability of every cell under a distribution theta: scale · (kept · Aθ + floor).

    Enough for maximum likelihood on the very law of the reports, whatever the mechanism.
    """

    incidence: Incidence
    scale: Vector
    """How likely a cell's row (its seed) is; shape (cells,)."""
    kept: float
    """Share of reports that say the truth: real share · (p' - q')."""
    floor: float
    """What every cell of a row gets anyhow: noise and dummies."""

    def forward(self, theta: Vector) -> Vector:
        """Probability of each cell; shape (cells,), sums to 1 if theta does."""
        mass = self.kept * self.incidence.forward(theta) + self.floor * float(theta.sum())
        cells: Vector = self.scale * mass
        return cells

    def adjoint(self, weights: Vector) -> Vector:
        """The transposed map; shape (domain_size,)."""
        scaled = self.scale * weights
        items: Vector = self.kept * self.incidence.adjoint(scaled) + self.floor * scaled.sum()
        return items


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixture:
    """
    What the counted reports are, as far as the analyzer knows.

    Users' own, kept with one probability; uniform dummies; and dummies that name each item, as
    many as a law says, for every item apart.
    """

    n_real: float
    """Users whose reports may be among those counted, above 0; an expectation where reports were
    refused."""
    n_dummies: float = 0.0
    """Uniform dummies among those counted."""
    kept: float = 1.0
    """Probability that the shuffler kept a user's report."""
    item_mean: float = 0.0
    """Expected dummies that name a given item."""
    item_variance: float = 0.0
    """Variance of their number."""

    def real_share(self, domain_size: int) -> float:
        """Give the share of users' own reports among all."""
        own = self.n_real * self.kept
        return own / (own + self.n_dummies + domain_size * self.item_mean)


class Mechanism(Randomizer, Protocol):
    """One randomizer of items and its estimator. Pure; vectorised over users."""

    @property
    def domain_size(self) -> int:
        """Items are 0 .. domain_size-1."""

    @property
    def reduction(self) -> MatchCountReduction | None:
        """What accounting for a shuffler needs; None of a mechanism that it has no formula for."""

    def randomize(self, values: NDArray[np.int64], rng: np.random.Generator) -> Reports:
        """Randomize each value. Run by the user agent."""

    def dummies(self, count: int, rng: np.random.Generator) -> Reports:
        """Draw uniform reports, which carry no input. Run by the user agent."""

    def supports(self, reports: Reports, item: int) -> NDArray[np.bool_]:
        """Say which reports support an item: all that one report tells of it. Run by auditors."""

    def sample_cells(self, users: Counts, n_dummies: int, rng: np.random.Generator) -> Counts:
        """
        Draw the counts by cell that users and dummies would come to, without making each report.

        Args:
            users: Users by item, shape (domain_size,).
            n_dummies: Uniform dummies.
            rng: Source of randomness; never of a real collection.

        Returns:
            Counts of shape (cells,), of the very law that `tally` of all reports has.
        """

    def debias(self, cells: Counts, mixture: Mixture) -> Vector:
        """Estimate the share of each item, without bias. Shape (domain_size,)."""

    def variance(self, shares: Vector, mixture: Mixture) -> Vector:
        """Give the exact variance of each debiased share, given the true ones."""

    def channel(self, real_share: float) -> Channel | None:
        """
        Give the law of a cell, of which a share real_share are users' own and the rest uniform.

        None of a mechanism whose reports do not fall into cells that can be listed.
        """


def check_values(values: NDArray[np.int64], domain_size: int) -> None:
    """
    Check that values lie in the domain. The message does not repeat them.

    Raises:
        ValueRangeError: One does not.
    """
    if values.size:
        check_value(int(values.min()), domain_size)
        check_value(int(values.max()), domain_size)


def check_value(value: int, domain_size: int) -> None:
    """
    Check that a value of any size lies in the domain. The message does not repeat it.

    Raises:
        ValueRangeError: It does not.
    """
    if not 0 <= value < domain_size:
        raise ValueRangeError(f"a value must lie between 0 and {domain_size - 1}")


def null_reports(count: int, dtype: np.dtype[Any]) -> Reports:
    """
    Make padding: reports whose every byte is 0xFF, which lie outside every mechanism's range.

    They bring a submission to its task's fixed number of reports; the analyzer discards them.
    """
    return np.frombuffer(bytes([_NULL_BYTE]) * (count * dtype.itemsize), dtype=dtype)


def is_null(reports: Reports) -> NDArray[np.bool_]:
    """Say which reports are padding."""
    raw = np.ascontiguousarray(reports).view(np.uint8)
    raw = raw.reshape(len(reports), reports.dtype.itemsize)
    nulls: NDArray[np.bool_] = (raw == _NULL_BYTE).all(axis=1)
    return nulls


@dataclass(frozen=True, slots=True, kw_only=True)
class MechanismRequest:
    """A mechanism by name, and what its integers follow from."""

    name: MechanismName
    domain_size: int
    """Items, at least 2."""
    buckets: int
    """For hashing; every other mechanism knows its answers from the items, and ignores it."""
    local_epsilon: float
    """Above 0 and at most 20, or infinite for reports without noise."""

    def spec(
        self, weights: ResponseWeights, *, buckets: int, dtype: np.dtype[Any], digits: int = 1
    ) -> MechanismSpec:
        """
        State the integers that were found.

        Raises:
            TaskError: One of them is out of its range.
        """
        return MechanismSpec(
            name=self.name,
            buckets=buckets,
            digits=digits,
            true_weight=weights.true,
            other_weight=weights.other,
            report_bytes=dtype.itemsize,
        )


def check_answers(spec: MechanismSpec, buckets: int) -> None:
    """
    Check the answers of a mechanism that has no choice of them, and no digits.

    Raises:
        TaskError: The task states others, so that one mechanism would have two forms.
    """
    if (spec.buckets, spec.digits) != (buckets, 1):
        raise TaskError(
            f"the mechanism {spec.name} has {buckets} buckets and one digit here; "
            f"the task says {spec.buckets} and {spec.digits}"
        )
