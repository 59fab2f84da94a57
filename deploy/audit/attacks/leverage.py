"""
The leverage of one report on the estimate of some items, the targets, together.

Every estimator here is linear in the counts by cell: a report adds a fixed weight to the sum of the
targets' debiased shares, times n·(p-q). Where reports support items, the weight is the number of
targets it supports; the places of a square wave are weighted by least squares. The estimator
subtracts r·q for each user and r·q_dummy for each further report, r the number of targets. So a
share λ of users, whose own reports weigh h and k further ones h' each, raises the sum by

    λ·[(h - r·q + k·(h' - r·q_dummy)) / (p - q) - f_T]

on average, f_T the targets' share among the other users: [CJG21] for k = 0, and dummies by the same
expectation. The report of a user who holds a target weighs r·q + p - q on average, which raises the
sum by λ·(1 - f_T), whatever the mechanism.
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_toeplitz

from common.mechanisms.base import Mechanism, Reports, Vector
from common.mechanisms.hashing.string_hashing import StringHashing
from common.mechanisms.randomized_response import Grr
from common.mechanisms.square_wave import SquareWave
from common.mechanisms.support import SupportCounting
from common.mechanisms.unary import UnaryEncoding
from common.messages.submission import plain_reports
from common.task.task import Task
from deploy.audit.attacks.crafted_reports import Items, blunt, crafted, supported


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Leverage:
    """The weights of reports for one choice of targets."""

    targets: Items
    signal: float
    """p - q."""
    own_floor: float
    """Subtracted for each user: r·q."""
    dummy_floor: float
    """Subtracted for each further report: r·q_dummy."""
    low: float
    high: float
    """Least and greatest weight of any report: they bound every attack."""
    uniform: float
    """Mean weight of a uniformly random valid report."""
    crafted: Reports
    """The report that lifts the targets most above all items; shape (1,)."""
    weight: float
    """Its weight."""
    blunt: Reports | None
    """A report that supports every item, if it weighs more; shape (1,)."""
    searched_in_part: bool = False
    """Not all reports were searched: another may weigh more than the crafted one."""
    places: Vector | None = None
    """Weight of each place of a square wave."""

    @property
    def honest(self) -> float:
        """Mean weight of the report of a user who holds a target."""
        return self.own_floor + self.signal

    @property
    def worth(self) -> float:
        """Number of honest answers for targets that the crafted report counts for."""
        return (self.weight - self.own_floor) / self.signal

    def weigh(self, mechanism: Mechanism, reports: Reports) -> float:
        """Return the total weight of reports. Cost: a pass per target."""
        if self.places is not None:
            return float(self.places[reports["item"]].sum())
        return float(supported(mechanism, reports, self.targets).sum())

    def together(self, reports_per_user: int) -> float:
        """Return how many honest answers a submission of crafted reports counts for."""
        own = self.weight - self.own_floor
        further = (reports_per_user - 1) * (self.weight - self.dummy_floor)
        return (own + further) / self.signal

    def most(self, reports_per_user: int) -> float:
        """Return the most honest answers that any submission counts for."""
        own = self.high - self.own_floor
        return (own + (reports_per_user - 1) * (self.high - self.dummy_floor)) / self.signal

    def gain(self, share: float, own: float, *, further: float, each: float, held: float) -> float:
        """
        Return the mean rise of the targets' shares together; see the formula above.

        Args:
            share: λ, the share of fake users.
            own: Weight of each fake user's first report.
            further: Further reports of each that are counted.
            each: Weight of each further report.
            held: f_T.
        """
        moved = own - self.own_floor + further * (each - self.dummy_floor)
        return share * (moved / self.signal - held)


def leverage(
    task: Task, mechanism: Mechanism, targets: Items, rng: np.random.Generator
) -> Leverage:
    """
    Find the worst report and its weight.

    Args:
        task: The task.
        mechanism: Its mechanism.
        targets: Different items, shape (r,).
        rng: Draws the reports to try where a hash family is too large to search.

    Raises:
        TypeError: There is no attack for this mechanism.
    """
    if isinstance(mechanism, SquareWave):
        return _of_square_wave(mechanism, targets)
    one_item, bits = isinstance(mechanism, Grr), isinstance(mechanism, UnaryEncoding)
    if not isinstance(mechanism, SupportCounting):
        raise TypeError(f"there is no crafted report for {type(mechanism).__name__}")
    worst, all_items, r = crafted(mechanism, targets, rng), blunt(mechanism), len(targets)
    weight = float(supported(mechanism, worst, targets)[0])
    # Where the shuffler adds dummies, the estimator subtracts those, whatever users send.
    expected = mechanism.q_dummy if task.shuffler.idle else 0.0
    return Leverage(
        targets=targets,
        signal=mechanism.p - mechanism.q,
        own_floor=r * mechanism.q,
        dummy_floor=r * expected,
        low=0.0,
        high=1.0 if one_item else float(r),
        uniform=r / 2 if bits else r * mechanism.q_dummy,
        crafted=worst,
        weight=weight,
        blunt=all_items if weight < r else None,
        searched_in_part=isinstance(mechanism, StringHashing) and weight < r,
    )


def _of_square_wave(mechanism: SquareWave, targets: Items) -> Leverage:
    """
    Weight every place by least squares: A(AᵀA)⁻¹·1_T, A the places around each item.

    AᵀA counts the places that two items share, which depends on their distance alone.
    """
    d, width = mechanism.domain_size, mechanism.width
    wanted = np.zeros(d)
    wanted[targets] = 1.0
    shared = np.maximum(0, width - np.arange(d)).astype(np.float64)
    weights = np.convolve(solve_toeplitz(shared, wanted), np.ones(width))
    total = width * mechanism.weights.true + (d - 1) * mechanism.weights.other
    best = int(weights.argmax())
    return Leverage(
        targets=targets,
        signal=(mechanism.weights.true - mechanism.weights.other) / total,
        own_floor=float(weights.sum()) * mechanism.weights.other / total,
        dummy_floor=float(weights.mean()),
        low=float(weights.min()),
        high=float(weights[best]),
        uniform=float(weights.mean()),
        crafted=plain_reports(np.array([best], dtype=np.int64)),
        weight=float(weights[best]),
        blunt=None,
        places=weights,
    )
