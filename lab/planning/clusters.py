"""Designs of the protocol `signed`: clusters from the shipped laws that meet the target. Pure."""

import dataclasses
import math
from typing import Final

from shuffledp.common.errors import PlanError
from shuffledp.common.mechanisms.reduction import MatchCountReduction
from shuffledp.lab.planning.cluster_search import ClusterTarget, cluster_specs, predicted_noise
from shuffledp.lab.planning.design import Design
from shuffledp.lab.planning.frontier import share_error
from shuffledp.lab.planning.protocol_family import Found, ProtocolFamily
from shuffledp.lab.planning.requirements import USUAL_MESSAGES, Progress, Requirements

_LEAST_SIGNAL: Final = 0.5
"""Least share of true reports, beyond uniform ones; below it, other protocols err less."""


class Clusters(ProtocolFamily):
    """Clusters of positive and negative reports from the shipped laws: `signed`."""

    def designs(self, target: Requirements, progress: Progress) -> Found:
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
    size = target.domain_size
    of_item = MatchCountReduction.for_epsilon(
        answers=size, local_epsilon=_local_epsilon(target), hashed=False
    )
    signal = of_item.signal
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
    return (
        share_error(target, of_item),
        per_noise,
        ClusterTarget(
            honest_users=target.honest,
            domain_size=target.domain_size,
            epsilon=epsilon,
            delta=min(0.99, target.delta / signal),
            messages_cap=USUAL_MESSAGES if math.isinf(messages) else messages,
            influence_cap=min(target.influence_cap, target.n_min) * signal,
        ),
    )
