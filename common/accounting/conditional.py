"""
δ(ε | M) of formula 1 for a given blanket size M, bounded from above.

Given H_x' = h, the inner expectation is convex in h: raising h by one removes a trial from H_x, or
none, and subtracts e^ε ≥ 1, and these increments do not decrease. So in a cell of H_x' the average
is at most that of the chord, and at least the value at the cell's mean (Jensen); a cell's exact
mass and mean determine both bounds. Their gap shows how fine the cells must be.

If two values collide with a probability c that is neither 0 nor 1/l, the number B of messages that
support both is binned first, and bins are charged at their lower edge, since the expectation falls
with B. Let R be the sum over all other messages. One that supports both adds 1 - e^ε; one that does
not adds an independent Y with E[Y] = (1 - e^ε)·(1-c)/(l-c) ≥ 1 - e^ε. By Jensen's inequality
E(R + Y)_+ ≥ E(R + E[Y])_+ ≥ E(R + 1 - e^ε)_+.
"""

import dataclasses
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shuffledp.common.accounting import binomial
from shuffledp.common.accounting.anonymity_set import subdivided
from shuffledp.common.accounting.binomial import RELATIVE_ERROR
from shuffledp.common.accounting.count_distributions import ROUNDING
from shuffledp.common.mechanisms.base import Vector
from shuffledp.common.mechanisms.reduction import MatchCountReduction

_MEAN_ERROR: Final = 1e-10
"""Maximum relative error of a cell's mean, a ratio of masses whose errors largely cancel."""
COARSE_GRID: Final = np.concatenate([np.arange(-12, 5, 0.25), [5, 6, 7, 9, 12]])
"""Initial ends of the cells of H_x', in standard deviations from its mean."""
_LAST_ENDS: Final = np.array([1.0, 2.0, 4.0])
"""Counts added to the last end as further ends, for standard deviations below 1."""
_BOTH_EDGES: Final = np.concatenate([[-6, -4, -3], np.arange(-2.25, 2.5, 0.25), [3, 4, 5, 7]])
"""Lower edges of the bins of B (messages that support both), in deviations from the mean."""
_MAX_PIECES: Final = 60
_MAX_NARROW_WIDTH: Final = 4
"""Maximum width of a cell in which every count becomes an end."""
_NEARBY: Final = 8
"""Cells on each side of a relevant one that may be relevant at another M."""
_NEGLIGIBLE: Final = 1e-7
"""Share of δ below which a cell is ignored."""


class Cells:
    """Masses and means of the cells of X ~ Binomial(trials, chance), for an array of trials."""

    def __init__(self, trials: Vector, chance: float, grid: Vector) -> None:
        """
        Lay out the cells, and compute their masses and means.

        `trials` has shape (..., 1); `grid` holds the ends of cells in standard deviations from the
        mean, ascending.
        """
        mean = trials * chance
        inner = np.floor(mean + np.sqrt(mean * (1 - chance)) * grid)
        ends = np.concatenate([np.zeros_like(mean), inner, inner[..., -1:] + _LAST_ENDS], axis=-1)
        self.nodes: Vector = np.clip(ends, 0, trials)
        self._masses = binomial.interval_masses(self.nodes, trials, chance)
        # h·P(X = h) = trials·chance·P(X' = h-1), X' with one trial less.
        fewer = np.maximum(trials - 1, 0)
        moments = mean * binomial.interval_masses(self.nodes - 1, fewer, chance)
        means = np.divide(
            moments, self._masses, out=self.nodes[..., :-1].copy(), where=self._masses > 0
        )
        self._means = np.clip(means, self.nodes[..., :-1], self.nodes[..., 1:])
        _, self._last = binomial.tails(self.nodes[..., -1:] - 1, trials, chance)

    def chords(self) -> Vector:
        """
        Return a weight for each node: each cell's mass, split between both ends to keep its mean.

        As the expectation falls with h, the mean is rounded down, and the last cell, which is open,
        counts at its lower end.
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
        Return each cell's mean and mass; each has one column less than nodes.

        For a lower bound the open last cell is omitted, masses are rounded down and means up.
        """
        means = np.minimum(self._means + _MEAN_ERROR * self.nodes[..., 1:], self.nodes[..., 1:])
        return means, self._masses * (1 - RELATIVE_ERROR)


