"""Tabulated clusters of the protocol `signed`, and a fast estimate of the δ they give. Pure."""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import Final

import numpy as np
import scipy
from numpy.typing import NDArray
from scipy import special

from shuffledp.common.accounting.cluster_noise import DEVIATIONS
from shuffledp.common.errors import AccountingError, PlanError
from shuffledp.common.mechanisms.base import Vector

FILE: Final = "cluster_laws.json"
"""The table in this package, written by tests/vectors/make_cluster_laws.py."""
_STEPS: Final = 400
"""Steps of the grid of log ratios for ε: rounding a ratio moves it by at most ε/800."""
_EDGES: Final = np.array([0.0, *DEVIATIONS[:-2]])
"""Edges of bins of the model, in standard deviations below the mean number of rooms."""
_LOG_SCALES: Final = (-1.2, -0.9, -0.6, -0.4, -0.25, -0.1, 0.05, 0.2, 0.35, 0.5, 0.7, 1.0, 1.3)
"""Logs of the factors of a law's rates at which the model is evaluated."""
_HALVINGS: Final = 9
_MODEL_FLOOR: Final = 1e-13
"""Least δ that the model's rounding leaves."""
_BELOW: Final = 0.5
"""Share of the allowed δ at which the model's table ends."""
MOST: Final = 0.95
"""Maximum probability that a trial shows a room, or that a padded one is filled."""
_MAX_CELLS: Final = 2**23
_MAX_LOG_RATIO: Final = 6.0
"""End of that grid; larger ratios count as this one."""
_NEGLIGIBLE: Final = 1e-17
"""Probabilities below this drown in the rounding of the transform."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterLaw:
    """
    Types of clusters with their expected numbers on one item.

    Only these rates decide privacy and error: a task multiplies them by a factor to meet its own
    target, and spreads them over its users and items.
    """

    epsilon: float
    delta: float
    """The target (ε, δ) that the rates were optimized for."""
    level: float
    """The error they were optimized for, divided by the central Gaussian mechanism's."""
    negative_weight: int
    sizes: tuple[int, ...]
    """Reports of each room, ascending."""
    types: tuple[tuple[int, int, float], ...]
    """Positive reports, negative reports, expected clusters of this type on one item."""

    def __post_init__(self) -> None:
        largest = max((positive + negative for positive, negative, _ in self.types), default=0)
        if list(self.sizes) != sorted(set(self.sizes)) or not 0 < largest <= self.sizes[-1]:
            raise PlanError(f"rooms of {self.sizes} reports cannot hold clusters of {largest}")
        if len(set(self.rooms.tolist())) < len(self.sizes):
            raise PlanError(f"one of the rooms of {self.sizes} reports holds no type of clusters")

    @property
    def counts(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Positive and negative reports of each type, each of shape (types,)."""
        table = np.array([each[:2] for each in self.types], dtype=np.int64)
        return table[:, 0], table[:, 1]

    @property
    def rates(self) -> Vector:
        """Expected clusters of each type on one item, shape (types,)."""
        return np.array([rate for _, _, rate in self.types])

    @property
    def rooms(self) -> NDArray[np.int64]:
        """Index of the smallest room that holds each type, shape (types,)."""
        return np.searchsorted(self.sizes, np.add(*self.counts))

    def by_room(self, figures: Vector) -> Vector:
        """Return the sum of the types' figures in each room, shape (rooms,)."""
        return np.bincount(self.rooms, figures, len(self.sizes)).astype(np.float64)

    @property
    def noise(self) -> float:
        """Variance of what the clusters add to the count of one item."""
        positive, negative = self.counts
        return float(self.rates @ (positive - self.negative_weight * negative) ** 2)


@lru_cache(maxsize=1)
def shipped_laws() -> tuple[ClusterLaw, ...]:
    """Read the cluster laws in FILE; cached."""
    text = resources.files(__package__).joinpath(FILE).read_text(encoding="utf-8")
    return tuple(
        ClusterLaw(
            **row
            | {"sizes": tuple(row["sizes"]), "types": tuple(tuple(each) for each in row["types"])}
        )
        for row in json.loads(text)["laws"]
    )


def poisson_delta(
    positive: NDArray[np.int64], negative: NDArray[np.int64], rates: Vector, epsilon: float
) -> tuple[float, Callable[[], Vector]]:
    """
    Return an estimate of δ at ε, and a function for its gradient in the rates.

    The model: Poisson numbers of clusters of each type on two items, independent of each other; the
    victim adds a positive report to one of the items. `cluster_noise` bounds the true δ from above;
    this estimate is a few per cent below the model's δ, and no bound.

    The positive and negative reports and the rate of each type have shape (types,). Raises
    AccountingError if the grid of counts is too large. Cost: two transforms of the grid, a
    millisecond to .1 s; the same again for the gradient.
    """
    shape = (_grid_size(positive, rates), _grid_size(negative, rates))
    if (cells := math.prod(shape)) > _MAX_CELLS:
        raise AccountingError(f"an item's counts take {cells:,} cells; at most {_MAX_CELLS:,}")
    jumps = np.zeros(shape)
    jumps[positive, negative] = rates
    transform = np.exp(scipy.fft.rfft2(jumps) - rates.sum())
    without = np.maximum(scipy.fft.irfft2(transform, s=shape), 0.0)
    value, slopes = _two_item_delta(without, epsilon)

    def gradient() -> Vector:
        # The derivative of the distribution in a rate is itself, shifted by the type, less itself.
        moved = scipy.fft.irfft2(scipy.fft.rfft2(slopes()) * np.conj(transform), s=shape)
        found: Vector = moved[positive, negative] - moved[0, 0]
        return found

    return value, gradient


def _grid_size(jumps: NDArray[np.int64], rates: Vector) -> int:
    spread = 7 * math.sqrt(rates @ jumps**2) + 5 * int(jumps.max()) + 15
    return int(scipy.fft.next_fast_len(math.ceil(float(rates @ jumps) + spread), real=True))


def _two_item_delta(without: Vector, epsilon: float) -> tuple[float, Callable[[], Vector]]:
    """
    Return δ for two items with counts distributed as `without`, and a function for its gradient.

    Counts are sorted into classes by the log ratio of their probabilities with and without the
    victim's report. δ sums over the pairs of classes whose log ratios differ by more than ε.
    """
    with_report = np.zeros_like(without)
    with_report[1:] = without[:-1]
    kept = np.maximum(without, with_report) > _NEGLIGIBLE
    masses = with_report[kept], without[kept]
    width = epsilon / _STEPS
    top = math.ceil(_MAX_LOG_RATIO / width)
    logs = np.log((masses[0] + _NEGLIGIBLE) / (masses[1] + _NEGLIGIBLE))
    classes = np.clip(np.rint(logs / width), -top, top).astype(np.int64) + top
    many = 2 * top + 1
    on, off = (np.bincount(classes, p, many) for p in masses)
    on_below, off_below = (np.concatenate([[0.0], np.cumsum(p)]) for p in (on, off))
    low = np.maximum(np.arange(many) - _STEPS, 0)
    growth = math.exp(epsilon)

    def slopes() -> Vector:
        on_from, off_from = (np.append(np.cumsum(p[::-1])[::-1], 0.0) for p in (on, off))
        high = np.minimum(np.arange(many) + _STEPS + 1, many)
        found, by_on = np.zeros_like(without), np.zeros_like(without)
        found[kept] = (on_from[high] - growth * on_below[low])[classes]
        by_on[kept] = (off_below[low] - growth * off_from[high])[classes]
        found[:-1] += by_on[1:]
        return found

    return float(on @ off_below[low] - growth * (off @ on_below[low])), slopes


@dataclass(frozen=True, slots=True)
class ClusterModel:
    """A law's δ for Poisson numbers of clusters, by the log of a factor of its rates."""

    log_scales: Vector
    log_deltas: Vector
    log_allowed: float
    weights: Vector
    """Influence of each room on δ; the sum is 1."""

    @classmethod
    @lru_cache(maxsize=128)
    def of(cls, law: ClusterLaw, epsilon: float, allowed: float) -> "ClusterModel | None":
        """Return the model around the scale at which δ is `allowed`; None if none is found."""
        found, weights = list[tuple[float, float]](), None
        for log_scale in _LOG_SCALES:
            scaled = law.rates * math.exp(log_scale)
            delta, gradient = poisson_delta(*law.counts, scaled, epsilon)
            if delta < _MODEL_FLOOR:
                break  # the model's rounding shows
            found.append((log_scale, math.log(delta)))
            if delta <= allowed:
                weights = law.by_room(gradient() * scaled) if weights is None else weights
                if delta < _BELOW * allowed and len(found) > 1:
                    break
        if weights is None:
            return None
        # ln δ is concave, so a line beyond the table is above it. Large scales take most time.
        log_scales, log_deltas = np.array([*found, 2 * np.array(found[-1]) - found[-2:][0]]).T
        return cls(log_scales, log_deltas, math.log(allowed), weights / weights.sum())

    def log_scales_for(self, by_room: Vector, shares: Vector, domain_size: int) -> Vector:
        """
        Return the log of the factor of the rates that meets the target, by the model.

        `by_room` are the expected clusters of each room on one item, shape (rooms,), and `shares`
        the chances that shown rooms are filled, shape (choices, rooms); the result has shape
        (choices,). The numbers of users and items decide how many rooms are labelled with an item,
        and a random number of them is missing.
        """
        labelled = by_room * (1 + domain_size * (1 - shares) / (2 * shares))
        stretch = shares.max(axis=1, keepdims=True) / shares
        below = 2 * special.ndtr(-_EDGES[:, None, None] * stretch).sum(axis=2)
        log_masses = np.log(np.maximum(-np.diff(np.minimum(below, 1.0), axis=0), 1e-300))
        low, high = (np.full(len(shares), end) for end in (_LOG_SCALES[0], _LOG_SCALES[-1]))
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            spread = stretch / np.sqrt(labelled * np.exp(middle)[:, None])
            missing = np.minimum(_EDGES[1:, None, None] * spread, MOST)
            places = middle + np.log1p(-missing) @ self.weights
            logs = np.interp(places, self.log_scales, self.log_deltas)
            enough = special.logsumexp(logs + log_masses, axis=0) <= self.log_allowed
            low, high = np.where(enough, low, middle), np.where(enough, middle, high)
        return high
