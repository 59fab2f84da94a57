"""The data sets that are shipped; origins and terms: docs/researchers/datasets.md."""

from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

import numpy as np
from numpy.typing import NDArray

from common.errors import TaskError
from common.task.specs import MAX_DOMAIN_SIZE, within
from deploy.datasets import files

MAX_PEOPLE: Final = 10**9 - 1
"""Limit of numpy's hypergeometric draws."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Dataset:
    """A histogram of people."""

    name: str
    title: str
    """Describes it, and says so where it is not real."""
    labels: tuple[str, ...]
    """One an item; empty where items have no other name than their number."""
    counts: NDArray[np.int64]
    """People by item, shape (domain_size,)."""

    def __post_init__(self) -> None:
        """Raise TaskError if there are fewer than two items, no people, or too many."""
        within(f"items of {self.name}", len(self.counts), 2, MAX_DOMAIN_SIZE)
        for extreme in (self.counts.min(), self.counts.max()):
            within(f"people per item of {self.name}", int(extreme), 0, MAX_PEOPLE)
        within(f"people of {self.name}", self.n_users, 1, MAX_PEOPLE)

    @property
    def n_users(self) -> int:
        """All people."""
        return int(self.counts.sum())

    @property
    def domain_size(self) -> int:
        """All items."""
        return len(self.counts)

    def draw(self, n_users: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Draw n_users different people, in random order; return their items."""
        counts = self.sample_counts(n_users, rng)
        return rng.permutation(np.repeat(np.arange(self.domain_size), counts))

    def sample_counts(self, n_users: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """
        Draw the counts by item of n_users different people; they sum to n_users.

        Raises:
            TaskError: There are not so many people.

        Cost: a hypergeometric draw an item, however many people.
        """
        self.check_users(n_users)
        drawn = rng.multivariate_hypergeometric(self.counts, n_users, method="marginals")
        return np.asarray(drawn, dtype=np.int64)

    def check_users(self, n_users: int) -> None:
        """Check that so many different people can be drawn, or raise TaskError."""
        if not 1 <= n_users <= self.n_users:
            raise TaskError(f"users is {n_users}; {self.name} has 1 .. {self.n_users}")


IPUMS_1940_CITY: Final = "ipums1940_city"
KOSARAK_PREFIX: Final = "kosarak_prefix"
KOSARAK_RECONSTRUCTED: Final = "kosarak_reconstructed"
COVID_US_STATES: Final = "covid_us_states"

SHIPPED: Final = MappingProxyType(
    {
        IPUMS_1940_CITY: "City of residence, 1940 census, 1 % sample (IPUMS)",
        KOSARAK_PREFIX: "One page per visitor, first 36,682 visits of Kosarak",
        KOSARAK_RECONSTRUCTED: "RECONSTRUCTED, not real: one page per visitor, scale of Kosarak",
        COVID_US_STATES: "Confirmed COVID-19 cases by US state, until 18 April 2021",
    }
)
"""Titles by name."""


def load(name: str) -> Dataset:
    """
    Read a shipped data set.

    Raises:
        TaskError: None of this name is shipped.
    """
    if name not in SHIPPED:
        raise TaskError(f"no such data set is shipped; the shipped ones are {', '.join(SHIPPED)}")
    [path] = Path(__file__).parent.glob(f"{name}.csv*")
    table = files.read(path)
    return Dataset(name=name, title=SHIPPED[name], labels=table.values, counts=table.counts)