@dataclass(frozen=True, slots=True)
class _Rows:
    """
    The inner expectation for each M: E[(H_x - e^ε·h - (e^ε - 1)·base)_+] given H_x' = h.

    H_x' ~ Bin(trials, chance). H_x ~ Bin(n, own_chance), n = trials - h if exclusive, else trials.
    """

    trials: Vector
    """Number of messages that may support x or x', shape (rows, 1)."""
    base: Vector
    """M·q/(p-q), plus the number of other messages, which support both; shape (rows, 1)."""
    chance: float
    """Probability that one of these messages supports x'."""
    own_chance: float
    """Probability that one supports x; if exclusive, given that it does not support x'."""
    exclusive: bool
    """True if none of these messages supports both x and x'."""

    def excess(
        self,
        other_matches: Vector,
        epsilon: float,
        margin: float,
        needed: NDArray[np.bool_] | None = None,
    ) -> Vector:
        """
        Return one-sided bounds for whole h, shape (rows, k); margin as in `stop_loss`.

        By default all are `needed`; the others are 0.
        """
        growth = np.expm1(epsilon)
        threshold = other_matches * (1 + growth) + self.base * growth
        left = self.trials - other_matches if self.exclusive else self.trials
        trials = np.broadcast_to(left, threshold.shape)
        if needed is None:
            return binomial.stop_loss(trials, self.own_chance, threshold, margin)
        found: Vector = np.zeros_like(threshold)
        found[needed] = binomial.stop_loss(
            trials[needed], self.own_chance, threshold[needed], margin
        )
        return found

    def between_wholes(self, other_matches: Vector, epsilon: float, margin: float) -> Vector:
        """Interpolate the expectation linearly between whole h, so that it is convex for Jensen."""
        whole = np.floor(other_matches)
        at_whole, at_next = (
            self.excess(np.minimum(h, self.trials), epsilon, margin) for h in (whole, whole + 1)
        )
        return at_whole + (other_matches - whole) * (at_next - at_whole)


def _rows(reduction: MatchCountReduction, sizes: Vector, presence: Vector) -> tuple[_Rows, Vector]:
    """
    Return the rows for each M, and their weights, shape (m, rows per M).

    A victim's report that is among the M messages with probability π, and otherwise replaced by a
    uniform one, has signal π(p-q) and blanket γ + (1-π)(p-q). base is B + M·q/(p-q) for these, with
    q = blanket / l.

    A uniform message supports both values with probability c/l, each alone with (1-c)/l. So one
    of the M - B messages that do not support both supports x' with probability
    (1-c)/l / (1-c/l) = (1-c)/(l-c), and one that does not support x' supports x with
    (1-c)/l / (1-1/l) = (1-c)/(l-1).
    """
    blanket = reduction.blanket + reduction.signal * (1 - presence)
    base = (sizes * blanket / (reduction.answers * reduction.signal * presence))[:, None]
    sizes, weights = sizes[:, None], np.ones((len(sizes), 1))
    if reduction.pairwise_independent:
        chance = 1 / reduction.answers
        return _Rows(sizes, base, chance, chance, exclusive=False), weights
    other = (1 - reduction.collision) / (reduction.answers - reduction.collision)
    own = (1 - reduction.collision) / (reduction.answers - 1)
    if reduction.collision == 0:
        return _Rows(sizes, base, other, own, exclusive=True), weights
    mean = sizes * reduction.collision / reduction.answers
    spread = np.sqrt(mean * (1 - reduction.collision / reduction.answers))
    both = np.maximum(np.floor(mean + spread * _BOTH_EDGES), 0)
    both = np.minimum(np.concatenate([np.zeros_like(mean), both], axis=1), sizes)
    both_chance = reduction.collision / reduction.answers
    closed = binomial.interval_masses(both, sizes, both_chance)
    _, last = binomial.tails(both[:, -1:] - 1, sizes, both_chance)
    weights = np.concatenate([closed, last], axis=1) * (1 + RELATIVE_ERROR)
    trials, base = (sizes - both).reshape(-1, 1), (base + both).reshape(-1, 1)
    rows = _Rows(trials, base, other, own, exclusive=True)
    return rows, weights


