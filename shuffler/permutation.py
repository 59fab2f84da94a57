"""The shuffle."""

import numpy as np
from numpy.typing import NDArray


def permute(reports: NDArray[np.uint8], rng: np.random.Generator) -> NDArray[np.uint8]:
    """
    Put sealed reports into an order drawn uniformly from all n! orders. Run by the shuffler.

    The order is numpy's Fisher-Yates shuffle, whose bounded integers are exact (by rejection),
    over the generator that is passed in: ChaCha20 in production, so that no order can be told from
    a uniform one by anybody who does not break the cipher.

    Args:
        reports: Sealed reports, shape (n, length).
        rng: Source of randomness.

    Returns:
        The same rows in another order, shape (n, length).

    Cost: one pass of random reads; about 1.4 times numpy's own generator.
    """
    order: NDArray[np.uint8] = reports[rng.permutation(len(reports))]
    return order
