"""Texts that a task's filters are searched for: the candidates' file, and what was found."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from common.errors import SettingsError
from common.mechanisms.base import Vector
from common.mechanisms.registry import rappor_of
from common.messages.estimate import BitTable, interval_around, interval_reach
from common.task.task import Task
from common.task.text import normalised
from deploy.results.estimate_columns import CONFIDENCE, Columns
from deploy.results.estimate_table import EstimateTable, Line, decimals_of
from deploy.results.rappor.decoder import Decoding, decode
from deploy.terminal.json_output import number_or_text

MOST_CANDIDATES: Final = 100_000
_MOST_BYTES: Final = 16 * 1024 * 1024
"""Of a file of candidates."""


def read_candidates(path: Path) -> tuple[str, ...]:
    """
    Read texts to look for: one a line, in UTF-8; empty lines are left out.

    Each is written as a device would write it, and a byte order mark before the first is none of
    it.

    Raises:
        SettingsError: The file cannot be read, is too long, is no text, names a text twice, or
            names none.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}") from error
    if len(raw) > _MOST_BYTES:
        raise SettingsError(f"{path} has {len(raw)} bytes; at most {_MOST_BYTES} are read")
    try:
        lines = raw.decode("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path} is no text in UTF-8") from error
    texts = tuple(normalised(text) for line in lines if (text := line.removesuffix("\r")))
    if not 1 <= len(texts) <= MOST_CANDIDATES:
        raise SettingsError(
            f"{path} names {len(texts)} candidates; it must be 1 .. {MOST_CANDIDATES}"
        )
    if len(set(texts)) < len(texts):
        raise SettingsError(f"{path} names {len(texts) - len(set(texts))} candidates again")
    return texts


def decode_candidates(task: Task, table: BitTable, candidates: Sequence[str]) -> Decoding:
    """
    Look for candidates in what was released; this spends nothing. Run by the operator.

    Raises:
        TaskError: The task collects no texts, or has too few cohorts for so many candidates.
        ValueRangeError: A candidate is too long, or none of the labels.
    """
    cells = np.concatenate([table.cohort_sizes, table.bit_counts.ravel()])
    return decode(rappor_of(task), cells, candidates)


def of_decoded(decoded: Decoding, *, most: int, truth: Vector | None = None) -> EstimateTable:
    """
    Give the table of candidates, those with the largest shares.

    Args:
        decoded: What was found.
        most: Lines at most.
        truth: True shares of the candidates, in a demo.
    """
    shares, errors = decoded.shares, decoded.standard_errors / decoded.n_reports
    low, high = interval_around(shares, errors, CONFIDENCE)
    order = np.argsort(-(shares if truth is None else truth), kind="stable")[:most].tolist()
    n_detected, n_candidates = int(decoded.detected.sum()), len(decoded.candidates)
    detected_in_words = (
        f"{n_detected:,} of {n_candidates:,} candidates were detected. That one of all those whom "
        "nobody holds is among the detected has a probability of 5 % at most (Bonferroni)."
    )
    return EstimateTable(
        title=f"The share of users who hold each of {n_candidates:,} candidates",
        figure="share",
        name="text",
        interval=f"{CONFIDENCE:.0%} interval",
        more=("p-value", "detected"),
        decimals=decimals_of(errors),
        lines=tuple(
            Line(
                name=decoded.candidates[place],
                figure=float(shares[place]),
                low=float(low[place]),
                high=float(high[place]),
                more=(
                    f"{decoded.p_values[place]:.2g}",
                    "yes" if decoded.detected[place] else "no",
                ),
                truth=None if truth is None else float(truth[place]),
            )
            for place in order
        ),
        size=n_candidates,
        notes=(detected_in_words, _unexplained_in_words(decoded)),
    )


def _unexplained_in_words(decoded: Decoding) -> str:
    if decoded.exhaustive:
        return "A text must be one of the task's labels: what shares leave of 1 is noise."
    percent = 100 * decoded.unexplained / decoded.n_reports
    reach = 100 * interval_reach(CONFIDENCE) * decoded.unexplained_error / decoded.n_reports
    return (
        f"Unexplained: an estimated {percent:.2f} % ({CONFIDENCE * 100:.0f} % interval "
        f"{percent - reach:.2f} % … {percent + reach:.2f} %) of the users hold a text that is no "
        "candidate."
    )


def columns_of_decoded(decoded: Decoding) -> Columns:
    """Give every figure of each candidate for CSV and Parquet, in the order of the candidates."""
    shares, errors = decoded.shares, decoded.standard_errors / decoded.n_reports
    low, high = interval_around(shares, errors, CONFIDENCE)
    return {
        "text": decoded.candidates,
        "share": shares.tolist(),
        "standard_error": errors.tolist(),
        "interval_low": low.tolist(),
        "interval_high": high.tolist(),
        "p_value": decoded.p_values.tolist(),
        "detected": decoded.detected.tolist(),
    }


def decoded_as_json(decoded: Decoding) -> dict[str, Any]:
    """
    Give everything that was found, in the order of the candidates.

    Nothing is said of unexplained texts where there can be none.
    """
    found = {
        "candidates": list(decoded.candidates),
        "shares": decoded.shares.tolist(),
        "standard_errors": [
            number_or_text(error)
            for error in (decoded.standard_errors / decoded.n_reports).tolist()
        ],
        "p_values": decoded.p_values.tolist(),
        "detected": decoded.detected.tolist(),
    }
    if decoded.exhaustive:
        return found
    return found | {
        "explained": 1 - decoded.unexplained / decoded.n_reports,
        "unexplained": decoded.unexplained / decoded.n_reports,
        "unexplained_standard_error": decoded.unexplained_error / decoded.n_reports,
    }
