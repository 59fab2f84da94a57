"""The interface that every mechanism implements, and shared checks."""

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from shuffledp.common.errors import ReportError, TaskError, ValueRangeError
from shuffledp.common.mechanisms.arguments import checked_array
from shuffledp.common.mechanisms.count_law import Draws
from shuffledp.common.mechanisms.reduction import MatchCountReduction, Reduction
from shuffledp.common.mechanisms.weights import ResponseWeights
from shuffledp.common.messages.result import IntervalTable
from shuffledp.common.protocols import MechanismName
from shuffledp.common.task.spec_forms import AnySpec
from shuffledp.common.task.specs import MechanismSpec
from shuffledp.common.task.task import Task

Reports = NDArray[np.void]
"""n reports: shape (n,), of a mechanism's report_dtype."""
Counts = NDArray[np.int64]
Tally = NDArray[Any]
"""Counts, or for open dictionaries reports: see `Randomizer.tally`."""
Vector = NDArray[np.float64]
"""Floats; docstrings state the shape."""


class Randomizer(Protocol):
    """
    The part of a mechanism that the device, the analyzer and the accountant use.

    The layout of values and the estimator depend on the kind of value: `Mechanism` here for items,
    `MeanMechanism` for numbers, `Tables` for attributes, `Rappor` and `PrefixHashing` for texts,
    `PrivKv` for pairs.
    """

    @property
    def local_epsilon(self) -> float:
        """Local ε of one report, rounded up; infinite without noise."""

    def keeps_promise(self, local_epsilon: float) -> bool:
        """Check exactly that one report is local_epsilon-private. Run by the user agent."""

    @property
    def report_dtype(self) -> np.dtype[Any]:
        """Fixed-size layout of a report; its bytes are the plaintext of a sealed report."""

    @property
    def reduction(self) -> Reduction | None:
        """Parameters for amplification by shuffling; None if no formula covers the mechanism."""

    @property
    def view_reductions(self) -> tuple[MatchCountReduction, ...]:
        """Parameters of each of a user's reports, if they compose; empty for other mechanisms."""
        return ()

    def randomize(self, values: Any, rng: np.random.Generator) -> Reports:  # noqa: ANN401  # any kind
        """Randomize n values; raise ValueRangeError if one is invalid. Run by the user agent."""

    def valid(self, reports: Reports) -> NDArray[np.bool_]:
        """Return a mask, (n,), of the reports that `randomize` can return. Run by the analyzer."""

    def tally(self, reports: Reports) -> Tally:
        """
        Sum reports into the counts that the analyzer keeps. Run by the analyzer.

        Returns counts of shape (cells,); for pairs (keys, 3); for open dictionaries the reports
        themselves, which their estimator needs. Raises ReportError if a report is not valid.
        """

    def influence(self, most: int) -> tuple[float, float]:
        """
        Return the users by which `most` crafted reports can raise a count, and lower another's.

        By default infinite: no bound is known.
        """
        return math.inf, math.inf

    def unexplained(self, cells: Tally, n_users: int) -> tuple[str, ...]:
        """Return warnings of counts that no honest users cause, or none. Run by the analyzer."""
        return ()


_NULL_BYTE: Final = 0xFF


