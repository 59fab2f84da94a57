"""
Calibrate tabulated clusters of the protocol `signed` to a target, by exact accounting. Pure.

Laws made for the ε around the target are candidates. Rooms may be filled more or less often: an
empty room costs reports, and makes the numbers of rooms that hide the victim more certain. A law
with one room can be padded instead: everybody shows the room. A fast model of δ ranks all choices;
`ClusterRelease` calibrates the first few.
"""

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations_with_replacement
from typing import Final

import numpy as np
from scipy import special

from shuffledp.common.accounting.cluster_noise import DEVIATIONS, ClusterRelease
from shuffledp.common.errors import AccountingError, PlanError, TaskError
from shuffledp.common.mechanisms.base import Vector
from shuffledp.common.mechanisms.randomized_response import Grr
from shuffledp.common.mechanisms.weights import ResponseWeights
from shuffledp.common.task.cluster_dummies import CHANCE_SUM, ClusterDummies
from shuffledp.lab.planning.calibration import CLAIM_ROOM, MARGIN, least_noise, log_excess
from shuffledp.lab.planning.cluster_law import ClusterLaw, poisson_delta, shipped_laws

_FILLED: Final = (0.3, 0.5, 0.65, 0.8, 0.9, 0.95)
"""Probabilities to try that a shown room holds a cluster."""
_MOST: Final = 0.95
"""Maximum probability that a trial shows a room, or that a padded one is filled."""
_MAX_WEIGHT: Final = 2**30
"""Largest weight of a type in a room."""
_EDGES: Final = np.array([0.0, *DEVIATIONS[:-2]])
"""Edges of bins of the model, in standard deviations below the mean number of rooms."""
_SLACK: Final = 1e-3
"""A calibration ends about this share of μ below the target, which costs .2 % of the error."""
_STEEPNESS: Final = 2.5
"""Usual ratio by which δ falls faster with the clusters' noise than with Gaussian noise."""
_UNLIKE: Final = 0.02
"""Difference in ln μ between the model's errors for two candidates."""
_MAX_CALIBRATED: Final = 2
_MAX_FRUGAL: Final = 8
"""Tried if better ones exceed a cap once they are calibrated."""
_SAME_ERROR: Final = 1.003
"""Designs whose errors differ by less are ranked by their bytes."""
_SAME_EPSILON: Final = 1.1
"""Laws made for an ε this close need no others."""
_NO_GAIN: Final = "its error would be larger than that of another protocol"
_LOG_SCALES: Final = (-1.2, -0.9, -0.6, -0.4, -0.25, -0.1, 0.05, 0.2, 0.35, 0.5, 0.7, 1.0, 1.3)
"""Logs of the factors of a law's rates at which the model is evaluated."""
_HALVINGS: Final = 9
_MODEL_FLOOR: Final = 1e-13
"""Least δ that the model's rounding leaves."""
_BELOW: Final = 0.5
"""Share of the allowed δ at which the model's table ends."""
_MAX_STEP: Final = 0.4
"""Largest step in log scale, and in the log of μ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterTarget:
    """What a task with clusters must meet."""

    honest_users: int
    """Users who follow the protocol, the victim among them."""
    domain_size: int
    epsilon: float
    delta: float
    messages_cap: float = math.inf
    """Maximum expected reports per user, its own and null reports included."""
    influence_cap: float = math.inf
    """Most that one dishonest submission may move an item's count, either way."""
    useful_noise: float = math.inf
    """`ClusterDummies.noise` from which on another protocol has less error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    """A law with a choice of rooms, at the scale that the model asks for."""

    law: ClusterLaw
    filled: tuple[float, ...]
    """Probability that each shown room is filled; empty if everybody shows the law's only room."""
    scale: float
    """Factor of the law's rates."""
    spec: ClusterDummies


def cluster_specs(target: ClusterTarget) -> list[ClusterDummies]:
    """
    Return one calibrated design, or two if the second may err less; the least error comes first.

    Each meets the target by `ClusterRelease`, with room for the rounding of claims, and hardly
    exceeds it. Among those within .3 % of the least error, the one with the fewest bytes is first.

    Raises PlanError if no law meets the target within the caps, or none errs less than useful_noise
    allows. Cost: a second for the model, and some three evaluations of δ, .02 to 1 s each.
    """
    if target.useful_noise <= 0:
        raise PlanError(_NO_GAIN)
    predicted = _all_predicted(target)
    fitting = [each for each in predicted if _fits(each.spec, target)]
    found: list[ClusterDummies] = []
    level = 0.0
    for candidate in _most_promising(fitting):
        # The model errs nearly alike for all candidates.
        likely, lucky = (_at(candidate, level + more, target) for more in (0.0, _UNLIKE))
        if likely is None or lucky is None or likely.noise >= target.useful_noise:
            continue
        best = min((each.noise for each in found), default=math.inf)
        if lucky.noise >= best or not _fits(lucky, target):
            continue
        calibrated = _calibrated(candidate, level, target)
        if calibrated is None:
            continue
        spec, level = calibrated
        if _fits(spec, target) and spec.noise < target.useful_noise:
            found.append(spec)
        if len(found) == _MAX_CALIBRATED:
            break
    if not found and math.isfinite(target.useful_noise) and (fitting or not predicted):
        raise PlanError(_NO_GAIN)
    if not found:
        raise _refusal([each.spec for each in predicted], target)
    return _ranked(found)


