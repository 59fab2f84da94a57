"""Whether an order tells of another: tests of orders that should be uniform."""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from deploy.audit import fit
from deploy.audit.fit import of_normal, of_number

Places = NDArray[np.int64]

_CELL: Final = 50
"""Reports expected in a cell of the table of blocks, at least."""
_MOST_BLOCKS: Final = 10


def of_rank(before: Places) -> float:
    """
    Test Spearman's correlation of a delivery with arrival.

    Args:
        before: For each place of the delivery, the place among what arrived; each once.

    Of a uniform order it has mean 0 and variance 1/(N-1), and tails no heavier than a normal law's.
    """
    if len(before) < 3:  # noqa: PLR2004  # nothing to correlate
        return 1.0
    correlation = float(np.corrcoef(np.arange(len(before)), stats.rankdata(before))[0, 1])
    return of_normal(correlation * float(np.sqrt(len(before) - 1)), 0.0, 1.0)


def of_successions(before: Places) -> float:
    """Test how many neighbours were neighbours before, in either direction: 2(N-1)/N on average."""
    number = int((np.abs(np.diff(_ranks(before))) == 1).sum())
    return of_number(number, 2 * max(1, len(before) - 1) / max(1, len(before)))


def of_groups(owners: Places) -> float:
    """Test how many neighbours belong to one owner, of any numbers of reports an owner."""
    n = len(owners)
    _, counts = np.unique(owners, return_counts=True)
    mean = float((counts * (counts - 1)).sum()) / max(1, n)
    same = int((np.diff(owners) == 0).sum())
    return of_number(same, mean) if mean else float(same == 0)


def of_blocks(before: Places, most: int = _MOST_BLOCKS) -> float | None:
    """
    Test the table of arrival block by delivery block: `most` of each, or fewer where N is small.

    Returns:
        None where N is too small for two.
    """
    n = len(before)
    blocks = min(most, int(np.sqrt(n / _CELL)))
    if blocks < 2:  # noqa: PLR2004  # one cell holds everything
        return None
    table = np.zeros((blocks, blocks), dtype=np.int64)
    np.add.at(table, (_ranks(before) * blocks // n, np.arange(n) * blocks // n), 1)
    return fit.of_blocks(table)


def of_same_places(one: Places, other: Places) -> float:
    """Test at how many places of two deliveries stands a report of the same user."""
    n = min(len(one), len(other))
    users = max(int(one.max(initial=0)), int(other.max(initial=0))) + 1
    return of_number(int((one[:n] == other[:n]).sum()), n / users)


def of_ascents(reports: Sequence[bytes]) -> float:
    """Test whether ciphertexts are sorted: ascents of a uniform order, by their law's moments."""
    heads = np.array([int.from_bytes(one[:7]) for one in reports], dtype=np.int64)
    n = len(heads)
    if n < _CELL:
        return 1.0
    return of_normal(int((np.diff(heads) > 0).sum()), (n - 1) / 2, float(np.sqrt((n + 1) / 12)))


def of_ranks(marked: NDArray[np.bool_]) -> float:
    """Test whether marked things stand earlier or later than the others, by their ranks' sum."""
    n, k = len(marked), int(marked.sum())
    if k in {0, n}:
        return 1.0
    spread = k * (n - k) * (n + 1) / 12
    return of_normal(
        float((np.flatnonzero(marked) + 1).sum()), k * (n + 1) / 2, float(np.sqrt(spread))
    )


def _ranks(places: Places) -> Places:
    ranks: Places = np.argsort(np.argsort(places, kind="stable"), kind="stable")
    return ranks


def of_groups_on_disk(groups: Sequence[Places]) -> float:
    """
    Test whether groups lie in the order in which they came, or in the reverse of it.

    Args:
        groups: Of each group, in the order on the disk, the places of arrival of its reports.

    Groups are numbered at random: however large they are, their order is uniform.
    """
    came = np.array([float(group.mean()) for group in groups if len(group)])
    ranks: Places = np.argsort(np.argsort(came, kind="stable"), kind="stable").astype(np.int64)
    return min(1.0, 2 * min(of_rank(ranks), of_successions(ranks)))