class Incidence(NamedTuple):
    """The matrix A[cell, item], 1 if the cell supports the item, else 0, as two linear maps."""

    forward: Callable[[Vector], Vector]
    """Sums theta over the items that each cell supports. (domain_size,) -> (cells,)."""
    adjoint: Callable[[Vector], Vector]
    """Sums weights over the cells that support each item. (cells,) -> (domain_size,)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Channel:
    """The probability of each cell under a distribution θ: scale · (signal · Aθ + floor · Σθ)."""

    incidence: Incidence
    """The matrix A."""
    scale: Vector
    """Probability of each cell's row: a seed's multiples in hashing, else 1; shape (cells,)."""
    signal: float
    """Additional probability, within its row, of a cell that supports the user's item: the real
    share times the p - q of the response."""
    floor: float
    """Probability of any cell within its row, due to noise and dummies: real share · q +
    (1 - real share) · (probability of the cell for a uniform dummy)."""

    def forward(self, theta: Vector) -> Vector:
        """Return the probabilities of all cells, shape (cells,); they sum to 1 if theta does."""
        mass = self.signal * self.incidence.forward(theta) + self.floor * float(theta.sum())
        return self.scale * mass

    def adjoint(self, weights: Vector) -> Vector:
        """Apply the transpose of `forward`. (cells,) -> (domain_size,)."""
        scaled = self.scale * weights
        return np.asarray(self.signal * self.incidence.adjoint(scaled) + self.floor * scaled.sum())


class Linear(NamedTuple):
    """
    An estimator of shares that is linear in the counts of cells: f = (B·counts - constant) / (n·s).

    Symbols and their use: common/mechanisms/covariance.py.
    """

    gather: Callable[[Vector], Vector]
    """B, (cells,) -> (domain_size,)."""
    scatter: Callable[[Vector], Vector]
    """The transpose of B."""
    base: Vector
    gain: float
    dummy: Vector
    """The vectors b and u and the number s."""
    channel: Channel
    """The distribution of a report's cell."""
    exact_prefixes: bool = False
    """Whether covariances of two items are a sum of a term for each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixture:
    """
    The composition of the counted reports, as the analyzer knows it.

    Each report is a user's own, a uniform dummy, or a dummy that names an item. The number of
    dummies that name an item is random; see `total_is_known`.
    """

    n_real: float
    """Number, above 0, of users whose reports may be counted; expected if some were refused."""
    n_dummies: float = 0.0
    """Number of uniform dummies among the counted reports."""
    keep_probability: float = 1.0
    """Probability that the shuffler kept a user's own report."""
    item_mean: float = 0.0
    """Expected number of dummies that name a given item."""
    item_variance: float = 0.0
    """Variance of the number of dummies that name a given item."""
    item_law: tuple[Draws, ...] = field(default=(), compare=False)
    """Distribution of that number, up to a constant, as a sum; empty if there are none."""
    total_is_known: bool = True
    """Whether the number of all dummies that name items is known. If so, the numbers of two items
    have the covariance -item_variance / (domain_size - 1); else they are independent."""

    def real_share(self, domain_size: int) -> float:
        """Return the expected share of users' own reports among all reports, in 0 .. 1."""
        own = self.n_real * self.keep_probability
        return own / (own + self.n_dummies + domain_size * self.item_mean)


@dataclass(frozen=True, slots=True, kw_only=True)
class MechanismRequest:
    """The parameters from which the integer weights of a mechanism are computed."""

    name: MechanismName
    domain_size: int
    """Number of items, at least 2."""
    buckets: int
    """Number of buckets for hashing, and fan-out of a hierarchy; others ignore it."""
    local_epsilon: float
    """Above 0 and at most 20, or infinite for reports without noise."""
    groups: int = 1
    """Number of groups that the items are broken down by; only hashing and hierarchies use it."""

    def spec(
        self, weights: ResponseWeights, *, buckets: int, dtype: np.dtype[Any], digits: int = 1
    ) -> MechanismSpec:
        """Describe the mechanism for a task; raise TaskError if an integer is out of range."""
        return MechanismSpec(
            name=self.name,
            buckets=buckets,
            digits=digits,
            true_weight=weights.true,
            other_weight=weights.other,
            report_bytes=dtype.itemsize,
        )