class ConditionalDelta:
    """Bounds on δ(ε | M) for an array of sizes M; the law of H_x' is computed once for all ε."""

    def __init__(
        self,
        reduction: MatchCountReduction,
        sizes: Vector,
        grid: Vector,
        presence: Vector | None = None,
    ) -> None:
        """
        Compute the distribution of H_x' for values of M, at least 1, shape (m,).

        The grid is from `grid_for`. `presence` is the probability π, for each M, that the victim's
        report is among the M messages; by default 1.
        """
        present = np.ones_like(sizes) if presence is None else presence
        self._rows, self._row_weights = _rows(reduction, sizes, present)
        self._cells = Cells(self._rows.trials, self._rows.chance, grid)
        self._weights = self._cells.chords()
        self._scale: Vector = reduction.answers * reduction.signal * present / sizes

    def __call__(self, epsilon: float) -> Vector:
        """Return an upper bound on δ(ε | M) for each M, shape (m,). Cost: a pass over the cells."""
        needed = self._weights > 0  # a third of the ends repeat others
        excess = self._rows.excess(self._cells.nodes, epsilon, RELATIVE_ERROR, needed)
        return self._averaged((self._weights * excess).sum(axis=1))

    def lower(self, epsilon: float) -> Vector:
        """Return a lower bound on δ(ε | M) for each M; raise ValueError unless c is 0 or 1/l."""
        if self._row_weights.shape[1] > 1:
            raise ValueError("no lower bound is computed for this collision probability")
        means, masses = self._cells.centres()
        excess = self._rows.between_wholes(means, epsilon, -RELATIVE_ERROR)
        return self._averaged((masses * excess).sum(axis=1))

    def _averaged(self, expected: Vector) -> Vector:
        """Average over the rows of each M, and scale by l·(p-q)/M."""
        rows = expected.reshape(self._row_weights.shape)
        return np.asarray(self._scale * (self._row_weights * rows).sum(axis=1))


def two_answers_delta(reduction: MatchCountReduction, sizes: Vector, epsilon: float) -> Vector:
    """
    Return an upper bound on δ(ε | M) for each M ≥ 1, shape (m,), if all messages name x or x'.

    With l = 2 and collision 0, H_x = M - H_x', and the excess is (1 + e^ε)·E[(u - H_x')_+] with
    u = (M - (e^ε - 1)·M·q/(p-q)) / (1 + e^ε), in closed form.
    """
    growth = np.expm1(epsilon)
    lost = growth * (reduction.blanket / (2 * reduction.signal))
    # u is a difference: its error is some roundings of the larger term.
    share = (1 - lost + 8 * ROUNDING * (1 + lost)) / (2 + growth)
    expected = binomial.shortfall(sizes, sizes * min(share, 1.0))
    delta: Vector = 2 * reduction.signal * (2 + growth) / sizes * expected
    return delta * (1 + RELATIVE_ERROR)


def grid_for(
    reduction: MatchCountReduction, size: float, epsilon: float, tolerance: float
) -> Vector:
    """
    Return ends of the cells of H_x' for which chords cost about a share `tolerance` of δ(ε | size).

    Ends are in standard deviations from the mean, ascending. The gap between a cell's chord and its
    centre falls with the third power of its width (mass times squared width). A gap g becomes g/k²
    in k pieces: Σ g/k² is least for given Σ k if k ∝ g^(1/3).
    """
    rows, weights = _rows(reduction, np.array([size]), np.ones(1))
    # The row of the likeliest B decides for all rows.
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
    # Limits the number of pieces where δ is almost 0.
    allowed = max(tolerance * total, 1e-6 * float(gaps.sum()))
    pieces = np.ceil(np.cbrt(gaps) * np.sqrt(np.cbrt(gaps).sum() / max(allowed, 1e-300)))
    # In narrow cells every count becomes an end, because gaps vary with M there.
    relevant = masses[0] * at_nodes[:-1] > _NEGLIGIBLE * total
    nearby = np.convolve(relevant, np.ones(2 * _NEARBY + 1), mode="same") > 0
    narrow = (right - left <= _MAX_NARROW_WIDTH) & nearby
    pieces = np.where(narrow, np.ceil(right - left) + 1, pieces)
    # No finer than single counts.
    pieces = np.clip(pieces, 1, np.clip(np.ceil(right - left) + 1, 1, _MAX_PIECES)).astype(int)
    # The first cell, which starts at 0, and those beyond the grid stay whole.
    return subdivided(COARSE_GRID, pieces[1 : len(COARSE_GRID)])
