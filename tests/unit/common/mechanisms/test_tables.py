"""Tables of attributes: cells, and the least-squares estimate with its errors."""

import itertools
import math
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import linalg

from shuffledp.common.errors import TaskError, ValueRangeError
from shuffledp.common.mechanisms.tables import Tables
from shuffledp.common.mechanisms.views import View
from shuffledp.common.messages.result import ShareTable
from shuffledp.common.task.domain_spec import AttributeSpec
from shuffledp.common.task.draft import TableDraft
from shuffledp.common.task.uniform_dummies import averaging
from tests.support.reductions import geometric_noise

_USERS: Final = 1000
_NOISE: Final = geometric_noise(20, 0.9, 0.8, 60)
_FORMS: Final[dict[str, tuple[tuple[int, ...], tuple[tuple[int, ...], ...], bool]]] = {
    "one table": ((3, 4), ((0, 1),), False),
    "a path and a margin": ((2, 3, 4, 5), ((0, 1), (1, 2), (2,), (1, 3)), False),
    "all pairs": ((2, 3, 4), ((0, 1), (0, 2), (1, 2)), False),
    "margins alone": ((2, 6), ((0,), (1,)), False),
    "apart": ((2, 3, 2, 2), ((0, 1), (2, 3), (3,)), False),
    "noise by shufflers": ((2, 3, 4), ((0, 1), (1, 2), (2,)), True),
}
"""Sizes of attributes, tables, and whether shufflers hide them."""


def _tables(name: str) -> Tables:
    """Return tables among dummies of unlike numbers, or under unlike noise."""
    sizes, tables, noisy = _FORMS[name]
    views = []
    for place, table in enumerate(tables):
        noise = {"noise": replace(_NOISE, most=60 + 9 * place)} if noisy else {}
        added = averaging(0.0 if noisy else 0.7 + 0.45 * place)
        size = math.prod(sizes[a] for a in table)
        views.append(View(size=size, dummies=added, **noise))
    return Tables(views=tuple(views), attribute_sizes=sizes, tables=tables)


def _collected(mechanism: Tables, values: NDArray[np.int64], rng: np.random.Generator) -> Any:
    """Count people's reports and all dummies."""
    added = [
        view.noise.draw(view.size, rng) if view.noise.most else np.zeros(view.size, dtype=np.int64)
        for view in mechanism.views
    ]
    by_users = mechanism.sample_dummies(len(values), rng)
    return mechanism.tally(mechanism.randomize(values, rng)) + by_users + np.concatenate(added)


