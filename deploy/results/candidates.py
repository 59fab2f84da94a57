"""Candidate texts: read them from a file, and look for them in a released table of bits."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from common.errors import SettingsError
from common.mechanisms.rappor.decoder import Decoding, decode
from common.mechanisms.registry import rappor_of
from common.messages.result import BitTable
from common.task.specs import normalised
from common.task.task import Task

MAX_CANDIDATES: Final = 100_000
_MAX_BYTES: Final = 16 * 1024 * 1024


def read_candidates(path: Path) -> tuple[str, ...]:
    """
    Read texts to look for: one a line, in UTF-8; empty lines are left out.

    Each is normalized as on a device; a byte order mark at the beginning is dropped.

    Raises:
        SettingsError: The file cannot be read, is too long, is not UTF-8, names a text twice, or
            names none.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}") from error
    if len(raw) > _MAX_BYTES:
        raise SettingsError(f"{path} has {len(raw)} bytes; at most {_MAX_BYTES} are read")
    try:
        lines = raw.decode("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path} is not text in UTF-8") from error
    texts = tuple(normalised(text) for line in lines if (text := line.removesuffix("\r")))
    if not 1 <= len(texts) <= MAX_CANDIDATES:
        raise SettingsError(
            f"{path} names {len(texts)} candidates; it must be 1 .. {MAX_CANDIDATES}"
        )
    if len(set(texts)) < len(texts):
        raise SettingsError(f"{path} names {len(texts) - len(set(texts))} candidates again")
    return texts


def decode_candidates(task: Task, table: BitTable, candidates: Sequence[str]) -> Decoding:
    """
    Look for candidates in a released table; this spends no privacy budget. Run by the operator.

    Raises:
        TaskError: The task collects no texts, or has too few cohorts for so many candidates.
        ValueRangeError: A candidate is too long, or is not one of the labels.
    """
    cells = np.concatenate([table.cohort_sizes, table.bit_counts.ravel()])
    return decode(rappor_of(task), cells, candidates)
