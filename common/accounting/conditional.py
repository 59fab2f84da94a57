"""
δ(ε | M): what remains to learn among M uniform messages, bounded from above.

The expectation is convex in H_x', the count of the victim's other value: moving H_x' by one
takes a trial off H_x, or none, and e^ε ≥ 1 off the sum, and the increments add up in a convex
function. So inside a cell of H_x' the chord lies above, the value at the cell's mean below, and
a cell's exact mass and mean place either. The gap between the two says how fine cells must be.

Where two values collide with a probability c that is neither 0 nor 1/l, the number B of messages
that support both is binned first. The expectation falls with B: such a message adds 1 - e^ε for
certain, another one no less on average, and spreads the sum. So bins are charged at their low edge.
"""

import dataclasses
from dataclasses import dataclass
from typing import Final

import numpy as np

from common.accounting.binomial import RELATIVE_ERROR, interval_masses, more_than, stop_loss
from common.mechanisms.base import Vector
from common.mechanisms.reduction import MatchCountReduction

_MEAN_ERROR: Final = 1e-10
"""Relative error of a cell's mean: that of two tails, which agree in their own errors."""
COARSE_GRID: Final = np.concatenate([np.arange(-12, 5, 0.25), [5, 6, 7, 9, 12]])
"""Where cells of H_x' end at first, in standard deviations from its mean."""
_BEYOND: Final = np.array([1.0, 2.0, 4.0])
"""Whole numbers beyond the last end, for laws whose standard deviations are less than one."""
_BOTH_EDGES: Final = np.concatenate([[-6, -4, -3], np.arange(-2.25, 2.5, 0.25), [3, 4, 5, 7]])
"""Low edges of bins of the messages that support both values, in standard deviations."""
_MOST_PIECES: Final = 60
_FEW: Final = 4
"""Whole numbers in a cell that are taken one by one."""
_NEARBY: Final = 8
"""Cells to each side of one that matters that may matter at another M."""
_NEGLIGIBLE: Final = 1e-7
"""Share of δ that a cell may cost without being looked at."""


class Cells:
    """Cells of X ~ Binomial(trials, chance), for an array of trials: masses and means."""

    def __init__(self, trials: Vector, chance: float, grid: Vector) -> None:
        """
        Lay out cells.

        Args:
            trials: Whole numbers, shape (..., 1).
            chance: Of one trial.
            grid: Ends of cells in standard deviations, ascending.
        """
        mean = trials * chance
        inner = np.floor(mean + np.sqrt(mean * (1 - chance)) * grid)
        ends = np.concatenate([np.zeros_like(mean), inner, inner[..., -1:] + _BEYOND], axis=-1)
        self.nodes: Vector = np.clip(ends, 0, trials)
        self._masses = interval_masses(self.nodes, trials, chance)
        # Σ h·P(X = h) over a cell is trials·chance times the mass of the cell, moved down by
        # one, under one trial less.
        fewer = np.maximum(trials - 1, 0)
        moments = mean * interval_masses(self.nodes - 1, fewer, chance)
        means = np.divide(
            moments, self._masses, out=self.nodes[..., :-1].copy(), where=self._masses > 0
        )
        self._means = np.clip(means, self.nodes[..., :-1], self.nodes[..., 1:])
        self._last = more_than(self.nodes[..., -1:] - 1, trials, chance)

    def chords(self) -> Vector:
        """
        Put each cell's mass on its two ends so that mass and mean are kept; shape as nodes.

        The mean is taken a little too low, and the open last cell at its low end: the
        expectation falls.
        """
        left, right = self.nodes[..., :-1], self.nodes[..., 1:]
        share = (self._means - _MEAN_ERROR * right - left) / np.maximum(right - left, 1)
        to_right = self._masses * np.clip(share, 0, 1)
        weights = np.zeros_like(self.nodes)
        weights[..., :-1] += self._masses - to_right
        weights[..., 1:] += to_right
        weights[..., -1:] += self._last
        return weights * (1 + RELATIVE_ERROR)

    def centres(self) -> tuple[Vector, Vector]:
        """
        Give each cell's mean and mass; shapes with one column less than nodes.

        The open last cell is left out, masses are taken a little too low and means too high:
        what a lower bound needs.
        """
        means = np.minimum(self._means + _MEAN_ERROR * self.nodes[..., 1:], self.nodes[..., 1:])
        return means, self._masses * (1 - RELATIVE_ERROR)


