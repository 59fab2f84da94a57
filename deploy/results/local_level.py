"""Filter and smooth estimates over rounds by the local-level model. Run by operators."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shuffledp.common.messages.result import Figures

STEPS: Final = np.geomspace(1e-5, 1e4, 19)
"""Tried variances of a step between rounds, in an item's typical variance of a value."""
_PRIOR: Final = np.minimum(STEPS, 1.0) ** 0.4
"""Weights of STEPS before any item is seen: of steps above the noise, few rounds tell little."""
_COUNTED: Final = (3.0, 0.25)
"""Items that the prior counts as: these, and this share of all."""
_PASSES: Final = (2, 30)
"""Times that items' weights learn from each other, after every round and after the last."""
_SURPRISING: Final = (4.5, 4.1)
"""Least surprise, in standard deviations, of a value and of the mean of two that is a shift."""
_UNKNOWN: Final = 1e-300
"""Precision of a level of which nothing is known, where 0 would divide."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Observations:
    """Estimated means of items over rounds, and what they vary by."""

    values: Figures
    """Shape (rounds, items); those of rounds without users are ignored."""
    noise: Figures
    """Variances around the true means of those who answered, same shape."""
    n_users: NDArray[np.int64]
    """Users of each round, shape (rounds,); 0 if it has no values."""
    low: float = 0.0
    high: float = 1.0
    """Ends of the range of one user's number; a share is the mean of zeros and ones."""
    parts: Sequence[float] = (0.0,)
    """Tried variances between users, in the largest that a mean in the range allows, which is that
    of a share: (high - mean)·(mean - low) [BD00]. (0,) if the same people answer every round."""

    def sampling(self, place: int, levels: Figures) -> Figures:
        """Return the largest variance of a round's values by who answered, at these levels."""
        within = np.clip(levels, self.low, self.high)
        found: Figures = (self.high - within) * (within - self.low) / max(1, self.n_users[place])
        return found if self.n_users[place] else np.zeros_like(found)

    def variance(self, place: int, levels: Figures, parts: Figures) -> Figures:
        """
        Return the variance of a round's values around levels: noise, and who answered.

        The noise has at least the variance of one user's number, so that it is never 0.
        """
        least = ((self.high - self.low) / self.n_users[place]) ** 2
        found: Figures = np.maximum(self.noise[place], least) + parts * self.sampling(place, levels)
        return found


class Smoothed(NamedTuple):
    """Smoothed levels, each of shape (rounds, items)."""

    levels: Figures
    errors: Figures
    """Standard errors of the levels."""
    sampling: Figures
    """Variance of the values by who answered, at the smoothed levels; 0 without users."""
    shifts: NDArray[np.bool_]
    """Rounds with which a new level begins, too far from the last one for a step."""


def smooth(observed: Observations) -> Smoothed:
    """
    Smooth each item's values: a Kalman filter, then the fixed-interval smoother [DK12].

    By the local-level model an item's level makes normal steps of variance q from round to round,
    and a value is the level plus noise and, if other people answer every round, their sampling
    error. All q of STEPS count, by their likelihood and by how the other items weigh them: one item
    tells little about its q, and one q for all fails where they differ. The variance of the average
    includes the spread of the q's levels. The last level is that of the filter.

    A value is a shift if it is 4.5 standard deviations from what the filter predicted, or its mean
    with the next one 4.1: it begins a new level, for which q stays as learned.

    Pure. Cost: some 40 passes over rounds x items x 19 x parts numbers; memory for four of them.
    """
    run = _Filter(observed)
    for place in range(len(observed.values)):
        run.go_to(place)
    return run.smoothed()


class _Prediction(NamedTuple):
    """The state of all filters before a round's values; these, and their variances."""

    place: int
    weights: Figures
    levels: Figures
    variances: Figures
    likelihood: Figures
    value: Figures
    own: Figures

    def surprise(self, value: Figures, own: Figures) -> Figures:
        """Return how far a value is from the mean of all models, in standard deviations."""
        mean = np.sum(self.weights * self.levels, axis=0)
        spread = self.variances + own + (self.levels - mean) ** 2
        found: Figures = np.abs(value - mean) / np.sqrt(np.sum(self.weights * spread, axis=0))
        return found


