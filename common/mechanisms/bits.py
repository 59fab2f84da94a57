"""
Pack bits into report fields, least significant bit first, and split reports into batches.

A field has at least one spare bit, always 0, so that no report is the null report.
"""

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from shuffledp.common.mechanisms.base import Counts

AT_ONCE: Final = 1 << 22
"""Bits drawn or counted at a time, to bound memory."""


def bit_field(size: int) -> tuple[str, str, tuple[int]]:
    """Return the dtype field `bits`: `size` bits and at least one spare bit, in whole bytes."""
    return "bits", "u1", (size // 8 + 1,)


def chunks(count: int, size: int, at_once: int = AT_ONCE) -> Iterator[slice]:
    """Split `count` reports of `size` bits (or other units) into chunks of about `at_once` bits."""
    step = max(1, at_once // size)
    return (slice(start, start + step) for start in range(0, count, step))


def pack(bits: NDArray[Any]) -> NDArray[np.uint8]:
    """Pack rows of 0 and 1 into fields: shape (n, size) -> (n, size // 8 + 1)."""
    fields = np.zeros((len(bits), bits.shape[1] // 8 + 1), dtype=np.uint8)
    packed = np.packbits(bits.astype(np.uint8, copy=False), axis=1, bitorder="little")
    fields[:, : packed.shape[1]] = packed
    return fields


def spare_bits_clear(fields: NDArray[np.uint8], size: int) -> NDArray[np.bool_]:
    """Return a mask, (n,), of the fields that set no bit beyond the first `size`."""
    spare = 0xFF << size % 8 & 0xFF
    return np.asarray((fields[:, -1] & spare) == 0)


def count_set_bits(fields: NDArray[np.uint8], size: int) -> Counts:
    """Count the fields that set each of the first `size` bits: (n, bytes) -> (size,). One pass."""
    counts = np.zeros(size, dtype=np.int64)
    for part in chunks(len(fields), size):
        bits = np.unpackbits(fields[part], axis=1, count=size, bitorder="little")
        counts += bits.sum(axis=0, dtype=np.int64)
    return counts