@dataclass(frozen=True, slots=True)
class _Rows:
    """
    What is asked for each M: E[(A - e^ε·h - (e^ε - 1)·base)_+], H = h a binomial count.

    A is binomial with `trials`, less h where the two values exclude each other.
    """

    trials: Vector
    """Shape (rows, 1)."""
    base: Vector
    """Shape (rows, 1)."""
    chance: float
    """That a message supports x', of `trials`."""
    own_chance: float
    """That a message supports x, of those that may."""
    exclusive: bool

    def excess(self, other_matches: Vector, epsilon: float, margin: float) -> Vector:
        """Bound the expectation given h, whole numbers of shape (rows, k); margin: stop_loss's."""
        growth = np.expm1(epsilon)
        threshold = other_matches * (1 + growth) + self.base * growth
        left = self.trials - other_matches if self.exclusive else self.trials
        trials = np.broadcast_to(left, threshold.shape)
        return stop_loss(trials, self.own_chance, threshold, margin)

    def between_wholes(self, other_matches: Vector, epsilon: float, margin: float) -> Vector:
        """Go straight from each whole number to the next: the convex function that Jensen needs."""
        whole = np.floor(other_matches)
        at_whole, at_next = (
            self.excess(np.minimum(h, self.trials), epsilon, margin) for h in (whole, whole + 1)
        )
        return at_whole + (other_matches - whole) * (at_next - at_whole)


def _rows(reduction: MatchCountReduction, sizes: Vector, presence: Vector) -> tuple[_Rows, Vector]:
    """
    Lay out what is asked for each M, and the weight of each of its rows, shape (m, rows per M).

    base is B + M·γ/(l(p-q)), with the signal p-q as often there as the victim's report is.
    """
    blanket = reduction.blanket + reduction.signal * (1 - presence)
    base = sizes * blanket / (reduction.answers * reduction.signal * presence)
    if reduction.pairwise_independent:
        chance = 1 / reduction.answers
        rows = _Rows(sizes[:, None], base[:, None], chance, chance, exclusive=False)
        return rows, np.ones((len(sizes), 1))
    one = (1 - reduction.collision) / (reduction.answers - reduction.collision)
    own = (1 - reduction.collision) / (reduction.answers - 1)
    if reduction.collision == 0:
        rows = _Rows(sizes[:, None], base[:, None], one, own, exclusive=True)
        return rows, np.ones((len(sizes), 1))
    mean = sizes[:, None] * reduction.collision / reduction.answers
    spread = np.sqrt(mean * (1 - reduction.collision / reduction.answers))
    both = np.maximum(np.floor(mean + spread * _BOTH_EDGES), 0)
    both = np.minimum(np.concatenate([np.zeros_like(mean), both], axis=1), sizes[:, None])
    both_chance = reduction.collision / reduction.answers
    closed = interval_masses(both, sizes[:, None], both_chance)
    last = more_than(both[:, -1:] - 1, sizes[:, None], both_chance)
    weights = np.concatenate([closed, last], axis=1) * (1 + RELATIVE_ERROR)
    trials = (sizes[:, None] - both).reshape(-1, 1)
    rows = _Rows(trials, (base[:, None] + both).reshape(-1, 1), one, own, exclusive=True)
    return rows, weights