class _Filter:
    """The filters of all models, each of a variance of steps and a part, for all items at once."""

    def __init__(self, observed: Observations) -> None:
        rounds, items = observed.values.shape
        prior = np.repeat(_PRIOR / _PRIOR.sum(), len(observed.parts))[:, np.newaxis]
        prior /= len(observed.parts)
        shape = (len(prior), items)
        self._observed = observed
        self._parts = np.tile(observed.parts, len(STEPS))[:, np.newaxis]
        self._steps = np.repeat(STEPS, len(observed.parts))[:, np.newaxis] * self._typical()
        self._prior = (_COUNTED[0] + _COUNTED[1] * items) * prior
        self._weights: Figures = np.broadcast_to(prior, shape)
        self._level, self._known, self._likelihood = np.zeros((3, *shape))
        self._levels, self._precisions = np.zeros((2, rounds, *shape))
        self._shifts = np.zeros((rounds, items), dtype=bool)
        self._last: _Prediction | None = None

    def _typical(self) -> Figures:
        """Return the harmonic mean over rounds of the values' variances, (models, items)."""
        seen = np.flatnonzero(self._observed.n_users).tolist()
        means = self._observed.values[seen].sum(axis=0) / max(1, len(seen))
        known = sum((1 / self._own(place, means) for place in seen), start=np.zeros(len(means)))
        typical: Figures = len(seen) / np.maximum(known, _UNKNOWN)
        return typical

    def go_to(self, place: int) -> None:
        """Step to a round, and take its values if it has any."""
        self._known = self._known / (1 + self._steps * self._known)
        if self._observed.n_users[place]:
            self._observe(place, self._observed.values[place])
        self._levels[place], self._precisions[place] = self._level, self._known

    def _observe(self, place: int, value: Figures) -> None:
        begins, last = np.ones(len(value), dtype=bool), self._last
        if last is not None:
            now = self._predicted(place, value)
            begins = now.surprise(value, now.own) > _SURPRISING[0]
            self._shifts[place] = begins
            between = self._steps * (place - last.place)
            both = last.surprise((last.value + value) / 2, (between + last.own + now.own) / 4)
            self._begin_with(last, place, (both > _SURPRISING[1]) & ~begins)
        self._level = np.where(begins, value, self._level)
        self._known = np.where(begins, 0.0, self._known)
        self._last = self._predicted(place, value)
        self._update(value, 1 / self._last.own)

    def _own(self, place: int, levels: Figures) -> Figures:
        return self._observed.variance(place, levels, self._parts)

    def _predicted(self, place: int, value: Figures) -> _Prediction:
        own = self._own(place, np.sum(self._weights * self._level, axis=0))
        variances = 1 / np.maximum(self._known, _UNKNOWN)
        state = (self._weights, self._level, variances, self._likelihood)
        return _Prediction(place, *state, value, own)

    def _begin_with(self, last: _Prediction, place: int, items: NDArray[np.bool_]) -> None:
        """Let a new level of these items begin with the last value, and go on from it."""
        rounds, own = slice(last.place, place), self._own(last.place, last.value)
        gone = np.arange(place - last.place + 1)[:, np.newaxis, np.newaxis]
        known = 1 / (own + gone * self._steps)
        self._levels[rounds, :, items] = last.value[items]
        self._precisions[rounds][..., items] = known[:-1][..., items]
        self._level = np.where(items, last.value, self._level)
        self._known = np.where(items, known[-1], self._known)
        self._likelihood = np.where(items, last.likelihood, self._likelihood)
        self._shifts[last.place] |= items

    def _update(self, value: Figures, seen: Figures) -> None:
        """Take a round's values, of these precisions."""
        predicted, surprise = self._known, value - self._level
        self._known = predicted + seen
        gain = seen / self._known
        inverse = gain * predicted  # of the surprise's variance; 0 at a level's first value
        logs = np.log(inverse, out=np.zeros_like(inverse), where=inverse > 0)
        self._likelihood = self._likelihood + (logs - inverse * surprise**2) / 2
        self._level = self._level + gain * surprise
        self._learn(_PASSES[0])

    def _learn(self, passes: int) -> None:
        """Weigh the models of each item by their likelihood, the prior and the other items."""
        likelihood = np.exp(self._likelihood - self._likelihood.max(axis=0))
        for _ in range(passes):
            others = self._weights.sum(axis=1, keepdims=True) - self._weights
            if self._weights.shape[1] == 2:  # noqa: PLR2004  # shares of sum 1 tell the same twice
                others = np.zeros_like(others)
            weights = (self._prior + others) * likelihood
            self._weights = weights / weights.sum(axis=0)

    def smoothed(self) -> Smoothed:
        """Smooth backwards, and average over the models."""
        self._learn(_PASSES[1])
        levels, variances = self._levels, 1 / np.maximum(self._precisions, _UNKNOWN)
        for place in range(len(levels) - 2, -1, -1):
            begins = self._shifts[place + 1]
            gain = np.where(begins, 0.0, 1 / (1 + self._steps * self._precisions[place]))
            levels[place] += gain * (levels[place + 1] - levels[place])
            variances[place] = gain**2 * variances[place + 1] + np.where(
                begins, variances[place], gain * self._steps
            )
        means = np.sum(self._weights * levels, axis=1)
        spread = variances + (levels - means[:, np.newaxis]) ** 2
        errors = np.sqrt(np.sum(self._weights * spread, axis=1))
        part = np.sum(self._weights * self._parts, axis=0)
        sampling = [self._observed.sampling(*each) for each in enumerate(means)]
        return Smoothed(means, errors, part * np.array(sampling), self._shifts)
