"""
Expectation maximization (EM) [DLR77] on the exact channel of reports, dummies included.

`maximize_likelihood` implements the refinement em, and `smoothed_likelihood` implements ems;
SQUAREM [VR08] accelerates both.
"""

from collections.abc import Callable
from typing import Final

import numpy as np

from shuffledp.common.mechanisms.base import Channel, Counts, Vector

_TINY: Final = 1e-300
"""Replaces 0 in denominators, so that 0/0 is 0. It is a normal double, and dividing a count below
10^8 by it gives a finite number."""
_FLOOR: Final = 0.1
"""Minimum of each extrapolated share, as a fraction of the second image, before scaling. From .001
to .3 the number of steps and the error hardly depend on it; with .9 the number doubles."""
_MAX_CYCLES: Final = 2000
"""Maximum number of cycles. With 1,024 items, em took about 20 cycles and ems up to 800."""


_MOST_AT_ONCE: Final = 1024
"""Maximum number of items of ems without a start from larger blocks."""
_BLOCK: Final = 4
"""Blocks or items in a larger block."""
_SHARPENING_CYCLES: Final = 100
"""Maximum number of cycles after such a start. Finer steps smooth less: from 65,536 items on, they
would follow the noise for more than the maximum of cycles, and not come closer to the truth."""


def squarem_step(start: Vector, first: Vector, second: Vector) -> Vector:
    """
    Extrapolate from a distribution and its first and second image, by scheme S3 [VR08].

    The caller must check the result: extrapolation preserves no property of the map, such as a
    monotone likelihood.

    Shares, of shape (domain_size,) like those given, are at least _FLOOR times the second image,
    then scaled to sum 1. EM's map multiplies, so it could never raise a share from 0.
    """
    step, bend = first - start, second - 2 * first + start
    length = min(-1.0, -float(np.sqrt((step @ step) / max(float(bend @ bend), _TINY))))
    leap: Vector = np.maximum(start - 2 * length * step + length**2 * bend, _FLOOR * second)
    leap /= leap.sum()
    return leap


MIN_GAIN: Final = 0.5
"""Stop when a cycle raises the log-likelihood by less than this. Fitting one parameter that is pure
noise raises it by 1/2 on average [Wil38], so a smaller gain is no evidence of signal; going on to
the maximum would fit noise."""


def maximize_likelihood(
    cells: Counts, channel: Channel, domain_size: int, *, min_gain: float = MIN_GAIN
) -> Vector:
    """
    Estimate the distribution of items from counts by cell. Run by the analyzer.

    A cycle is two EM steps and an extrapolation along them, accepted only if its likelihood is at
    least that after the first step: so a cycle gains little only if plain steps gain little too.

    `cells` counts reports by cell, shape (cells,). Returns shares of shape (domain_size,), at least
    0 with sum 1, reached from a uniform start by steps that never lower the likelihood, until a
    cycle gains less than min_gain. Cost: two transforms of the mechanism per step, about 15 to 150
    steps.
    """
    shares = np.full(domain_size, 1 / domain_size)
    if cells.sum() == 0:
        return shares
    reached = -np.inf
    for _ in range(_MAX_CYCLES):
        first, value = em_step(cells, channel, shares)
        if value - reached < min_gain:
            break
        reached = value
        second, stepped = em_step(cells, channel, first)
        leap, leapt = em_step(cells, channel, squarem_step(shares, first, second))
        shares = leap if leapt >= stepped else second
    return shares


def em_step(cells: Counts, channel: Channel, shares: Vector) -> tuple[Vector, float]:
    """
    Return the image of shares under EM's map, and the log-likelihood of the cells at `shares`.

    The map is θ_v ← θ_v · Σ_c A[c, v]·(n_c / n) / (Aθ)_c. Without noise and dummies, a share of 0
    can make reports impossible: then the likelihood is 0, and `shares` and -inf are returned.
    """
    distribution = np.maximum(channel.forward(shares), _TINY)
    if np.any(cells[distribution <= _TINY]):
        return shares, -np.inf
    moved = np.maximum(shares * channel.adjoint(cells / distribution), 0)
    return moved / max(float(moved.sum()), _TINY), float(cells @ np.log(distribution))


MIN_CHANGE: Final = 1e-4
"""Stop when the remaining steps would change the reports' distribution by less χ² than this. The
noise of the reports moves it by 1 on average in any one direction [Pea00]: the change left is a
hundredth of a standard deviation."""


