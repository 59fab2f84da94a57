"""
Calibrate tabulated clusters of the protocol `signed` to a target, by exact accounting. Pure.

Laws made for the ε around the target are candidates. Rooms may be filled more or less often: an
empty room costs reports, and makes the numbers of rooms that hide the victim more certain. A law
with one room can be padded instead: everybody shows the room. A fast model of δ ranks all choices;
`ClusterRelease` calibrates the first few.
"""

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import Final

import numpy as np
from scipy import special

from common.accounting.cluster_noise import DEVIATIONS, ClusterRelease
from common.errors import AccountingError, PlanError, TaskError
from common.mechanisms.base import Vector
from common.mechanisms.reduction import MatchCountReduction
from common.mechanisms.weights import ResponseWeights
from common.task.cluster_spec import CHANCE_SUM, ClusterSpec
from deploy.planning.cluster_law import ClusterLaw, poisson_delta, shipped_laws
from deploy.planning.shuffler_noise import CLAIM_ROOM, MARGIN

_FILLED: Final = (0.3, 0.5, 0.65, 0.8, 0.9, 0.95)
"""Probabilities to try that a shown room holds a cluster."""
_MOST: Final = 0.95
"""Maximum probability that a trial shows a room, or that a padded one is filled."""
_MAX_WEIGHT: Final = 2**30
"""Largest weight of a type in a room."""
_EDGES: Final = np.array([0.0, *DEVIATIONS[:-2]])
"""Edges of bins of the model, in standard deviations below the mean number of rooms."""
_AIM: Final = 0.985
"""Share of the allowed δ that a calibration aims at; anything from _ENOUGH to 1 ends it."""
_ENOUGH: Final = 0.96
_MAX_EVALUATIONS: Final = 8
_MAX_CALIBRATED: Final = 2
_MAX_FRUGAL: Final = 8
"""Tried if better ones exceed a cap once they are calibrated."""
_WORSE: Final = 1.3
"""Predicted errors above this multiple of the best design's are not calibrated."""
_SAME_ERROR: Final = 1.003
"""Designs whose errors differ by less are ranked by their bytes."""
_SAME_EPSILON: Final = 1.1
"""Laws made for an ε this close need no others."""
_MODEL_EVALUATIONS: Final = 12
_MODEL_FLOOR: Final = 1e-13
"""Least δ that the model's rounding leaves."""
_USUAL_LOSS: Final = -1.0
"""Usual log of the model's δ as a share of the bound's."""
_CLOSE: Final = 0.04
"""Step in log scale at which the model's slope is good enough."""
_MAX_STEP: Final = 0.4
"""Largest step in log scale."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    """A law with a choice of rooms, at the scale that the model asks for."""

    law: ClusterLaw
    filled: tuple[float, ...]
    """Probability that each shown room is filled; empty if everybody shows the law's only room."""
    scale: float
    """Factor of the law's rates."""
    slope: float
    """Derivative of log δ in log scale; negative."""
    spec: ClusterSpec


def cluster_specs(
    target: ClusterTarget, laws: Sequence[ClusterLaw] | None = None
) -> list[ClusterSpec]:
    """
    Return up to two calibrated designs, those with the least error first.

    Each meets the target by `ClusterRelease`, with room for the rounding of claims, and hardly
    exceeds it. Among those within .3 % of the least error, the one with the fewest bytes is first.

    Raises PlanError if no law meets the target within the caps. Cost: a dozen evaluations of δ, .02
    to 1 s each.
    """
    near = _near(shipped_laws() if laws is None else laws, target.epsilon)
    predicted = list[_Candidate]()
    for law in near:
        with contextlib.suppress(AccountingError):  # too many counts, for an ε far from the law's
            predicted += _predicted(law, target)
    found: list[ClusterSpec] = []
    for candidate in _most_promising([each for each in predicted if _fits(each.spec, target)]):
        if candidate.spec.noise > _WORSE * min((spec.noise for spec in found), default=math.inf):
            continue
        spec = _calibrated(candidate, target)
        if spec is not None and _fits(spec, target):
            found.append(spec)
        if len(found) == _MAX_CALIBRATED:
            break
    if not found:
        raise _refusal([each.spec for each in predicted], target)
    return _ranked(found)


def cluster_release(spec: ClusterSpec, honest_users: int, domain_size: int) -> ClusterRelease:
    """Return one round with the clusters of these users, for the accountant."""
    plain = MatchCountReduction.for_weights(
        answers=domain_size, weights=ResponseWeights.for_epsilon(math.inf), hashed=False
    )
    return ClusterRelease.of(spec, honest_users * spec.trials, plain)


def expected_reports(spec: ClusterSpec) -> float:
    """Return the mean number of reports in a submission, its own and null reports included."""
    return 1 + spec.expected_length


def _near(laws: Sequence[ClusterLaw], epsilon: float) -> list[ClusterLaw]:
    """Return the laws made for this ε, or for those around it."""
    grid = sorted({law.epsilon for law in laws})
    below = max((each for each in grid if each <= epsilon * _SAME_EPSILON), default=grid[0])
    above = min((each for each in grid if each >= epsilon / _SAME_EPSILON), default=grid[-1])
    return [law for law in laws if law.epsilon in {below, above}]


