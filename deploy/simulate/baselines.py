"""Exact errors of a collector who is trusted with every value. Pure."""

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Final

import numpy as np

from common.accounting.epsilon_search import gaussian_mu
from common.mechanisms.base import Counts, Vector

CENTRAL_NAMES: Final = {
    "laplace_mse": "central Laplace",
    "gaussian_mse": "central Gaussian",
    "regret": "central choice",
    "exponential_regret": "central exponential",
}
"""Central mechanisms by their error."""
CentralErrors = Mapping[str, float]
"""
Errors at one target, by the keys of CENTRAL_NAMES; neighbours replace one person's value.

`laplace_mse`, `gaussian_mse`: mean squared error of a share or a mean [DMNS06], [BW18]. Of items
alone `regret`, `exponential_regret`: expected shortfall, in shares, of the item chosen as the most
frequent by permute-and-flip [MS20] or the exponential mechanism [MT07].
"""
_MAX_EXPONENT: Final = 1000.0
"""Candidates whose chance is below e^-1000 count as if it were that."""
_NODES: Final = 24
"""Of Gauss-Legendre, for each doubling of the range of an integral."""
_ROWS_AT_ONCE: Final = 1 << 15


def central_errors_of_items(people: Counts, epsilon: float, delta: float) -> CentralErrors:
    """Compute the errors for people by item; one person moves two counts by one each."""
    n_users = int(people.sum())
    gaps = np.asarray((people.max() - people), dtype=np.float64)
    return {
        "laplace_mse": 1 / (2 * (n_users * math.sinh(epsilon / 4)) ** 2),
        "gaussian_mse": 2 / (gaussian_mu(epsilon, delta) * n_users) ** 2,
        "regret": float(permute_and_flip(gaps, epsilon) @ gaps) / n_users,
        "exponential_regret": float(exponential_mechanism(gaps, epsilon) @ gaps) / n_users,
    }


def central_errors_of_means(
    n_users: int, size: int, half_range: float, epsilon: float, delta: float
) -> CentralErrors:
    """Compute the errors of `size` means; one person moves each sum by the whole range."""
    scale = 2 * half_range / n_users
    return {
        "laplace_mse": 2 * (scale * size / epsilon) ** 2,
        "gaussian_mse": size * (scale / gaussian_mu(epsilon, delta)) ** 2,
    }


def exponential_mechanism(gaps: Vector, epsilon: float) -> Vector:
    """Return how likely each candidate is chosen with weight e^(-ε·gap/2) [MT07]."""
    chances = np.exp(-np.minimum(gaps * epsilon / 2, _MAX_EXPONENT))
    return np.asarray(chances / chances.sum(), dtype=np.float64)


def permute_and_flip(gaps: Vector, epsilon: float) -> Vector:
    """
    Return how likely each candidate is chosen by permute-and-flip [MS20]; exact to some 1e-12.

    A candidate with chance p = e^(-ε·gap/2) of heads is taken with p·E[1/(1+H)], H the number of
    others that show heads; E[1/(1+H)] = ∫ E[t^H] dt over 0 .. 1, and E[t^H] is the product of
    1 - p_j + p_j·t over the others. Its expected gap never exceeds the exponential mechanism's.

    `gaps`, shape (n,), are distances to the best candidate; one person moves each by 1 at most.
    Cost: some 500 terms for each different gap.
    """
    levels, which, many = np.unique(gaps, return_inverse=True, return_counts=True)
    chances = np.exp(-np.minimum(levels * epsilon / 2, _MAX_EXPONENT))
    # y = 1-t. The product falls like e^(-y·Σp): panels that double from where it begins to.
    panels = max(1, math.ceil(math.log2(1 + (chances * many).sum())) + 1)
    edges = np.concatenate([[0.0], 2.0 ** -np.arange(panels - 1.0, -1.0, -1.0)])
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    parts = [slice(at, at + _ROWS_AT_ONCE) for at in range(0, len(levels), _ROWS_AT_ONCE)]
    taken = np.zeros(len(levels))
    for low, high in pairwise(edges.tolist()):
        y = low + (nodes + 1) / 2 * (high - low)
        logs = np.zeros(_NODES)
        for part in parts:
            logs += many[part] @ np.log1p(-chances[part, None] * y)
        for part in parts:
            others = logs - np.log1p(-chances[part, None] * y)
            taken[part] += np.exp(others) @ (weights / 2 * (high - low))
    return np.asarray((chances * taken)[which], dtype=np.float64)
