"""Designs of the protocol `signed`: clusters from the shipped laws that meet the target. Pure."""

import dataclasses
import math
from typing import Any, Final

import numpy as np

from shuffledp.common.errors import PlanError
from shuffledp.lab.planning.cluster_search import ClusterTarget, cluster_specs, predicted_noise
from shuffledp.lab.planning.design import (
    USUAL_MESSAGES,
    ItemDesign,
    blanket_probability,
    share_errors,
)
from shuffledp.lab.planning.requirements import Requirements

_LEAST_SIGNAL: Final = 0.5
"""Least share of true reports, beyond uniform ones; below it, other protocols err less."""


def signed_designs(target: Requirements, useful_mse: float = math.inf) -> list[ItemDesign]:
    """
    Return designs of `signed` that meet the target, the one with the least error first.

    Without a cap of messages, USUAL_MESSAGES is the cap: more would gain little. Under a local cap,
    users' own reports are randomized by GRR, which leaves a share s of the truth. Clusters must
    then reach δ / s at ln(1 + (e^ε - 1) / s); see common/accounting/cluster_noise.py. One liar
    never outweighs all users.

    Raises PlanError if there are several rounds, the shuffler is not trusted, no shipped law meets
    the target within the caps, or the predicted errors are not below useful_mse. Cost: up to a
    dozen evaluations of δ, .02 to 1 s each; none if no error can be useful.
    """
    alone, per_noise, clusters = _cluster_target(target)
    useful = dataclasses.replace(clusters, useful_noise=(useful_mse - alone) / per_noise)
    return [
        ItemDesign.of("signed", target, local_epsilon=_local_epsilon(target), dummies=found)
        for found in cluster_specs(useful)
    ]


def approximate_signed_mse(target: Requirements, **changes: Any) -> float:  # noqa: ANN401
    """
    Approximate the least error of `signed` under changed requirements. Cost: milliseconds.

    Errors: those of `signed_designs`.
    """
    alone, per_noise, clusters = _cluster_target(dataclasses.replace(target, **changes))
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
    blanket = blanket_probability(np.array(float(size)), _local_epsilon(target))
    alone = share_errors(target, np.array(float(size)), blanket, np.zeros(()), hashed=False)
    signal = 1 - float(blanket)
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
        float(alone),
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
