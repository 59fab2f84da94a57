"""
The squared error of central Gaussian noise, with which plans and simulations compare theirs. Pure.

A trusted party adds Gaussian noise to the sums over n users, with the largest μ for (ε, δ) [BW18],
divided by √T for T rounds. Replacing one user changes all sums by at most their sensitivity s, in
the Euclidean norm, so the noise of each has the variance T·s²/μ².
"""

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

from shuffledp.common.mechanisms.tables import Tables
from shuffledp.common.mechanisms.views import View
from shuffledp.common.protocols import Kind
from shuffledp.common.task.draft import NumberDraft
from shuffledp.common.task.view_specs import TableSpec
from shuffledp.lab.planning.calibration import gaussian_mu
from shuffledp.lab.planning.requirements import Requirements


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
