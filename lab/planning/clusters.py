"""
The protocol `signed`: tabulated clusters, calibrated to a target by exact accounting. Pure.

Laws made for the ε around the target are candidates. Rooms may be filled more or less often: an
empty room costs reports, and makes the numbers of rooms that hide the victim more certain. A law
with one room can be padded instead: everybody shows the room. A fast model of δ ranks all choices;
`ClusterRelease` calibrates the first few.
"""

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import Final

import numpy as np

from shuffledp.common.accounting.cluster_noise import ClusterRelease
from shuffledp.common.errors import AccountingError, PlanError, TaskError
from shuffledp.common.mechanisms.randomized_response import Grr
from shuffledp.common.mechanisms.weights import ResponseWeights
from shuffledp.common.task.cluster_dummies import CHANCE_SUM, ClusterDummies
from shuffledp.lab.planning.calibration import CLAIM_ROOM, MARGIN, least_noise, log_excess
from shuffledp.lab.planning.cluster_law import MOST, ClusterLaw, ClusterModel, shipped_laws
from shuffledp.lab.planning.design import Design
from shuffledp.lab.planning.frontier import share_error
from shuffledp.lab.planning.protocol_family import FamilyDesigns, ProtocolFamily
from shuffledp.lab.planning.requirements import USUAL_MESSAGES, Progress, Requirements

_FILLED: Final = (0.3, 0.5, 0.65, 0.8, 0.9, 0.95)
"""Probabilities to try that a shown room holds a cluster."""
_MAX_WEIGHT: Final = 2**30
"""Largest weight of a type in a room."""
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
_MAX_STEP: Final = 0.4
"""Largest step in log scale, and in the log of μ."""
_LEAST_SIGNAL: Final = 0.5
"""Least share of true reports, beyond uniform ones; below it, other protocols err less."""


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


class Clusters(ProtocolFamily):
    """Clusters of positive and negative reports from the shipped laws: `signed`."""

    def designs(self, target: Requirements, progress: Progress) -> FamilyDesigns:
        """Return the design with the least error, if any may err less than is useful."""
        target = target.of_items
        found = super().designs(target, progress)
        caps = ("messages_cap", "bytes_cap", "influence_cap")
        finite = [name for name in caps if math.isfinite(getattr(target, name))]
        noisy = {} if math.isinf(_local_epsilon(target)) else {"local_cap": None}
        limits = {"central_epsilon": None, **dict.fromkeys(finite, math.inf), **noisy}
        return dataclasses.replace(found, approximate=_approximate_mse, limits=limits)

    def design(self, protocol: str, target: Requirements) -> Design:
        """
        Return the design with the least error that meets the target.

        Without a cap of messages, USUAL_MESSAGES is the cap: more would gain little. Under a local
        cap, users' own reports are randomized by GRR, which leaves a share s of the truth. Clusters
        must then reach δ / s at ln(1 + (e^ε - 1) / s); see common/accounting/cluster_noise.py. One
        liar never outweighs all users.

        Raises PlanError if there are several rounds, the shuffler is not trusted, no shipped law
        meets the target within the caps, or the predicted errors are not useful. Cost: up to a
        dozen evaluations of δ, .02 to 1 s each; none if no error can be useful.
        """
        alone, per_noise, clusters = _cluster_target(target)
        useful = (target.useful_mse - alone) / per_noise
        found = cluster_specs(dataclasses.replace(clusters, useful_noise=useful))[0]
        return Design.of(protocol, target, local_epsilon=_local_epsilon(target), dummies=found)


def _approximate_mse(target: Requirements) -> float:
    alone, per_noise, clusters = _cluster_target(target)
    return alone + per_noise * predicted_noise(clusters)


def _local_epsilon(target: Requirements) -> float:
    return math.inf if target.may_be_plain else target.noise_cap


def _cluster_target(target: Requirements) -> tuple[float, float, ClusterTarget]:
    """
    Return the error without clusters, the error that a noise of 1 adds, and the clusters' target.

    What clusters add to the error is proportional to their noise: see
    `ClusterDummies.item_variance`. Raises PlanError if the target has no clusters.
    """
    if target.rounds > 1:
        raise PlanError(
            f"signed is planned for one round, and there are {target.rounds}: over several, the "
            "noise of other protocols adds up to less"
        )
    if target.trust == "none":
        raise PlanError("signed relies on a shuffler that permutes; trust is none")
    size, (alone, signal) = target.domain_size, share_error(target, _local_epsilon(target))
    if signal < _LEAST_SIGNAL:
        raise PlanError(
            f"a local cap of {target.noise_cap:g} leaves {signal:.2g} of the reports true; signed "
            f"needs at least {_LEAST_SIGNAL:g}, or no local cap"
        )
    epsilon = target.central_epsilon
    if signal < 1:
        epsilon = math.log1p(math.expm1(epsilon) / signal)
    messages = target.most_messages(hashed=False)
    per_noise = (size - 1) / (size**2 * target.n_users * signal**2)
    clusters = ClusterTarget(
        honest_users=target.honest,
        domain_size=size,
        epsilon=epsilon,
        delta=min(0.99, target.delta / signal),
        messages_cap=USUAL_MESSAGES if math.isinf(messages) else messages,
        influence_cap=min(target.influence_cap, target.n_min) * signal,
    )
    return alone, per_noise, clusters


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
    model = ClusterModel.of(law, target.epsilon / CLAIM_ROOM, MARGIN * target.delta)
    if model is None:
        return
    by_room = law.by_room(law.rates)
    padded: list[tuple[float, ...]] = [()] if len(by_room) == 1 else []
    # Large rooms are filled at least as often.
    choices = [*padded, *combinations_with_replacement(_FILLED, len(by_room))]
    needed = by_room * target.domain_size / target.honest_users
    shares = np.array([each or needed / np.ceil(needed / MOST) for each in choices])
    scales = np.exp(model.log_scales_for(by_room, shares, target.domain_size))
    noise = law.noise * target.domain_size / target.honest_users
    for filled, scale in zip(choices, scales.tolist(), strict=True):
        if noise * scale >= target.useful_noise:
            continue
        with contextlib.suppress(TaskError):  # too many trials, or lengths
            spec = _spec(law, filled, scale, target)
            yield _Candidate(law=law, filled=filled, scale=scale, spec=spec)


def _spec(
    law: ClusterLaw, filled: tuple[float, ...], scale: float, target: ClusterTarget
) -> ClusterDummies:
    """Return a law's integers for a factor of its rates. Raises TaskError if a rule forbids it."""
    rates, rooms = law.rates, law.rooms
    by_room = law.by_room(rates)
    needed = scale * by_room * target.domain_size / target.honest_users
    shown = needed / np.array(filled) if filled else needed
    trials = max(1, math.ceil(float(shown.sum()) / MOST))
    chances = [max(1, int(chance / trials * CHANCE_SUM)) for chance in shown]
    weights = [(CHANCE_SUM, chances[0])]
    if filled:
        pairs = zip(chances, filled, strict=True)
        weights = [(chance, int(share * CHANCE_SUM)) for chance, share in pairs]
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
        specs, key=lambda spec: (0, spec.expected_sent) if spec.noise <= close else (1, spec.noise)
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
