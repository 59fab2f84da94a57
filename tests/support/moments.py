"""Moments of samples with a row for each repeat, and how far two samples are apart."""

import numpy as np
from numpy.typing import NDArray


def moments(rows: NDArray[np.float64], centre: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the columns, and the products of every two columns' distances from the centre."""
    apart = rows - centre
    one, other = np.triu_indices(rows.shape[1])
    return np.concatenate([rows, apart[:, one] * apart[:, other]], axis=1)


def largest_deviation(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """Compare the means of two samples, column by column, in standard errors of the difference."""
    apart = np.abs(one.mean(axis=0) - other.mean(axis=0))
    error = np.sqrt((one.var(axis=0) + other.var(axis=0)) / len(one))
    assert (apart[error == 0] == 0).all()  # a cell that stays empty
    return float((apart[error > 0] / error[error > 0]).max())
