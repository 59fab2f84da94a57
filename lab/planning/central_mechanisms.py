"""
Exact errors of central mechanisms, with which plans and simulations compare theirs. Pure.

A trusted party sees every value. It adds Gaussian noise to the sums over n users, with the largest
μ for (ε, δ) [BW18], divided by √T for T rounds. Replacing one user changes all sums by at most
their sensitivity s, in the Euclidean norm, so the noise of each has the variance T·s²/μ².
"""

import math
from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
from scipy.integrate import quad_vec
from scipy.special import softmax

from shuffledp.common.mechanisms.base import Counts, Vector
from shuffledp.common.mechanisms.tables import Tables
from shuffledp.common.mechanisms.views import View
from shuffledp.common.protocols import Kind
from shuffledp.common.task.draft import NumberDraft
from shuffledp.common.task.view_specs import TableSpec
from shuffledp.lab.planning.calibration import gaussian_mu
from shuffledp.lab.planning.requirements import Requirements

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


def gaussian_mse(target: Requirements) -> float:
    """Return the mean squared error of what a plan predicts, of one round."""
    square = target.rounds * _SQUARES[target.kind](target)
    return gaussian_error(square, target.n_users, target.central_epsilon, target.delta)


def gaussian_error(square: float, n_users: int, epsilon: float, delta: float) -> float:
    """Return the squared error of an average over users, from that of the sum at μ = 1."""
    return square / (gaussian_mu(epsilon, delta) * n_users) ** 2


def share_square(size: int) -> float:
    """
    Return the squared error at μ = 1 of a count of one of `size` items, which sum to n.

    Two counts change by 1: s² = 2. The known total takes a share 1/size off, half for two items.
    """
    return 2 * (1 - 1 / size)


def prefix_factor(target: Requirements) -> float:
    """
    Return the ratio of the error of a prefix to that of a bucket with independent noise.

    The errors of shares that sum to 1 are negatively correlated: those of i of d shares have a
    variance of i·(1 - i/d) times that of independent noise.
    """
    items = np.arange(1.0, target.domain_size // target.groups + 1)
    return target.prefix_error(items * (1 - items / target.domain_size))


def tables_square(spec: TableSpec) -> float:
    """
    Return the squared error at μ = 1 of a count, with the same noise in all V tables.

    A user changes all tables together by √(2·V) in the Euclidean norm. Least squares follow, as
    they do in a task for the tables.
    """
    sizes = spec.view_sizes()
    values = tuple(each.size for each in spec.attributes)
    even = Tables(views=View.averaging(1.0, sizes), attribute_sizes=values, tables=spec.tables)
    cells, _ = even.variances(sum(sizes))  # of counts with the variance 1
    return 2 * len(sizes) * float(np.average(cells, weights=sizes))


def _mean_square(target: Requirements) -> float:
    """Return the error of each of several numbers, all of which a user may change by the range."""
    numbers = target.draft_fields.get("numbers") or NumberDraft()
    return target.domain_size * float(numbers.high - numbers.low) ** 2


_SQUARES: Final[Mapping[Kind, Callable[[Requirements], float]]] = {
    "categorical": lambda target: share_square(target.domain_size),
    "ordered": lambda target: 2 * prefix_factor(target),
    "string": lambda _: 2.0,  # a list of texts may lack some
    "open": lambda _: 2.0,
    "mean": _mean_square,
    "vector": _mean_square,
    "key-value": lambda target: float(target.domain_size),  # a user may own every key, or none
    "table": lambda target: tables_square(Tables.specify(target.draft_fields["tables"])),
}
"""Squared errors at μ = 1 of the sums whose errors a plan of each kind predicts."""


def errors_of_items(counts: Counts, epsilon: float, delta: float) -> CentralErrors:
    """
    Return central mechanisms' errors for counts by item; one user changes two counts by 1.

    Shares are corrected to the known total. Laplace noise of two items is that of one count, which
    determines the other.
    """
    n_users, size = int(counts.sum()), len(counts)
    gaps = np.asarray(counts.max() - counts, dtype=np.float64)
    of_texts = errors_of_texts(n_users, epsilon, delta)
    laplace = of_texts["laplace_mse"] * (1 - 1 / size)
    if size == 2:  # noqa: PLR2004  # one count
        laplace = 1 / (2 * (n_users * math.sinh(epsilon / 2)) ** 2)
    return {
        "laplace_mse": laplace,
        "gaussian_mse": gaussian_error(share_square(size), n_users, epsilon, delta),
        "regret": float(permute_and_flip(gaps, epsilon) @ gaps) / n_users,
        "exponential_regret": float(exponential_mechanism(gaps, epsilon) @ gaps) / n_users,
    }


def errors_of_texts(n_users: int, epsilon: float, delta: float) -> CentralErrors:
    """Return the central mechanisms' errors for counts of texts, whose total is not known."""
    return {
        "laplace_mse": 1 / (2 * (n_users * math.sinh(epsilon / 4)) ** 2),
        "gaussian_mse": gaussian_error(2.0, n_users, epsilon, delta),
    }


def errors_of_means(
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