def predicted_noise(target: ClusterTarget) -> float:
    """Return the model's least noise within the caps; infinite without any. Cost: milliseconds."""
    predicted = [each.spec for each in _all_predicted(target)]
    return min((spec.noise for spec in predicted if _fits(spec, target)), default=math.inf)


def _all_predicted(target: ClusterTarget) -> list[_Candidate]:
    """Return the choices of rooms of the laws made for the target's ε, or for those around it."""
    predicted = list[_Candidate]()
    grid = sorted({law.epsilon for law in shipped_laws()})
    below = max((each for each in grid if each <= target.epsilon * _SAME_EPSILON), default=grid[0])
    above = min((each for each in grid if each >= target.epsilon / _SAME_EPSILON), default=grid[-1])
    for law in (law for law in shipped_laws() if law.epsilon in {below, above}):
        with contextlib.suppress(AccountingError):  # too many counts, for an ε far from the law's
            predicted += _predicted(law, target)
    return predicted


def cluster_release(spec: ClusterDummies, honest_users: int, domain_size: int) -> ClusterRelease:
    """Return one round with the clusters of these users, for the accountant."""
    plain = Grr(domain_size, ResponseWeights.for_epsilon(math.inf))
    return ClusterRelease.of(spec, honest_users * spec.trials, plain.reduction)


def _predicted(law: ClusterLaw, target: ClusterTarget) -> Iterator[_Candidate]:
    """Yield a law's choices of rooms, with the scale that the model asks for."""
    model = _Model.of(law, target.epsilon / CLAIM_ROOM, MARGIN * target.delta)
    if model is None:
        return
    by_room = law.by_room(law.rates)
    padded: list[tuple[float, ...]] = [()] if len(by_room) == 1 else []
    # Large rooms are filled at least as often.
    choices = [*padded, *combinations_with_replacement(_FILLED, len(by_room))]
    needed = by_room * target.domain_size / target.honest_users
    shares = np.array([each or needed / np.ceil(needed / _MOST) for each in choices])
    scales = np.exp(model.log_scales_for(by_room, shares, target))
    noise = law.noise * target.domain_size / target.honest_users
    for filled, scale in zip(choices, scales.tolist(), strict=True):
        if noise * scale >= target.useful_noise:
            continue
        with contextlib.suppress(TaskError):  # too many trials, or lengths
            spec = _spec(law, filled, scale, target)
            yield _Candidate(law=law, filled=filled, scale=scale, spec=spec)


@dataclass(frozen=True, slots=True)
class _Model:
    """A law's δ for Poisson numbers of clusters, by the log of a factor of its rates."""

    log_scales: Vector
    log_deltas: Vector
    log_allowed: float
    weights: Vector
    """Influence of each room on δ; the sum is 1."""

    @classmethod
    @lru_cache(maxsize=128)
    def of(cls, law: ClusterLaw, epsilon: float, allowed: float) -> "_Model | None":
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

    def log_scales_for(self, by_room: Vector, shares: Vector, target: ClusterTarget) -> Vector:
        """
        Return the log of the factor of the rates that meets the target, by the model.

        `by_room` are the expected clusters of each room on one item, shape (rooms,), and `shares`
        the chances that shown rooms are filled, shape (choices, rooms); the result has shape
        (choices,). The numbers of users and items decide how many rooms are labelled with an item,
        and a random number of them is missing.
        """
        labelled = by_room * (1 + target.domain_size * (1 - shares) / (2 * shares))
        stretch = shares.max(axis=1, keepdims=True) / shares
        below = 2 * special.ndtr(-_EDGES[:, None, None] * stretch).sum(axis=2)
        log_masses = np.log(np.maximum(-np.diff(np.minimum(below, 1.0), axis=0), 1e-300))
        low, high = (np.full(len(shares), end) for end in (_LOG_SCALES[0], _LOG_SCALES[-1]))
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            spread = stretch / np.sqrt(labelled * np.exp(middle)[:, None])
            missing = np.minimum(_EDGES[1:, None, None] * spread, _MOST)
            places = middle + np.log1p(-missing) @ self.weights
            logs = np.interp(places, self.log_scales, self.log_deltas)
            enough = special.logsumexp(logs + log_masses, axis=0) <= self.log_allowed
            low, high = np.where(enough, low, middle), np.where(enough, middle, high)
        return high