def smoothed_likelihood(
    cells: Counts, channel: Channel, domain_size: int, *, min_change: float = MIN_CHANGE
) -> Vector:
    """
    Estimate a smooth distribution of ordered items from counts by cell. Run by the analyzer.

    This is EMS [SJWN90], as proposed for the square wave [LWLWLS20]: a step is an EM step, then
    `smooth`. It maximizes no likelihood, so the lengths of steps decide when to accept and stop. A
    cycle is two steps and an extrapolation along them [VR08], accepted only if the next step is no
    longer than the second: so it ends no further from a fixed point than plain steps.

    Steps that shrink by a rate r are a geometric series: after the second, s₂ = r·s₁, the rest is
    s₂·r/(1-r), at most |s₁|/|s₂-s₁| = 1/(1-r) times s₂. Iteration stops when that bound moves the
    reports' distribution p by less than min_change in n·Σ(Δp)²/p.

    Of many items, the start is the solution for blocks of items, evenly spread within each: blocks
    take far fewer steps, because smoothing moves them further. At most _SHARPENING_CYCLES then
    sharpen it.

    The last step smooths too, so no item's share exceeds 1/2, or 3/4 at an end, even if all people
    have it.

    `cells` counts reports by cell, shape (cells,). Returns shares of shape (domain_size,), at least
    0 with sum 1. Cost: two transforms of the mechanism per step, about 50 to 2,500 steps. Without
    extrapolation it would take many times as many.
    """
    shares = np.full(domain_size, 1 / domain_size)
    n_reports = int(cells.sum())
    if n_reports == 0:
        return shares
    sizes = [domain_size]
    while sizes[0] > _MOST_AT_ONCE:
        sizes.insert(0, -(-sizes[0] // _BLOCK))
    for size in sizes:
        blocks = _Blocks(domain_size, size)

        def step(parts: Vector, blocks: _Blocks = blocks) -> Vector:
            moved, _ = em_step(cells, channel, blocks.spread(parts))
            return smooth(blocks.sum(moved))

        def close(change: Vector, parts: Vector, blocks: _Blocks = blocks) -> bool:
            remaining = channel.forward(blocks.spread(change))
            reports = np.maximum(channel.forward(blocks.spread(parts)), _TINY)
            return n_reports * float((remaining / reports) @ remaining) < min_change

        most = _MAX_CYCLES if size == sizes[0] else _SHARPENING_CYCLES
        shares = blocks.spread(_fixed_point(blocks.sum(shares), step, close, most))
    return shares


class _Blocks:
    """Consecutive items in blocks whose numbers of items differ by one at most."""

    def __init__(self, items: int, blocks: int) -> None:
        self._block = np.arange(items) * blocks // items
        self._sizes = np.bincount(self._block)

    def sum(self, shares: Vector) -> Vector:
        """Sum the items' shares over each block."""
        return np.bincount(self._block, weights=shares).astype(np.float64)

    def spread(self, parts: Vector) -> Vector:
        """Spread each block's share evenly over its items."""
        return (parts / self._sizes)[self._block]


def _fixed_point(
    start: Vector,
    step: Callable[[Vector], Vector],
    close: Callable[[Vector, Vector], bool],
    most: int,
) -> Vector:
    """Return a point whose image is `close` to it, or the one after `most` cycles."""
    shares = start
    for _ in range(most):
        first = step(shares)
        second = step(first)
        last = second - first
        bend = last - (first - shares)
        # 1 / (1 - r), unless steps grow.
        stretch = float(np.linalg.norm(first - shares)) / max(float(np.linalg.norm(bend)), _TINY)
        if close(max(1.0, stretch) * last, second):
            return second
        leap = squarem_step(shares, first, second)
        image = step(leap)
        shares = image if np.linalg.norm(image - leap) <= np.linalg.norm(last) else second
    return shares


def smooth(shares: Vector) -> Vector:
    """
    Average shares, (n,), with their neighbours by (1, 2, 1) / 4, each end with itself reflected.

    Reflecting the ends keeps the sum, and a uniform distribution stays uniform.
    """
    beyond = np.concatenate([shares[:1], shares, shares[-1:]])
    return np.asarray((beyond[:-2] + 2 * beyond[1:-1] + beyond[2:]) / 4)