class Mechanism(Randomizer, Protocol):
    """A randomizer of items and its estimator. Pure; vectorized over users."""

    @classmethod
    def specify(cls, request: MechanismRequest) -> MechanismSpec:
        """Compute a task's integer weights and sizes, or raise TaskError. Run by the analyzer."""

    @classmethod
    def of(cls, task: Task) -> Self:
        """Build a task's mechanism, or raise TaskError. Run by the user agent and the analyzer."""

    domain_size: int
    """Items are 0 .. domain_size-1."""

    @property
    def reduction(self) -> MatchCountReduction | None:
        """Parameters for amplification by shuffling; None if no formula covers the mechanism."""

    def randomize(self, values: NDArray[np.int64], rng: np.random.Generator) -> Reports:
        """
        Randomize items, shape (n,), each in 0 .. domain_size-1. Run by the user agent.

        Returns reports of `report_dtype`, value by value, one for each view. Raises ValueRangeError
        if a value lies outside the domain.
        """

    def dummies(self, count: int, rng: np.random.Generator) -> Reports:
        """Draw `count` reports from the blanket, without an input. Run by the user agent."""

    def supports(self, reports: Reports, item: int) -> NDArray[np.bool_]:
        """Return which reports support an item, as a mask of shape (n,). Run by auditors."""

    def sample_cells(self, users: Counts, n_dummies: int, rng: np.random.Generator) -> Counts:
        """
        Draw the result of `tally` for users and dummies directly. Run by the simulator.

        `users` counts users by item, shape (domain_size,), and `n_dummies` uniform dummies. `rng`
        must never be that of a real collection.
        """

    def debias(self, cells: Counts, mixture: Mixture) -> Vector:
        """Estimate each item's share without bias, shape (domain_size,). Run by the analyzer."""

    def variance(self, shares: Vector, mixture: Mixture) -> Vector:
        """Return the exact variance of each debiased share, (domain_size,), given true shares."""

    def observed_variance(self, cells: Counts, shares: Vector, mixture: Mixture) -> Vector:
        """Estimate the variance of each debiased share; by default at shares clipped to 0 .. 1."""
        return self.variance(np.clip(shares, 0, 1), mixture)

    def interval_table(self, mixture: Mixture) -> IntervalTable:
        """Return the intervals of shares that are estimated from a batch of this composition."""

    def mixture_with_clusters(self, mixture: Mixture) -> Mixture:
        """Return a batch's composition as covariances use it: by default unchanged."""
        return mixture

    @abstractmethod
    def linear(self, real_share: float) -> Linear | None:
        """Return the linear estimator from cells; None if `covariances_with` needs none."""

    def covariances_with(self, weights: Vector, shares: Vector, mixture: Mixture) -> Vector:
        """
        Return each debiased share's covariance with a weighted sum, where `linear` returns None.

        By default errors of items are independent.
        """
        return self.variance(shares, mixture) * weights

    def variances_of_prefixes(self, shares: Vector, mixture: Mixture, groups: int) -> Vector | None:
        """Return variances of sums up to each item of its group; None, by default: covariances."""
        return None

    def unseen(self, mixture: Mixture) -> float:
        """Return the variance of a sum of shares that few reports may not show; 0 by default."""
        return 0.0

    def channel(self, real_share: float) -> Channel | None:
        """
        Return the distribution of a report's cell; by default None: too many cells, or overlapping.

        Of all reports, a share real_share are users' own; the others are uniform dummies.
        """
        return None


def check_values(values: Any, domain_size: int) -> NDArray[np.int64]:  # noqa: ANN401  # a list too
    """Return items; TypeError unless they are whole numbers, ValueRangeError out of range."""
    items = checked_array(values, "iu", "whole numbers")
    if items.size:
        check_value(int(items.min()), domain_size)
        check_value(int(items.max()), domain_size)
    return items.astype(np.int64, copy=False)


def check_value(value: int, domain_size: int) -> None:
    """Check that an integer lies in the domain, or raise ValueRangeError without quoting it."""
    if not 0 <= value < domain_size:
        raise ValueRangeError(f"a value must lie between 0 and {domain_size - 1}")


def reports_of(dtype: np.dtype[Any], **fields: NDArray[Any]) -> Reports:
    """Combine arrays of n elements by field into n reports."""
    reports = np.empty(len(next(iter(fields.values()))), dtype=dtype)
    for name, values in fields.items():
        reports[name] = values
    return reports


def check_valid(valid: NDArray[np.bool_], rule: str) -> None:
    """Raise ReportError, which states the rule that one broke, unless all reports are valid."""
    if not valid.all():
        raise ReportError(rule)


def null_reports(count: int, dtype: np.dtype[Any]) -> Reports:
    """
    Return `count` null reports of 0xFF bytes, which no mechanism can return.

    They pad a submission to the next of its task's lengths; the analyzer discards them.
    """
    return np.frombuffer(bytes([_NULL_BYTE]) * (count * dtype.itemsize), dtype=dtype)


def is_null(reports: Reports) -> NDArray[np.bool_]:
    """Return which reports are null reports, as a mask of shape (n,)."""
    raw = np.ascontiguousarray(reports).view(np.uint8)
    raw = raw.reshape(len(reports), reports.dtype.itemsize)
    return np.asarray((raw == _NULL_BYTE).all(axis=1))


def check_report_bytes(spec: AnySpec, dtype: np.dtype[Any]) -> None:
    """Check that a task states the length of its mechanism's reports, or raise TaskError."""
    if spec.report_bytes != dtype.itemsize:
        raise TaskError(
            f"report_bytes is {spec.report_bytes}; for this mechanism it must be {dtype.itemsize}"
        )


def check_answers(spec: MechanismSpec, answers: int) -> None:
    """Check that a task states `answers` buckets and one digit, or raise TaskError."""
    if (spec.buckets, spec.digits) != (answers, 1):
        raise TaskError(
            f"buckets is {spec.buckets} and digits is {spec.digits}; "
            f"for the mechanism {spec.name} they must be {answers} and 1"
        )
