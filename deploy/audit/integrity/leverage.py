"""
How much one report can move what the estimator says of some items, the targets, together.

Every estimator here is linear in the counts by cell: in the sum of the targets' debiased shares,
times n·(p-q), a report has a fixed weight. Where reports support items it is how many of the
targets it supports; a square wave's places are weighed by least squares. What the estimator takes
off is r·q for each user, and r·q_dummy for each further report, r the number of targets. So a
share λ of users whose own reports weigh h, and whose k further ones weigh h' each, moves the sum by

    λ·[(h - r·q + k·(h' - r·q_dummy)) / (p - q) - f_T]

on average, f_T the targets' share among all others: [CJG21] for k = 0, and dummies by the same
expectation. The report of a user who holds a target weighs r·q + p - q on average: that moves the
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
from deploy.audit.integrity.crafted import Items, blunt, crafted, supported


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Leverage:
    """What reports weigh for one choice of targets."""

    targets: Items
    signal: float
    """p - q."""
    own_floor: float
    """Taken off for each user: r·q."""
    dummy_floor: float
    """Taken off for each further report that was counted: r·q_dummy."""
    low: float
    high: float
    """The least and the greatest weight that any report can have: the bound of every attack."""
    uniform: float
    """Weight of a uniformly random valid report, on average."""
    crafted: Reports
    """The report that lifts the targets most above all items; shape (1,)."""
    weight: float
    """Its weight."""
    blunt: Reports | None
    """One that supports every item there is, where it weighs yet more; shape (1,)."""
    searched_in_part: bool = False
    """There are too many reports to try all: another may weigh more than the crafted one."""
    places: Vector | None = None
    """Of a square wave: the weight of each place."""

    @property
    def honest(self) -> float:
        """Weight of the report of a user who holds a target, on average."""
        return self.own_floor + self.signal

    @property
    def worth(self) -> float:
        """As how many honest answers for targets the crafted report counts."""
        return (self.weight - self.own_floor) / self.signal

    def weigh(self, mechanism: Mechanism, reports: Reports) -> float:
        """Add up what reports weigh. Cost: a pass over them for each target."""
        if self.places is not None:
            return float(self.places[reports["item"]].sum())
        return float(supported(mechanism, reports, self.targets).sum())

    def together(self, reports_per_user: int) -> float:
        """Give as how many honest answers one submission counts of which all are crafted."""
        own = self.weight - self.own_floor
        further = (reports_per_user - 1) * (self.weight - self.dummy_floor)
        return (own + further) / self.signal

    def most(self, reports_per_user: int) -> float:
        """Give as how many honest answers for targets one submission counts, at the most."""
        own = self.high - self.own_floor
        return (own + (reports_per_user - 1) * (self.high - self.dummy_floor)) / self.signal

    def gain(self, share: float, own: float, *, further: float, each: float, held: float) -> float:
        """
        Give what the targets' shares together rise by, on average; see above.

        Args:
            share: λ, of the users who are fake.
            own: Weight of each one's first report.
            further: How many more of each of them are counted.
            each: Weight of these.
            held: f_T.
        """
        moved = own - self.own_floor + further * (each - self.dummy_floor)
        return share * (moved / self.signal - held)


def leverage(
    task: Task, mechanism: Mechanism, targets: Items, rng: np.random.Generator
) -> Leverage:
    """
    Find the worst report, and what it weighs.

    Args:
        task: The task.
        mechanism: Its mechanism.
        targets: Different items, shape (r,).
        rng: Draws the seeds that are tried where no family can be searched whole.

    Raises:
        TypeError: No attack on this mechanism is known here.
    """
    if isinstance(mechanism, SquareWave):
        return _of_square_wave(mechanism, targets)
    one_item, bits = isinstance(mechanism, Grr), isinstance(mechanism, UnaryEncoding)
    if not isinstance(mechanism, SupportCounting):
        raise TypeError(f"there is no crafted report for {type(mechanism).__name__}")
    worst, all_items, r = crafted(mechanism, targets, rng), blunt(mechanism), len(targets)
    weight = float(supported(mechanism, worst, targets)[0])
    # Where the shuffler makes dummies, the estimator takes off its dummies, whatever users send.
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
    Weigh every place by least squares: A(AᵀA)⁻¹·1_T, A the places around each item.

    AᵀA counts the places that two items share, which follows from how far apart they are.
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
