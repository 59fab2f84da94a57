"""Exact errors of central mechanisms, run by a curator who sees every value. Pure."""

import math
from collections.abc import Mapping
from typing import Final

import numpy as np
from scipy.integrate import quad_vec
from scipy.special import softmax

from shuffledp.common.mechanisms.base import Counts, Vector
from shuffledp.lab.planning.central_gaussian import gaussian_error, share_square

CENTRAL_NAMES: Final = {
    "laplace_mse": "central Laplace",
    "gaussian_mse": "central Gaussian",
    "regret": "permute-and-flip",
    "exponential_regret": "central exponential",
}
"""Display name of each central mechanism, by the name of its error."""
CentralErrors = Mapping[str, float]
"""
Errors of the central mechanisms at one (ε, δ), replace-one neighbours, by keys of CENTRAL_NAMES.

`laplace_mse`, `gaussian_mse`: mean squared error of a share or a mean [DMNS06], [BW18]. For items
also `regret`, `exponential_regret`: expected difference between the largest share and the share of
the item selected by permute-and-flip [MS20] or the exponential mechanism [MT07].
"""


def central_errors_of_items(counts: Counts, epsilon: float, delta: float) -> CentralErrors:
    """
    Return central mechanisms' errors for counts by item; one user changes two counts by 1.

    Shares are corrected to the known total. Laplace noise of two items is that of one count, which
    determines the other.
    """
    n_users, size = int(counts.sum()), len(counts)
    gaps = np.asarray(counts.max() - counts, dtype=np.float64)
    of_texts = central_errors_of_texts(n_users, epsilon, delta)
    laplace = of_texts["laplace_mse"] * (1 - 1 / size)
    if size == 2:  # noqa: PLR2004  # one count
        laplace = 1 / (2 * (n_users * math.sinh(epsilon / 2)) ** 2)
    return {
        "laplace_mse": laplace,
        "gaussian_mse": gaussian_error(share_square(size), n_users, epsilon, delta),
        "regret": float(permute_and_flip(gaps, epsilon) @ gaps) / n_users,
        "exponential_regret": float(exponential_mechanism(gaps, epsilon) @ gaps) / n_users,
    }


def central_errors_of_texts(n_users: int, epsilon: float, delta: float) -> CentralErrors:
    """Return the central mechanisms' errors for counts of texts, whose total is not known."""
    return {
        "laplace_mse": 1 / (2 * (n_users * math.sinh(epsilon / 4)) ** 2),
        "gaussian_mse": gaussian_error(2.0, n_users, epsilon, delta),
    }


def central_errors_of_means(
    n_users: int, size: int, half_range: float, epsilon: float, delta: float
) -> CentralErrors:
    """Return the central mechanisms' errors for `size` means of numbers within ±half_range."""
    return {
        "laplace_mse": 2 * (2 * half_range / n_users * size / epsilon) ** 2,
        "gaussian_mse": gaussian_error(size * (2 * half_range) ** 2, n_users, epsilon, delta),
    }


def exponential_mechanism(gaps: Vector, epsilon: float) -> Vector:
    """Return the exponential mechanism's probabilities, proportional to e^(-ε·gap/2) [MT07]."""
    return np.asarray(softmax(-gaps * epsilon / 2))


def permute_and_flip(gaps: Vector, epsilon: float) -> Vector:
    """
    Return permute-and-flip's selection probabilities [MS20], accurate to about 1e-12.

    A candidate whose coin shows heads with p = e^(-ε·gap/2) is selected with p·E[1/(1+H)], where H
    counts the heads of the others. E[1/(1+H)] = ∫ E[t^H] dt over 0 .. 1, and E[t^H] is the product
    of 1 - p_j + p_j·t over the others.

    `gaps`, shape (n,), are the candidates' distances to the best one, with sensitivity 1.
    Cost: about 500 terms per distinct gap.
    """
    distinct, inverse, repeats = np.unique(gaps, return_inverse=True, return_counts=True)
    heads = np.exp(-distinct * epsilon / 2)

    def of_others(y: float) -> Vector:
        logs = np.log1p(-heads * y)
        return np.asarray(np.exp(repeats @ logs - logs))

    # With y = 1-t the product decays like e^(-y·Σp), so intervals double in length from y = 0.
    doublings = math.ceil(math.log2(1 + (heads * repeats).sum()))
    edges = 2.0 ** -np.arange(1, doublings + 1)
    integrals = quad_vec(of_others, 0, 1, epsabs=0, epsrel=1e-12, norm="max", points=edges)[0]
    return np.asarray((heads * integrals)[inverse], dtype=np.float64)