def _spec(
    law: ClusterLaw, filled: tuple[float, ...], scale: float, target: ClusterTarget
) -> ClusterDummies:
    """Return a law's integers for a factor of its rates. Raises TaskError if a rule forbids it."""
    rates, rooms = law.rates, law.rooms
    by_room = law.by_room(rates)
    needed = scale * by_room * target.domain_size / target.honest_users
    shown = needed / np.array(filled) if filled else needed
    trials = max(1, math.ceil(float(shown.sum()) / _MOST))
    chances = [max(1, int(chance / trials * CHANCE_SUM)) for chance in shown]
    if filled:
        weights = [
            (chance, int(share * CHANCE_SUM)) for chance, share in zip(chances, filled, strict=True)
        ]
    else:
        weights = [(CHANCE_SUM, chances[0])]
    largest = np.array([rates[rooms == room].max() for room in rooms])
    shares = np.maximum(np.rint(rates / largest * _MAX_WEIGHT), 1).astype(int).tolist()
    return ClusterDummies(
        negative_weight=law.negative_weight,
        trials=trials,
        clusters=tuple((i, j, share) for (i, j, _), share in zip(law.types, shares, strict=True)),
        rooms=tuple((size, *pair) for size, pair in zip(law.sizes, weights, strict=True)),
    )


def _at(candidate: _Candidate, level: float, target: ClusterTarget) -> ClusterDummies | None:
    """Return a candidate's clusters with the log of μ changed by `level`, or None if impossible."""
    with contextlib.suppress(TaskError):  # too many trials or lengths
        scale = candidate.scale * math.exp(-2 * level)  # μ² is inversely proportional to it
        return _spec(candidate.law, candidate.filled, scale, target)
    return None


def _calibrated(
    candidate: _Candidate, start: float, target: ClusterTarget
) -> tuple[ClusterDummies, float] | None:
    """Return the clusters with nearly the least noise for the target, and their level; or None."""
    epsilon, allowed = target.epsilon / CLAIM_ROOM, MARGIN * target.delta

    def attempt(level: float) -> tuple[ClusterDummies | None, float]:
        spec = _at(candidate, level, target)
        with contextlib.suppress(AccountingError):  # too many counts
            if spec is not None:
                release = cluster_release(spec, target.honest_users, target.domain_size)
                found = (epsilon, release.delta(epsilon))
                return spec, log_excess(found, (epsilon, allowed)) / _STEEPNESS
        return None, -math.inf

    return least_noise(attempt, start=start, slack=_SLACK, max_step=_MAX_STEP)


def _most_promising(candidates: Sequence[_Candidate]) -> list[_Candidate]:
    """Return the best choice of rooms of each law, least error first, and then some frugal ones."""
    by_law: dict[tuple[ClusterLaw, bool], list[_Candidate]] = {}
    for each in candidates:
        by_law.setdefault((each.law, not each.filled), []).append(each)
    first = []
    for choices in by_law.values():
        best = _ranked([each.spec for each in choices])[0]
        first.append(next(each for each in choices if each.spec is best))
    first.sort(key=lambda each: each.spec.noise)
    frugal = sorted(candidates, key=lambda each: each.spec.expected_sent)
    return [*first, *frugal[:_MAX_FRUGAL]]


def _ranked(specs: Sequence[ClusterDummies]) -> list[ClusterDummies]:
    """Return designs by error; among those within .3 % of the least, by reports."""
    close = _SAME_ERROR * min(spec.noise for spec in specs)
    return sorted(
        specs,
        key=lambda spec: (0, spec.expected_sent) if spec.noise <= close else (1, spec.noise),
    )


def _fits(spec: ClusterDummies, target: ClusterTarget) -> bool:
    return all(figure(spec) <= getattr(target, cap) for cap, (_, figure) in _CAPS.items())


_CAPS: Final[Mapping[str, tuple[str, Callable[[ClusterDummies], float]]]] = {
    "messages_cap": ("expected reports per user", lambda spec: 1 + spec.expected_sent),
    "influence_cap": ("influence of one submission", lambda spec: max(spec.influence)),
}
"""By cap, what it limits, and that figure of a design."""


def _refusal(specs: Sequence[ClusterDummies], target: ClusterTarget) -> PlanError:
    goal = f"the clusters' own epsilon {target.epsilon:g} at delta {target.delta:g}"
    if not specs:
        return PlanError(f"no tabulated clusters meet {goal} with {target.honest_users:,} users")
    for cap, (name, figure) in _CAPS.items():
        least, most = min(map(figure, specs)), getattr(target, cap)
        if least > most:
            rule = f"the {name} must be at least {least:.4g}; the cap is {most:g}"
            return PlanError(f"for {goal} {rule}")
    return PlanError(f"no tabulated clusters meet {goal} within all caps together")
