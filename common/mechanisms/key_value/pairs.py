"""Pairs of a key and a value in -1 .. 1, of one user or many."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from shuffledp.common.errors import ValueRangeError
from shuffledp.common.mechanisms.arguments import checked_array
from shuffledp.common.mechanisms.base import Vector
from shuffledp.common.mechanisms.numeric.number import to_unit
from shuffledp.common.task.specs import MAX_KEYS

_NO_KEY: Final = "a key must be one of the task's keys"

Owned = NDArray[np.float64]
"""Values of n users as a table: shape (n, keys), each in -1 .. 1, NaN for a key not owned."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pairs:
    """
    The pairs of n users, stored user by user, in memory proportional to the number of pairs.

    User i's pairs are at offsets[i] .. offsets[i+1]-1. Keys and values are secret, so no error
    message contains them.
    """

    offsets: NDArray[np.int64]
    """Index of each user's first pair, then the number of pairs: shape (n+1,), non-decreasing."""
    keys: NDArray[np.int64]
    """Keys, shape (offsets[n],), at least 0, strictly ascending for each user."""
    values: Vector
    """Value of each key, same shape, in -1 .. 1."""

    def __post_init__(self) -> None:
        counts = np.diff(self.offsets)
        whole = len(self.offsets) > 0 and self.offsets[0] == 0 and bool((counts >= 0).all())
        if not whole or not len(self.keys) == len(self.values) == self.offsets[-1]:
            raise ValueError("offsets must run from 0 to the number of keys, each with a value")
        if (self.keys < 0).any():
            raise ValueRangeError(_NO_KEY)
        first = np.zeros(len(self.keys) + 1, dtype=np.bool_)
        first[self.offsets] = True
        if not (first[1:-1] | (np.diff(self.keys) > 0)).all():
            raise ValueRangeError("a person may own each key only once, and keys must ascend")
        if not (np.abs(self.values) <= 1).all():  # NaN fails too
            raise ValueRangeError("a value must be a number in the task's range")

    @classmethod
    def of_person(cls, owned: Mapping[int, float], low: float, high: float) -> Self:
        """
        Return one user's pairs from values in low .. high, by key. Run by the user agent.

        Raises ValueRangeError if a value is out of range, or a key is not in 0 .. MAX_KEYS-1. Cost:
        sorting the user's keys, whatever the task's number of keys.
        """
        if not all(type(key) is int and 0 <= key < MAX_KEYS for key in owned):
            raise ValueRangeError(_NO_KEY)
        given: Iterable[object] = owned.values()  # checked before numpy, whose errors quote values
        if not all(isinstance(x, float | int) and low <= x <= high for x in given):
            raise ValueRangeError(f"a value must be a number from {low} to {high}")
        keys = sorted(owned)
        values = np.array([owned[key] for key in keys], dtype=np.float64)
        return cls(
            offsets=np.array([0, len(keys)], dtype=np.int64),
            keys=np.array(keys, dtype=np.int64),
            values=to_unit(values, low, high),
        )

    @classmethod
    def of_table(cls, table: Owned, n_keys: int) -> Self:
        """
        Return the pairs of many users from a table with NaN for keys that are not owned.

        Raises ValueRangeError if the table does not have n_keys columns, or a value is not in
        -1 .. 1. Cost: a pass over the whole table.
        """
        table = checked_array(table, "iuf", "numbers").astype(np.float64, copy=False)
        if table.ndim != 2 or table.shape[1] != n_keys:  # noqa: PLR2004  # a row per user
            raise ValueRangeError(f"a table of pairs must have {n_keys} columns, one per key")
        held = ~np.isnan(table)
        return cls(
            offsets=np.concatenate([[0], np.cumsum(held.sum(axis=1))]).astype(np.int64),
            keys=np.nonzero(held)[1].astype(np.int64),
            values=table[held],
        )

    @property
    def n_users(self) -> int:
        """Number of users, including those who own no key."""
        return len(self.offsets) - 1

    def check_keys(self, n_keys: int) -> None:
        """Check that all keys are below the task's number of keys, or raise ValueRangeError."""
        if (self.keys >= n_keys).any():
            raise ValueRangeError(_NO_KEY)

    def look_up(self, asked: NDArray[np.int64], n_keys: int) -> tuple[NDArray[np.bool_], Vector]:
        """
        Look up one key, in 0 .. n_keys-1, for each user.

        Returns a mask of the users who own the requested key, and the key's value or 0; each (n,).
        All owned keys are below n_keys. Cost: a binary search among all pairs for each user.
        """
        users = np.repeat(np.arange(self.n_users, dtype=np.int64), np.diff(self.offsets))
        places = users * n_keys + self.keys  # ascending, as users and their keys are
        wanted = np.arange(self.n_users, dtype=np.int64) * n_keys + asked
        index = np.searchsorted(places, wanted)
        owned = np.append(places, -1)[index] == wanted
        return owned, np.where(owned, np.append(self.values, 0.0)[index], 0.0)