def _predicted(law: ClusterLaw, target: ClusterTarget) -> Iterator[_Candidate]:
    """Yield a law's choices of rooms, with the scale that the model asks for."""
    log_allowed = math.log(MARGIN * target.delta)
    delta_of, rates = poisson_delta(*law.counts), law.rates
    log_scale = 0.0
    for _ in range(_MODEL_EVALUATIONS):
        scaled = rates * math.exp(log_scale)
        delta, gradient = delta_of(scaled, target.epsilon / CLAIM_ROOM)
        if delta < _MODEL_FLOOR:
            log_scale -= _MAX_STEP  # the model's rounding shows
            continue
        slopes = law.by_room(gradient * scaled / delta)
        slope = float(slopes.sum())
        step = (log_allowed + _USUAL_LOSS - math.log(delta)) / slope
        if abs(step) < _CLOSE:
            break
        log_scale += min(max(step, -_MAX_STEP), _MAX_STEP)
    else:
        return
    by_room = law.by_room(scaled)
    padded: list[tuple[float, ...]] = [()] if len(by_room) == 1 else []
    # Large rooms are filled at least as often.
    for filled in [*padded, *combinations_with_replacement(_FILLED, len(by_room))]:
        extra = 0.0
        for _ in range(2):
            lost = _log_loss(slopes, by_room * math.exp(extra), filled, target)
            extra = (log_allowed - lost - math.log(delta)) / slope
        scale = math.exp(log_scale + extra)
        with contextlib.suppress(TaskError):  # too many trials, or lengths
            spec = _spec(law, filled, scale, target)
            yield _Candidate(law=law, filled=filled, scale=scale, slope=slope, spec=spec)


def _log_loss(
    slopes: Vector, rates: Vector, filled: tuple[float, ...], target: ClusterTarget
) -> float:
    """
    Return the log of the factor by which random numbers of rooms raise δ, as a model.

    `slopes` are the derivatives of log δ in the log rate of each room, and `rates` the expected
    clusters of each room on one item, shape (rooms,). The numbers of users and items decide how
    many rooms are labelled with an item.
    """
    shares = np.array(filled)
    if not filled:
        needed = rates * target.domain_size / target.honest_users
        shares = needed / np.ceil(needed / _MOST)
    labelled = rates * (1 + target.domain_size * (1 - shares) / (2 * shares))
    stretch = shares.max() / shares
    missing = np.outer(_EDGES[1:], stretch / np.sqrt(labelled))
    below = np.minimum(2 * special.ndtr(-np.outer(_EDGES, stretch)).sum(axis=1), 1.0)
    logs = np.log1p(-np.minimum(missing, _MOST)) @ slopes
    return float(special.logsumexp(logs, b=np.maximum(below[:-1] - below[1:], 0.0)))


def _spec(
    law: ClusterLaw, filled: tuple[float, ...], scale: float, target: ClusterTarget
) -> ClusterSpec:
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
    return ClusterSpec(
        negative_weight=law.negative_weight,
        trials=trials,
        clusters=tuple((i, j, share) for (i, j, _), share in zip(law.types, shares, strict=True)),
        rooms=tuple((size, *pair) for size, pair in zip(law.sizes, weights, strict=True)),
    )


def _calibrated(candidate: _Candidate, target: ClusterTarget) -> ClusterSpec | None:
    """Return the clusters at nearly the least scale that meets the target, or None."""
    goal = math.log(_AIM * MARGIN * target.delta)
    log_scale, slope = math.log(candidate.scale), candidate.slope
    passed: ClusterSpec | None = None
    before: tuple[float, float] | None = None
    with contextlib.suppress(AccountingError, TaskError):  # too many counts, trials or lengths
        for _ in range(_MAX_EVALUATIONS):
            spec = _spec(candidate.law, candidate.filled, math.exp(log_scale), target)
            release = cluster_release(spec, target.honest_users, target.domain_size)
            log_delta = math.log(max(release.delta(target.epsilon / CLAIM_ROOM), 1e-300))
            excess = log_delta - goal
            if excess <= -math.log(_AIM):
                if passed is None or spec.noise < passed.noise:
                    passed = spec
                if excess >= math.log(_ENOUGH):
                    break
            if before is not None and abs(log_scale - before[0]) > 1e-9:  # noqa: PLR2004
                found = (excess - before[1]) / (log_scale - before[0])
                # A secant that rounding or the bins bend too much is no guide.
                slope = min(max(found, 3 * candidate.slope), candidate.slope / 3)
            before = (log_scale, excess)
            log_scale += min(max(-excess / slope, -_MAX_STEP), _MAX_STEP)
    return passed


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
    frugal = sorted(candidates, key=lambda each: expected_reports(each.spec))
    return [*first, *frugal[:_MAX_FRUGAL]]


def _ranked(specs: Sequence[ClusterSpec]) -> list[ClusterSpec]:
    """Return designs by error; among those within .3 % of the least, by reports."""
    close = _SAME_ERROR * min(spec.noise for spec in specs)
    return sorted(
        specs,
        key=lambda spec: (0, spec.expected_length) if spec.noise <= close else (1, spec.noise),
    )


def _fits(spec: ClusterSpec, target: ClusterTarget) -> bool:
    return all(figure(spec) <= cap for _, cap, figure in _caps(target))


def _caps(
    target: ClusterTarget,
) -> tuple[tuple[str, float, Callable[[ClusterSpec], float]], ...]:
    """Return what each cap limits, the cap, and the figure of a design."""
    return (
        ("expected reports per user", target.messages_cap, expected_reports),
        ("influence of one submission", target.influence_cap, lambda spec: max(spec.influence)),
    )


def _refusal(specs: Sequence[ClusterSpec], target: ClusterTarget) -> PlanError:
    goal = f"epsilon {target.epsilon:g} at delta {target.delta:g}"
    if not specs:
        return PlanError(f"no tabulated clusters meet {goal} with {target.honest_users:,} users")
    for name, cap, figure in _caps(target):
        least = min(map(figure, specs))
        if least > cap:
            return PlanError(
                f"for {goal} the {name} must be at least {least:.4g}; the cap is {cap:g}"
            )
    return PlanError(f"no tabulated clusters meet {goal} within all caps together")