class ConditionalDelta:
    """δ(ε | M) for an array of M: the law of H_x' is laid out once, each ε costs one pass."""

    def __init__(
        self,
        reduction: MatchCountReduction,
        sizes: Vector,
        grid: Vector,
        presence: Vector | None = None,
    ) -> None:
        """
        Lay out the law of H_x'.

        Args:
            reduction: The mechanism.
            sizes: Values of M, at least 1, shape (m,).
            grid: From `grid_for`.
            presence: For each M the probability that the victim's report is among the M
                messages at all; without it, 1.
        """
        present = np.ones_like(sizes) if presence is None else presence
        self._rows, self._row_weights = _rows(reduction, sizes, present)
        self._cells = Cells(self._rows.trials, self._rows.chance, grid)
        self._weights = self._cells.chords()
        self._scale: Vector = reduction.answers * reduction.signal * present / sizes

    def __call__(self, epsilon: float) -> Vector:
        """Give δ(ε | M) for every M, an upper bound; shape as sizes."""
        excess = self._rows.excess(self._cells.nodes, epsilon, RELATIVE_ERROR)
        return self._averaged((self._weights * excess).sum(axis=1))

    def lower(self, epsilon: float) -> Vector:
        """
        Give a lower bound of the same.

        Raises:
            ValueError: The collision probability is neither 0 nor 1/l.
        """
        if self._row_weights.shape[1] > 1:
            raise ValueError("no lower bound is computed for this collision probability")
        means, masses = self._cells.centres()
        excess = self._rows.between_wholes(means, epsilon, -RELATIVE_ERROR)
        return self._averaged((masses * excess).sum(axis=1))

    def _averaged(self, expected: Vector) -> Vector:
        rows = expected.reshape(self._row_weights.shape)
        delta: Vector = self._scale * (self._row_weights * rows).sum(axis=1)
        return delta


def grid_for(
    reduction: MatchCountReduction, size: float, epsilon: float, tolerance: float
) -> Vector:
    """
    Find where cells of H_x' must end for chords to cost at most `tolerance` of δ(ε | size).

    Between a cell's chord and its centre lies a gap of the third order of its width, so a cell
    with gap g is cut into pieces in proportion to g^(1/3).
    """
    rows, weights = _rows(reduction, np.array([size]), np.ones(1))
    # One row decides for all: where several are, the one of the likeliest number of both.
    row = int(np.argmax(weights[0]))
    rows = dataclasses.replace(
        rows, trials=rows.trials[row : row + 1], base=rows.base[row : row + 1]
    )
    cells = Cells(rows.trials, rows.chance, COARSE_GRID)
    at_nodes = rows.excess(cells.nodes, epsilon, RELATIVE_ERROR)[0]
    means, masses = cells.centres()
    at_means = rows.between_wholes(means, epsilon, RELATIVE_ERROR)[0]
    left, right = cells.nodes[0, :-1], cells.nodes[0, 1:]
    share = np.divide(means[0] - left, right - left, out=np.zeros_like(left), where=right > left)
    total = float((masses[0] * at_means).sum())
    on_chord = at_nodes[:-1] + share * np.diff(at_nodes)
    gaps = np.maximum(masses[0] * (on_chord - at_means), 0)
    # Where δ is all but 0 there is no saying how fine would be fine.
    allowed = max(tolerance * total, 1e-6 * float(gaps.sum()))
    pieces = np.ceil(np.cbrt(gaps) * np.sqrt(np.cbrt(gaps).sum() / max(allowed, 1e-300)))
    # Of few whole numbers each is an end: between them a gap at one M says little of another's.
    matters = masses[0] * at_nodes[:-1] > _NEGLIGIBLE * total
    nearby = np.convolve(matters, np.ones(2 * _NEARBY + 1), mode="same") > 0
    few = (right - left <= _FEW) & nearby
    pieces = np.where(few, np.ceil(right - left) + 1, pieces)
    # No finer than whole numbers.
    pieces = np.clip(pieces, 1, np.clip(np.ceil(right - left) + 1, 1, _MOST_PIECES)).astype(int)
    # The first cell, from 0 to the grid's first point, cannot be cut in standard deviations, and
    # those beyond the grid are of whole numbers.
    cut = [
        np.linspace(start, end, count, endpoint=False)
        for start, end, count in zip(
            COARSE_GRID[:-1], COARSE_GRID[1:], pieces[1 : len(COARSE_GRID)], strict=True
        )
    ]
    return np.concatenate([*cut, COARSE_GRID[-1:]])
