"""
δ(ε | M): what remains to learn among M uniform messages, bounded from above.

The expectation is convex in H_x', the count of the victim's other value: moving H_x' by one
replaces a trial of H_x by another and takes e^ε ≥ 1 off, and the increments add up in a convex
function. So inside a cell of H_x' the chord lies above, the value at the cell's mean below, and
a cell's exact mass and mean place either. The gap between the two says how fine cells must be.
"""

from typing import Final

import numpy as np

from common.accounting.binomial import interval_masses, more_than, stop_loss
from common.accounting.tails import RELATIVE_ERROR
from common.mechanisms.mechanism import Vector
from common.mechanisms.reduction import MatchCountReduction

_MEAN_ERROR: Final = 1e-10
"""Relative error of a cell's mean: that of two tails, which agree in their own errors."""
COARSE_GRID: Final = np.concatenate([np.arange(-12, 5, 0.25), [5, 6, 7, 9, 12]])
"""Where cells of H_x' end at first, in standard deviations from its mean."""
_BOTH: Final = np.concatenate([np.arange(-8, 8, 0.4), [8, 9, 12]])
"""Where cells of the reports that support both values end."""
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
        inner = np.clip(np.floor(mean + np.sqrt(mean * (1 - chance)) * grid), 0, trials)
        self.nodes: Vector = np.concatenate([np.zeros_like(mean), inner], axis=-1)
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
        self._reduction = reduction
        self._sizes = sizes[:, None]
        self._presence = np.ones_like(self._sizes) if presence is None else presence[:, None]
        self._cells = Cells(self._sizes, 1 / reduction.answers, grid)
        self._weights = self._cells.chords()

    def __call__(self, epsilon: float) -> Vector:
        """Give δ(ε | M) for every M, an upper bound; shape as sizes."""
        nodes = self._cells.nodes
        excess = expected_excess(
            self._reduction, self._sizes, nodes, epsilon, presence=self._presence
        )
        return self._scaled((self._weights * excess).sum(axis=1))

    def lower(self, epsilon: float) -> Vector:
        """Give a lower bound of the same."""
        means, masses = self._cells.centres()
        excess = _between_wholes(
            self._reduction,
            self._sizes,
            means,
            epsilon,
            presence=self._presence,
            margin=-RELATIVE_ERROR,
        )
        return self._scaled((masses * excess).sum(axis=1))

    def _scaled(self, expected: Vector) -> Vector:
        law = self._reduction
        delta: Vector = law.answers * law.signal / self._sizes[:, 0] * expected
        return delta * self._presence[..., 0]


def grid_for(
    reduction: MatchCountReduction, size: float, epsilon: float, tolerance: float
) -> Vector:
    """
    Find where cells of H_x' must end for chords to cost at most `tolerance` of δ(ε | size).

    Between a cell's chord and its centre lies a gap of the third order of its width, so a cell
    with gap g is cut into pieces in proportion to g^(1/3).
    """
    sizes = np.array([[size]])
    cells = Cells(sizes, 1 / reduction.answers, COARSE_GRID)
    at_nodes = expected_excess(reduction, sizes, cells.nodes, epsilon)[0]
    means, masses = cells.centres()
    at_means = _between_wholes(reduction, sizes, means, epsilon)[0]
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
    # The first cell, from 0 to the grid's first point, cannot be cut in standard deviations.
    cut = [
        np.linspace(start, end, count, endpoint=False)
        for start, end, count in zip(COARSE_GRID[:-1], COARSE_GRID[1:], pieces[1:], strict=True)
    ]
    return np.concatenate([*cut, COARSE_GRID[-1:]])


def expected_excess(
    reduction: MatchCountReduction,
    sizes: Vector,
    other_matches: Vector,
    epsilon: float,
    *,
    presence: Vector | float = 1.0,
    margin: float = RELATIVE_ERROR,
) -> Vector:
    """
    Bound E[(H_x - e^ε·h - M(e^ε-1)·γ/(l(p-q)))_+ | H_x' = h] from one side.

    Given h, of the reports that support x' each supports x with the collision probability c, and
    of the others each with probability (1-c)/(l-1).

    Args:
        reduction: The mechanism.
        sizes: M, shape (m, 1).
        other_matches: h, shape (m, k), whole numbers up to M.
        epsilon: ε.
        presence: Probability that the victim's report is among the M, shape (m, 1): its signal
            is only so often there.
        margin: As stop_loss's: RELATIVE_ERROR for an upper bound.

    Returns:
        Shape (m, k).
    """
    law = reduction
    growth = np.expm1(epsilon)
    blanket = law.blanket + law.signal * (1 - presence)
    threshold = other_matches * (1 + growth) + sizes * (
        growth * blanket / (law.answers * law.signal * presence)
    )
    if law.pairwise_independent:
        return stop_loss(
            np.broadcast_to(sizes, threshold.shape), 1 / law.answers, threshold, margin
        )
    chance = (1 - law.collision) / (law.answers - 1)
    if law.collision == 0:
        return stop_loss(sizes - other_matches, chance, threshold, margin)
    both = Cells(other_matches[..., None], law.collision, _BOTH)
    left = np.maximum(threshold[..., None] - both.nodes, 0)
    trials = np.broadcast_to((sizes - other_matches)[..., None], left.shape)
    # (x - t)_+ for t < 0 is x - t: what the threshold was raised by comes off exactly.
    surplus = np.maximum(both.nodes - threshold[..., None], 0)
    rest = stop_loss(trials, chance, left, margin) + surplus
    total: Vector = (both.chords() * rest).sum(axis=-1)
    return total


def _between_wholes(
    reduction: MatchCountReduction,
    sizes: Vector,
    other_matches: Vector,
    epsilon: float,
    *,
    presence: Vector | float = 1.0,
    margin: float = RELATIVE_ERROR,
) -> Vector:
    """Go straight from each whole number to the next: the convex function that Jensen needs."""
    whole = np.floor(other_matches)
    at_whole, at_next = (
        expected_excess(
            reduction, sizes, np.minimum(h, sizes), epsilon, presence=presence, margin=margin
        )
        for h in (whole, whole + 1)
    )
    return at_whole + (other_matches - whole) * (at_next - at_whole)
