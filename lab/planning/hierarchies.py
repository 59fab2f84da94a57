"""The protocol `hierarchy`, and the quantiles that it would give beside a mean. Pure."""

import dataclasses
import math
from typing import Final, NamedTuple

import numpy as np

from shuffledp.common.accounting.composition import composed_epsilon
from shuffledp.common.accounting.privacy_parameters import MAX_DISTINCT_VIEWS, PrivacyParameters
from shuffledp.common.errors import PlanError, TaskError
from shuffledp.common.mechanisms.base import Mixture
from shuffledp.common.mechanisms.hierarchy import Hierarchy
from shuffledp.common.mechanisms.views import View
from shuffledp.common.task.specs import hierarchy_sizes
from shuffledp.common.task.task import envelope_bytes
from shuffledp.lab.planning.calibration import CLAIM_ROOM, MAX_STEP, gaussian_mu, log_excess
from shuffledp.lab.planning.design import Design, excess_of, least_noisy, within_caps
from shuffledp.lab.planning.protocol_family import ProtocolFamily
from shuffledp.lab.planning.requirements import Requirements, item_report

_POWERS: Final = (4, 8, 16, 32, 64, 128)
"""Fan-outs to try, besides those of regular trees of 1 to 16 levels."""
_SLACK: Final = 4e-3
"""The search for the dummies ends when μ is within this share below its target."""
_BUCKETS: Final = 64
"""Buckets of the hierarchy that a plan of a mean names."""
_ROOM: Final = 1.02
"""Factor on the dummies of a Gaussian approximation, for a first try that mostly holds."""


class Hierarchies(ProtocolFamily):
    """Buckets at several resolutions, hidden by users' dummies; the fan-out is chosen."""

    def design(self, protocol: str, target: Requirements) -> Design:
        """
        Return the hierarchy with the least error of a prefix that meets the target and the caps.

        The fan-out is chosen by approximation: levels of δ-Gaussian noise, all nodes with the same.
        The dummies of the best ones are then found with the exact accountant. Cost: some three
        evaluations of ε, a second for each level.
        """
        tried = _shapes(target)
        refusal = PlanError(
            f"{protocol} needs {min(shape.messages for shape in tried):.3g} messages per user; the "
            f"caps allow {target.most_messages(hashed=False):.3g}"
        )
        for shape in tried:
            try:
                if shape.error < math.inf:
                    return within_caps(_calibrated(protocol, shape, target))
            except PlanError as found:
                refusal = found
        raise refusal


def quantiles_beside(target: Requirements) -> str:
    """
    Return a sentence about hierarchies, for a plan of a mean; empty for others, or without one.

    The mean of buckets is that of their middles, which may be off by half a bucket.
    """
    if target.kind != "mean" or not target.may_be_plain or target.shufflers > 1:
        return ""
    buckets = dataclasses.replace(target, kind="ordered", domain_size=_BUCKETS, draft_fields={})
    try:
        shape = _shapes(buckets)[0]
    except TaskError:  # more dummies than a task can have
        return ""
    if shape.error == math.inf:
        return ""
    middles, n = (2 * np.arange(_BUCKETS) + 1) / _BUCKETS - 1, target.n_users
    mixture = Mixture(n_real=n, n_dummies=round(n * shape.dummies))
    noise = float(middles @ shape.hierarchy.covariances_with(middles, middles, mixture))
    ratio = noise * (gaussian_mu(target.central_epsilon, target.delta) * n) ** 2 / 4
    return (
        f"quantiles beside the mean need ordered data: with {_BUCKETS} buckets, hierarchy has "
        f"about {shape.messages:.3g} messages per user, its mean {ratio:.3g} times the error of "
        "central Gaussian noise and a bias of at most half a bucket"
    )


class _Shape(NamedTuple):
    """A hierarchy by approximation; sorted by its error."""

    error: float
    """Error of a prefix; infinite above a cap."""
    fan_out: int
    dummies: float
    """Dummies per user."""
    messages: float
    hierarchy: Hierarchy


def _shapes(target: Requirements) -> list[_Shape]:
    """Return the hierarchy of each fan-out, the best one first."""
    size = target.domain_size // target.groups
    regular = {math.ceil(size ** (1 / levels)) for levels in range(1, MAX_DISTINCT_VIEWS + 1)}
    fan_outs = [each for each in {*regular, *_POWERS} if 2 <= each <= size]  # noqa: PLR2004  # children
    return sorted(_shape(fan_out, target) for fan_out in fan_outs)


def _shape(fan_out: int, target: Requirements) -> _Shape:
    """
    Approximate the hierarchy of a fan-out.

    A user changes two counts of each level, of variance d each, in each of T rounds: the loss is
    that of Gaussian noise with μ² = 2·levels·T / d [DRS22].
    """
    sizes = hierarchy_sizes(target.domain_size // target.groups, fan_out, target.groups)
    mu = gaussian_mu(target.central_epsilon, target.delta)
    density = 2 * len(sizes) * target.rounds / mu**2
    dummies = _ROOM * density * sum(sizes) / target.honest
    views = View.averaging(dummies, sizes)
    hierarchy = Hierarchy(views=views, fan_out=fan_out, groups=target.groups)
    messages = len(sizes) + dummies
    size = envelope_bytes(item_report(hashed=False), math.floor(messages))
    fits = messages <= target.messages_cap and size <= target.bytes_cap
    error = target.prefix_error(hierarchy.prefix_variances(target.n_users)) if fits else math.inf
    return _Shape(error, fan_out, dummies, messages, hierarchy)


def _log_excess_of_levels(shape: _Shape, target: Requirements) -> float:
    """Estimate ln(μ / target μ) as if every level had the loss of the lowest one."""
    views = shape.hierarchy.views
    buckets = views[-1]
    lowest = PrivacyParameters(
        reduction=buckets.reduction,
        local_epsilon=math.inf,
        dummies=buckets.dummies,
        delta=target.delta,
        assumed_honest_fraction=target.honest_fraction,
    )
    release = lowest.release_of(target.n_min, target.honest, target.honest)
    epsilon = composed_epsilon([release] * len(views) * target.rounds, target.delta)
    goal = target.central_epsilon / CLAIM_ROOM
    excess = log_excess((epsilon, target.delta), (goal, target.delta))
    return min(max(excess, -MAX_STEP), MAX_STEP)


def _calibrated(protocol: str, shape: _Shape, target: Requirements) -> Design:
    """
    Return the design with nearly the fewest dummies per user that meet the target exactly.

    μ² of an approximately Gaussian loss is inversely proportional to the number of dummies.
    """

    def design_at(level: float) -> Design:
        many = shape.dummies * math.exp(-2 * level)
        return Design.of(protocol, target, buckets=shape.fan_out, dummies_per_user=many)

    start = -_log_excess_of_levels(shape, target) - _SLACK / 2
    return least_noisy(target, protocol, design_at, excess_of, start=start, slack=_SLACK)
