"""The data sets that are shipped; see README.md beside this file for origins and terms."""

import csv
from dataclasses import dataclass
from importlib import resources
from typing import Final

import numpy as np
from numpy.typing import NDArray

from common.errors import TaskError


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Dataset:
    """A histogram of real people."""

    name: str
    labels: tuple[str, ...]
    counts: NDArray[np.int64]

    def draw(self, n_users: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """
        Draw n_users different people, in random order, and give their items.

        Raises:
            TaskError: There are not so many people.
        """
        people = np.repeat(np.arange(len(self.counts)), self.counts)
        if not 1 <= n_users <= len(people):
            raise TaskError(f"users is {n_users}; {self.name} has 1 .. {len(people)}")
        return rng.permutation(people)[:n_users]


IPUMS_1940_CITY: Final = "ipums1940_city"


def load(name: str) -> Dataset:
    """Read a shipped data set."""
    text = (resources.files("deploy.datasets") / f"{name}.csv").read_text(encoding="utf-8")
    rows = list(csv.DictReader(text.splitlines()))
    return Dataset(
        name=name,
        labels=tuple(row["label"] for row in rows),
        counts=np.array([int(row["count"]) for row in rows], dtype=np.int64),
    )
