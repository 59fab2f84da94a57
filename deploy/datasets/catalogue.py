"""Shipped data sets; docs/researchers/datasets.md states their sources and licences."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from common.errors import TaskError
from common.task.specs import MAX_DOMAIN_SIZE, check_int_range
from deploy.datasets import files
from deploy.datasets.names import SHIPPED

MAX_PEOPLE: Final = 10**9 - 1
"""Largest population that numpy's hypergeometric distribution accepts."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Dataset:
    """A histogram of people by item."""

    name: str
    title: str
    """A description, which says so if the data is not real."""
    labels: tuple[str, ...]
    """Names of the items, or empty."""
    counts: NDArray[np.int64]
    """Number of people with each item, shape (domain_size,)."""

    def __post_init__(self) -> None:
        """Raise TaskError if the number of items, people or people per item is out of range."""
        check_int_range(
            f"the number of different values of {self.name}", len(self.counts), 2, MAX_DOMAIN_SIZE
        )
        for extreme in (self.counts.min(), self.counts.max()):
            check_int_range(f"people per item of {self.name}", int(extreme), 0, MAX_PEOPLE)
        check_int_range(f"people of {self.name}", self.n_users, 1, MAX_PEOPLE)

    @property
    def n_users(self) -> int:
        """Number of people."""
        return int(self.counts.sum())

    @property
    def domain_size(self) -> int:
        """Number of items."""
        return len(self.counts)

    def draw(self, n_users: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Draw n_users people as `sample_counts` does; return their items in random order."""
        counts = self.sample_counts(n_users, rng)
        return rng.permutation(np.repeat(np.arange(self.domain_size), counts))

    def sample_counts(self, n_users: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Draw n_users people without replacement; return counts, shape (domain_size,)."""
        self.check_users(n_users)
        drawn = rng.multivariate_hypergeometric(self.counts, n_users, method="marginals")
        return np.asarray(drawn, dtype=np.int64)

    def check_users(self, n_users: int) -> None:
        """Raise TaskError unless n_users people can be drawn without replacement."""
        if not 1 <= n_users <= self.n_users:
            raise TaskError(f"users is {n_users}; for {self.name} it must be 1 to {self.n_users}")


def load(name: str) -> Dataset:
    """Return a shipped data set; raise TaskError if the name is unknown."""
    if name not in SHIPPED:
        raise TaskError(f"unknown data set; the shipped data sets are {', '.join(SHIPPED)}")
    [path] = Path(__file__).parent.glob(f"{name}.csv*")
    table = files.read(path)
    return Dataset(name=name, title=SHIPPED[name], labels=table.values, counts=table.counts)
