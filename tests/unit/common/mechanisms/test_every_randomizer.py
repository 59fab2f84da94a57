"""Properties of the reports of every mechanism, for items, numbers, texts and pairs."""

from collections.abc import Callable
from functools import cache, partial
from itertools import product
from typing import Final, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shuffledp.common.errors import ReportError
from shuffledp.common.mechanisms import base
from shuffledp.common.mechanisms.key_value.privkv import PrivKv
from shuffledp.common.mechanisms.rappor.permanent_response import scope_secret
from shuffledp.common.mechanisms.rappor.rappor import Rappor
from shuffledp.common.protocols import NumberMechanismName
from shuffledp.common.task.draft import PairDraft
from tests.support.mechanisms import EXAMPLES, example
from tests.support.numbers import EVERY, ONE_NUMBER, number_example
from tests.support.tables import table


class _Example(NamedTuple):
    mechanism: base.Randomizer
    reports: base.Reports
    estimable: Callable[[base.Counts, int], bool]
    """Check that cells and their number of reports give an estimate."""


def _items(name: str, items: int) -> _Example:
    mechanism, rng = example(name, items=items), np.random.default_rng(1)
    values = rng.integers(0, mechanism.domain_size, 200)
    reports = np.concatenate([mechanism.randomize(values, rng), mechanism.dummies(200, rng)])

    def estimable(cells: base.Counts, _count: int) -> bool:
        shares = mechanism.debias(cells, base.Mixture(n_real=1.0))
        return (mechanism.domain_size,) == shares.shape

    return _Example(mechanism, reports, estimable)


def _numbers(name: NumberMechanismName, size: int, local_epsilon: float) -> _Example:
    mechanism = number_example(name, local_epsilon, dimensions=size)
    values = np.repeat([[-1.0], [0.0], [1.0]], 50, axis=0) * np.ones(size)

    def estimable(cells: base.Counts, _count: int) -> bool:
        found = mechanism.estimate(cells)
        assert (size,) == found.means.shape == found.variances.shape
        return bool(np.isfinite(found.means).all() and (found.variances > 0).all())

    return _Example(mechanism, mechanism.randomize(values, np.random.default_rng(4)), estimable)


def _texts(bits: int, cohorts: int, p: float, q: float) -> _Example:
    spec = Rappor.specify(
        bits=bits,
        hashes=1 if cohorts == 1 else 2,
        cohorts=cohorts,
        f=0.5,
        p=p,
        q=q,
        encoding="labels" if cohorts == 1 else "bloom",
    )
    mechanism = Rappor.of(spec, [f"v{place}" for place in range(bits)])
    secrets = [scope_secret(bytes(32), bytes([person])) for person in range(50)]
    responses = mechanism.permanent(["v1", "v2"] * 25, secrets)
    reports = mechanism.randomize(responses, np.random.default_rng(1))
    return _Example(mechanism, reports, lambda cells, count: count == cells[:cohorts].sum())


def _pairs(keys: int) -> _Example:
    mechanism = PrivKv.of_spec(PrivKv.specify(PairDraft(key_share=0.5), 1.0), keys)
    table = np.full((50, keys), 0.5)

    def estimable(cells: base.Counts, count: int) -> bool:
        found = mechanism.estimate(cells)
        return count == cells.sum() and bool((found.frequency_errors > 0).all())

    return _Example(mechanism, mechanism.randomize(table, np.random.default_rng(1)), estimable)


_CASES: Final[dict[str, Callable[[], _Example]]] = {
    **{
        f"{name} of {items}": partial(_items, name, items)
        for name, items in product(EXAMPLES, (2, 3, 7, 8, 9, 16))
    },
    **{
        f"{name} of {size} at {epsilon}": partial(_numbers, name, size, epsilon)
        for name, size, epsilon in product(EVERY, (1, 7, 8, 9), (0.5, 1.0, 8.0))
        if size == 1 or name not in ONE_NUMBER
    },
    **{f"pairs of {keys}": partial(_pairs, keys) for keys in (1, 5, 300)},
    **{
        f"rappor of {row}": partial(_texts, *row)
        for row in ((16, 4, 0.5, 0.75), (40, 8, 0, 1), (5, 1, 0.25, 0.75), (8, 1, 0, 1))
    },
}


@cache
def _example(name: str) -> _Example:
    return _CASES[name]()


@pytest.mark.parametrize("name", _CASES)
@given(junk=st.binary(max_size=150))
@settings(max_examples=12)
def test_any_bytes_are_counted_or_refused(name: str, junk: bytes) -> None:
    """Counting valid reports gives an estimate, and any other report a ReportError."""
    mechanism, _, estimable = _example(name)
    size = mechanism.report_dtype.itemsize
    reports = np.frombuffer(junk[: len(junk) // size * size], dtype=mechanism.report_dtype)
    valid = mechanism.valid(reports)
    cells = mechanism.tally(reports[valid])

    assert (np.dtype(np.bool_), (len(reports),)) == (valid.dtype, valid.shape)
    assert not (valid & base.is_null(reports)).any()
    assert np.dtype(np.int64) == cells.dtype
    assert (cells >= 0).all()
    assert estimable(cells, int(valid.sum()))
    if not valid.all():
        with pytest.raises(ReportError):
            mechanism.tally(reports)


@table("name", _CASES)
def test_reports_are_valid_and_null_reports_are_not(name: str) -> None:
    """Reports stay valid through their bytes, and the tallies of parts add up to the whole."""
    mechanism, sent, _ = _example(name)
    reports = np.frombuffer(sent.tobytes(), dtype=mechanism.report_dtype)

    assert mechanism.valid(reports).all()
    assert not base.is_null(reports).any()
    assert not mechanism.valid(base.null_reports(3, mechanism.report_dtype)).any()
    parts = mechanism.tally(sent[:20]) + mechanism.tally(sent[20:])
    assert parts.tolist() == mechanism.tally(reports).tolist()