def _people(sizes: tuple[int, ...], rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw people whose attributes depend on each other."""
    first = rng.integers(0, 100, _USERS)
    return np.stack([(first + rng.integers(0, 40, _USERS)) % size for size in sizes], axis=1)


def _design(mechanism: Tables) -> NDArray[np.float64]:
    """Return the matrix from the counts of all combinations of values to all cells, by table."""
    grid = np.array(list(itertools.product(*map(range, mechanism.attribute_sizes))))
    rows = []
    for table, size in zip(mechanism.tables, mechanism.sizes, strict=True):
        places = np.zeros(len(grid), dtype=np.int64)
        for attribute in table:
            places = places * mechanism.attribute_sizes[attribute] + grid[:, attribute]
        rows.append(np.arange(size)[:, np.newaxis] == places)
    return np.concatenate(rows).astype(np.float64)


def _all(tables: tuple[ShareTable, ...]) -> NDArray[np.float64]:
    return np.concatenate([each.shares for each in tables])


def _errors(tables: tuple[ShareTable, ...]) -> NDArray[np.float64]:
    return np.concatenate([np.full(len(each.shares), each.standard_error) for each in tables])


@pytest.mark.parametrize("name", _FORMS)
def test_the_estimate_is_the_weighted_projection_and_its_errors_are_exact(name: str) -> None:
    """
    Against a dense projection that knows no form of the tables.

    It finds counts of all combinations of values, with the sum n, that fit all cells best, by
    inverse expected variances; and propagates the covariance of counts whose total is known, with
    the variances of the dummies that arrived, twice as many in the first table.
    """
    mechanism, rng = _tables(name), np.random.default_rng(3)
    cells = _collected(mechanism, _people(mechanism.attribute_sizes, rng), rng)
    first, added = mechanism.sizes[0], mechanism.sample_dummies(_USERS, rng)
    cells[:first] += added[:first]
    found, design = mechanism.estimate(cells, _USERS), _design(mechanism)
    expected = [view.item_variance(_USERS) for view in mechanism.views]
    arrived = [each.mean() - _USERS / len(each) for each in mechanism.by_view(cells)]
    variances = expected if _FORMS[name][2] else arrived
    root = np.repeat(1 / np.sqrt(expected), mechanism.sizes)
    counts = cells - np.repeat(
        [(each.sum() - _USERS) / len(each) for each in mechanism.by_view(cells)], mechanism.sizes
    )

    # A combination's count is n / combinations plus a vector of sum 0.
    free = linalg.null_space(np.ones((1, design.shape[1])))
    even = design.sum(axis=1) * _USERS / design.shape[1]
    fit = design @ free @ np.linalg.pinv((design @ free) * root[:, np.newaxis]) * root
    centred = [
        variance * (np.eye(size) - 1 / size)
        for variance, size in zip(variances, mechanism.sizes, strict=True)
    ]
    spread = np.sqrt(np.diag(fit @ linalg.block_diag(*centred) @ fit.T))

    assert even + fit @ (counts - even) == pytest.approx(_all(found.tables) * _USERS, abs=1e-8)
    assert spread == pytest.approx(_errors(found.tables) * _USERS, rel=1e-9)
    assert found.mse_theory == pytest.approx((_errors(found.tables) ** 2).mean(), rel=1e-9)


@pytest.mark.parametrize("name", _FORMS)
def test_all_tables_agree(name: str) -> None:
    """Each sums to 1, and has the shares of an attribute that every other table of it has."""
    mechanism, rng = _tables(name), np.random.default_rng(4)
    cells = _collected(mechanism, _people(mechanism.attribute_sizes, rng), rng)
    found = mechanism.estimate(cells, _USERS)

    for table, view, shape in zip(mechanism.tables, found.tables, mechanism.shapes, strict=True):
        assert 1 == pytest.approx(view.shares.sum(), abs=1e-12)
        for axis, attribute in enumerate(table):
            others = tuple({*range(len(table))} - {axis})
            margin = view.shares.reshape(shape).sum(axis=others)
            assert margin == pytest.approx(found.attributes[attribute].shares, abs=1e-12)


@pytest.mark.parametrize("name", ["a path and a margin", "noise by shufflers"])
def test_shares_are_unbiased_with_the_stated_errors(name: str) -> None:
    """
    Of 200 collections of the same people: the mean of each share within six of its standard
    errors, and the mean square of all within 5.5. Seed 5; fails by chance with probability below
    1e-6.
    """
    mechanism, rng, runs = _tables(name), np.random.default_rng(5), 200
    people = _people(mechanism.attribute_sizes, rng)
    true = np.bincount(mechanism.encode(people, rng)[:, 0], minlength=mechanism.sizes[0]) / _USERS
    off = np.empty((runs, len(true)))
    for run in range(runs):
        [first, *_] = mechanism.estimate(_collected(mechanism, people, rng), _USERS).tables
        off[run] = first.shares - true
    squares = (off**2).mean(axis=1) / first.standard_error**2

    assert abs(off.mean(axis=0)).max() < 6 * first.standard_error / math.sqrt(runs)
    assert 1 == pytest.approx(squares.mean(), abs=5.5 * squares.std() / math.sqrt(runs))


@pytest.mark.parametrize(
    ("per_user", "arrived"), [(1, 1), (1, 2), (4, 1), pytest.param(1, 4, marks=pytest.mark.slow)]
)
def test_intervals_cover_whatever_number_of_dummies_arrived(per_user: int, arrived: int) -> None:
    """
    Of the 12 cells and 7 values of 150 tables of 2,000 people, 92 to 98 %.

    By the number that the task states, .83 and .68 for two and four times as many. Seed 7; any two
    in a table depend on each other, but chance exceeds the bounds with probability below 1e-6.
    """
    view = View(size=12, dummies=averaging(float(per_user)))
    mechanism = Tables(views=(view,), attribute_sizes=(3, 4), tables=((0, 1),))
    rng, covered = np.random.default_rng(7), []
    people = np.stack([np.arange(2000) % 3, np.arange(2000) % 4], axis=1)
    own = mechanism.tally(mechanism.randomize(people, rng))
    true = [own.reshape(3, 4), own.reshape(3, 4).sum(axis=1), own.reshape(3, 4).sum(axis=0)]
    for _ in range(150):
        found = mechanism.estimate(own + rng.multinomial(2000 * arrived, [1 / 12] * 12), 2000)
        for table, counts in zip((*found.tables, *found.attributes), true, strict=True):
            low, high = table.interval(0.95)
            covered += ((low <= counts.ravel() / 2000) & (counts.ravel() / 2000 <= high)).tolist()

    assert 0.92 <= np.mean(covered) <= 0.98


@pytest.mark.parametrize(
    "name",
    [
        "margins alone",
        *(
            pytest.param(each, marks=pytest.mark.slow)
            for each in ("one table", "noise by shufflers")
        ),
    ],
)
def test_intervals_of_few_dummies_hold_their_confidence(name: str) -> None:
    """
    Of all cells of 400 collections of 40 people, at least 93 % at .95 and .998 at .999.

    Seed 6; these are 3,200 or more cells, of which at most 22 depend on each other. They cover more
    than their confidence; fails by chance with probability below 1e-6.
    """
    mechanism, rng, users = _tables(name), np.random.default_rng(6), 40
    people = _people(mechanism.attribute_sizes, rng)[:users]
    cells = np.cumsum([0, *mechanism.sizes])
    true = np.bincount((mechanism.encode(people, rng) + cells[:-1]).ravel(), minlength=cells[-1])
    inside = {0.95: 0.0, 0.999: 0.0}
    for _ in range(400):
        found = mechanism.estimate(_collected(mechanism, people, rng), users)
        for confidence in inside:
            ends = [each.interval(confidence) for each in found.tables]
            low, high = (np.concatenate(each) for each in zip(*ends, strict=True))
            inside[confidence] += ((low <= true / users) & (true / users <= high)).mean() / 400

    assert 0.93 <= inside[0.95]
    assert 0.998 <= inside[0.999]


def test_ten_attributes_of_twenty_values_are_as_accurate_as_claimed() -> None:
    """
    At ε = 1 and n = 602,325 every table has 647,169 dummies.

    The standard deviation of a cell is 40.2 before and 38.4 after least squares, and that of a
    margin is 58.4; tables of each attribute beside the pairs halve the errors of margins.
    """
    users, pairs = 602_325, tuple(itertools.combinations(range(10), 2))
    view = View(size=400, dummies=averaging(647_169 / users))
    mechanism = Tables(views=(view,) * 45, attribute_sizes=(20,) * 10, tables=pairs)
    cells, margins = mechanism.variances(users)
    v, r, k = view.item_variance(users), 20, 10

    assert cells == pytest.approx([v * ((r - 1) ** 2 / r**2 + 2 * (r - 1) / (r**2 * (k - 1)))] * 45)
    assert margins == pytest.approx([v * (r - 1) / (k - 1)] * 10)
    assert [40.2, 38.4, 58.4] == [round(math.sqrt(each), 1) for each in (v, cells[0], margins[0])]


def test_a_table_of_an_attribute_makes_its_margin_and_the_cells_more_accurate() -> None:
    """And no cell less accurate."""
    with_margin = _tables("a path and a margin")
    views = [each for each in with_margin.views if each.size > 4]
    tables = tuple(each for each in with_margin.tables if len(each) > 1)
    less = replace(with_margin, views=tuple(views), tables=tables)
    (cells, margins), (wider, others) = with_margin.variances(9.0), less.variances(9.0)

    assert margins[2] < others[2]
    assert margins[0] == pytest.approx(others[0])
    assert cells[0] == pytest.approx(wider[0])
    assert cells[3] == pytest.approx(wider[2])
    assert cells[1] < wider[1]


def test_a_value_is_a_cell_of_every_table() -> None:
    """The last attribute counts fastest; values out of range and other types are refused."""
    mechanism, rng = _tables("a path and a margin"), np.random.default_rng(1)
    reports = mechanism.randomize(np.array([[1, 2, 3, 4], [0, 0, 0, 1]]), rng)

    assert [5, 6 + 11, 18 + 3, 22 + 14, 0, 6, 18, 22 + 1] == reports["item"].tolist()
    assert 0 == len(mechanism.randomize(np.empty((0, 4), dtype=np.int64), rng))
    for wrong in ([[2, 0, 0, 0]], [[0, 0, 0, -1]], [[0, 0, 0, 2**40]]):
        with pytest.raises(ValueRangeError, match="a value must lie between 0 and"):
            mechanism.randomize(np.array(wrong), rng)
    with pytest.raises(TypeError, match="array of whole numbers"):
        mechanism.randomize(np.array([[0.5, 0, 0, 0]]), rng)


_ATTRIBUTES: Final = tuple(AttributeSpec(name=name, labels=("no", "yes")) for name in "abc")


@pytest.mark.parametrize(
    ("fields", "tables"),
    [
        ({}, ((0, 1), (0, 2), (1, 2))),
        ({"margins": True}, ((0, 1), (0, 2), (1, 2), (0,), (1,), (2,))),
        ({"tables": (("c", "b"), ("a",))}, ((1, 2), (0,))),
        ({"tables": (("c", "b"), ("a",)), "margins": True}, ((1, 2), (0,), (1,), (2,))),
        ({"tables": (("c", "b"), ("b", "c"), ("a",))}, ((1, 2), (0,))),
    ],
)
def test_a_draft_asks_for_every_pair_or_names_its_tables(
    fields: dict[str, Any], tables: tuple[tuple[int, ...], ...]
) -> None:
    """Attributes go by name, in any order; those of margins come last, unless they are named."""
    assert tables == Tables.specify(TableDraft(attributes=_ATTRIBUTES, **fields)).tables


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ((("a", "b", "c"),), "a table has 3 attributes; .* ask for every pair of them, or"),
        ((("a", "d"), ("b", "c")), "a table is of d; the attributes are a, b, c"),
        ((("a", "b"),), "c is in no table; each attribute must be in one"),
        ((("a", "a"), ("b", "c")), "a table is of a, a; it must be of one or two different ones"),
        (
            ((), ("a", "b"), ("c",)),
            "a table is of nothing; it must be of one or two different ones",
        ),
    ],
)
def test_other_tables_are_refused(pairs: tuple[tuple[str, ...], ...], message: str) -> None:
    """The message says what to do instead."""
    with pytest.raises(TaskError, match=message):
        Tables.specify(TableDraft(attributes=_ATTRIBUTES, tables=pairs))
