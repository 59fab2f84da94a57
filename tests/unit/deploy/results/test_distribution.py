"""Quantiles, ranges and shares within groups of a released histogram."""

import dataclasses
import itertools
import json
import math
from functools import partial
from typing import Any, Final, cast

import numpy as np
import pytest

from shuffledp.common.errors import SettingsError
from shuffledp.common.mechanisms.base import Vector
from shuffledp.common.mechanisms.registry import mechanism_of
from shuffledp.common.messages.result import Histogram, IntervalTable, Result
from shuffledp.common.task.domain_spec import BreakdownSpec, EdgesSpec
from shuffledp.common.task.task import Task
from shuffledp.deploy.datasets.sample_people import SamplePeople
from shuffledp.deploy.demo.truth import beside_truth
from shuffledp.deploy.pages.result_page import result_page
from shuffledp.deploy.results.distribution import Distribution, root
from shuffledp.deploy.results.distribution_view import (
    DEFAULT_QUANTILES,
    Questions,
    asked_ranges,
    item_names,
    value_names,
)
from shuffledp.deploy.results.estimate_table import ResultView, print_table
from shuffledp.deploy.results.export import as_json
from shuffledp.deploy.results.result_view import result_view
from shuffledp.deploy.terminal.json_output import dumps
from shuffledp.lab.simulate.collection import collect, estimate_histogram
from tests.support.kind_results import result_of
from tests.support.printing import printed
from tests.support.protocol_tasks import protocol_task

_EDGES: Final = EdgesSpec(low=0.0, high=10.0, buckets=5, unit="s")
_COUNTRIES: Final = BreakdownSpec(attribute="country", groups=("DE", "FR"))
_UNIT: Final = "[red]<b>"
_SHARES: Final = (0.1, 0.2, 0.4, 0.2, 0.1)


def _task(**changes: Any) -> Task:
    fields = {"domain_size": 1, "labels": (), "edges": _EDGES, "dummies_per_user": 3.0}
    return protocol_task("puredump", **fields | changes)


def _exact(task: Task, shares: tuple[float, ...] = _SHARES) -> Result:
    """Return a result of 10,000 users whose estimate is exactly these shares."""
    array = np.array(shares)
    errors = np.full(len(array), 0.001)
    histogram = Histogram(frequencies=array, standard_errors=errors, refined=array, mse_theory=1e-6)
    return result_of(task, estimate=histogram, n_users=10_000, n_reports=40_000, n_dummies=30_000)


def _view(task: Task, found: Result, **asked: Any) -> ResultView:
    questions = Questions(batch=found, task=task, **asked)
    return result_view(found.estimate, task, most=9, questions=questions)


def _one(task: Task, found: Result) -> Distribution:
    [distribution] = Distribution.of_groups(found.histogram, found, task)
    return distribution


def test_quantiles_and_ranges_are_linear_within_buckets() -> None:
    """Of shares 10, 20, 40, 20 and 10 % in buckets of width 2."""
    task = _task()
    distribution = _one(task, _exact(task))
    shares = (0.05, 0.1, 0.2, 0.5, 0.9, 0.95)

    assert [1, 2, 3, 5, 8, 9] == pytest.approx(distribution.quantiles(shares).value.tolist())
    found = distribution.ranges([(0.0, 10.0), (1.0, 3.0), (4.0, 4.5)])
    assert [1, 0.15, 0.1] == pytest.approx(found.value.tolist())
    assert found.low[0] == pytest.approx(found.high[0])  # all dummies are known


def test_intervals_hold_the_exact_errors_of_prefixes() -> None:
    """
    At an edge, a share is as far from the interval's ends as its half-width.

    A prefix of k of d buckets has the variance M·k(d - k)/d² of uniform dummies, M / n = 3.
    """
    task = _task()
    distribution = _one(task, _exact(task))
    below = distribution.cumulative
    expected = [1.959964 * math.sqrt(3 * k * (5 - k) / 25 / 10_000) for k in range(1, 6)]

    assert expected == pytest.approx((below.high - below.value).tolist(), rel=1e-6)
    quantiles = distribution.quantiles([0.3])
    slopes = (0.1, 0.2)  # of the share, in the buckets on either side of the edge 4
    for end, slope in zip((quantiles.low, quantiles.high), slopes, strict=True):
        # The error hardly differs at the end, which lies within 10 % of a bucket.
        assert expected[1] / slope == pytest.approx(abs(float(end[0]) - 4), rel=0.1)


@pytest.mark.parametrize("breakdown", [None, _COUNTRIES])
def test_intervals_of_quantiles_mirror_with_the_buckets(breakdown: BreakdownSpec | None) -> None:
    """
    Randomized response treats all buckets alike, so reversed shares have reversed intervals.

    With most users in the last bucket, intervals of high quantiles ended at the estimate.
    """
    fields = {"domain_size": 1, "labels": (), "edges": _EDGES, "local_epsilon": 4.0}
    task = protocol_task("ldp-grr", breakdown=breakdown, **fields)
    asked, shares = np.array([0.05, 0.5, 0.95]), np.array([0.02, 0.0, 0.0, 0.03, 0.95])
    batch: dict[str, Any] = {"n_users": 50, "n_reports": 50, "n_dummies": 0}
    found, mirrored = (
        Distribution.of_groups(estimated.histogram, estimated, task)[0]
        for estimated in (
            dataclasses.replace(_exact(task, tuple(np.tile(each, task.groups))), **batch)
            for each in (shares / task.groups, shares[::-1] / task.groups)
        )
    )

    own, other = found.quantiles(asked.tolist()), mirrored.quantiles((1 - asked).tolist())
    assert (10 - other.high).tolist() == pytest.approx(own.low.tolist())
    assert (10 - other.low).tolist() == pytest.approx(own.high.tolist())
    if breakdown is None:
        assert 1 == found.cumulative.low[-1] == found.cumulative.high[-1]


@pytest.mark.parametrize(("n_users", "located"), [(10_000, True), (5, False)])
def test_a_located_median_needs_no_share_above_zero(n_users: int, located: bool) -> None:  # noqa: FBT001  # a case
    """With shares lost in noise, there are too few users only if the median may be anywhere."""
    task, found = _task(), _exact(_task())
    lost = dataclasses.replace(found.histogram, standard_errors=np.full(5, 9.0))
    few: dict[str, Any] = {"n_users": n_users, "n_reports": 4 * n_users, "n_dummies": 3 * n_users}

    warning = _view(task, dataclasses.replace(found, estimate=lost, **few)).warning
    assert located == (not warning)


def test_a_share_whose_noise_does_not_ascend_has_one_quantile() -> None:
    """The middle of the ascending functions above and below."""
    gap = np.array([-0.5, -0.1, 0.1, -0.1, 0.3])

    assert 2.5 == root(gap, np.arange(5.0))
    assert 0 == root(np.array([0.5, 0.6]), np.array([0.0, 1.0]))


@pytest.mark.parametrize("outside", ["refuse", "clip"])
def test_intervals_that_reach_clipped_buckets_are_open(outside: Any) -> None:
    """Numbers beyond the outermost edges may be in the first and the last bucket."""
    task = _task(edges=dataclasses.replace(_EDGES, outside=outside))
    found = _one(task, _exact(task)).quantiles((0.01, 0.5, 0.99))
    ends = [found.low[0], found.high[2]]

    assert ([-math.inf, math.inf] == ends) == (outside == "clip")
    assert np.isfinite([found.low[1], found.high[1]]).all()
    if outside == "clip":
        assert [_EDGES.edges[1], _EDGES.edges[-2]] == [found.value[0], found.value[2]]
        low, high = (_one(task, _exact(task)).quantiles((share,)) for share in (0.001, 0.999))
        assert low.high >= _EDGES.edges[1]
        assert high.low <= _EDGES.edges[-2]


def test_a_breakdown_has_shares_within_each_group() -> None:
    """Exact shares; Fieller's interval around a ratio; quantiles of each group."""
    task = _task(breakdown=_COUNTRIES)
    shares = tuple(0.75 * share for share in _SHARES) + tuple(0.25 * share for share in _SHARES)
    german, french = Distribution.of_groups(
        _exact(task, shares).histogram, _exact(task, shares), task
    )

    for group, total in ((german, 0.75), (french, 0.25)):
        assert total == pytest.approx(group.total)
        assert _SHARES == pytest.approx(group.within.value)
        assert [5] == pytest.approx(group.quantiles([0.5]).value.tolist())
        assert [0.3] == pytest.approx(group.ranges([(0.0, 4.0)]).value.tolist())
        assert (group.within.low < _SHARES).all()
        assert (group.within.high > _SHARES).all()
    assert (german.within.high < french.within.high).all()


def test_intervals_within_a_group_solve_fieller_s_equation() -> None:
    """
    At an end r of the interval of a part p of the total t, (p - r·t)² = z²(V_p - 2rC + r²V_t).

    Uniform dummies, M / n = 3 in d = 10 cells: k of the m = 5 cells of a group have the variance
    k·v·(1 - k/d), and the covariance k·v·(1 - m/d) with the group's total, with v = 3 / (n·d).
    """
    task = _task(breakdown=_COUNTRIES)
    shares = tuple(0.8 * share for share in _SHARES) + tuple(0.2 * share for share in _SHARES)
    found, v, z = _exact(task, shares), 3 / 10_000 / 10, 1.959964
    for group in Distribution.of_groups(found.histogram, found, task):
        total, variance = group.total, 5 * v * 0.5

        def gap(end: float, part: float, k: float) -> float:
            """Return the difference of the two sides, relative to the right one."""
            error = k * v * (1 - k / 10) - 2 * end * k * v * 0.5 + end**2 * variance  # noqa: B023
            return (part - end * total) ** 2 / (z**2 * error) - 1  # noqa: B023

        within, ranges = group.within, group.ranges([(0.0, 4.0)])
        for ends in (within, ranges):
            k = 1 if ends is within else 2
            for end in (ends.low[0], ends.high[0]):
                assert 0 == pytest.approx(gap(end, ends.value[0] * total, k), abs=1e-5)
        quantile = group.quantiles([0.3])
        for number in (quantile.low[0], quantile.high[0]):
            k, below = number / 2, np.interp(number, _EDGES.edges, [0, *np.cumsum(_SHARES)])
            part = k % 1
            error = (
                (k - part) * v * (1 - (k - part) / 10) * (1 - part)
                + (k - part + 1) * v * (1 - (k - part + 1) / 10) * part
                - part * (1 - part) * v * 0.9
                - 2 * 0.3 * k * v * 0.5
                + 0.09 * variance
            )
            assert z == pytest.approx(abs(below - 0.3) * total / math.sqrt(error), rel=1e-5)


@pytest.mark.parametrize(("share", "known"), [(0.02, True), (0.0185, False), (0.001, False)])
def test_a_group_is_known_if_its_share_is_above_0_for_all_at_once(
    share: float,
    known: bool,  # noqa: FBT001  # the claim
) -> None:
    """
    The total of 5 of 10 cells has a standard error of .00866 among uniform dummies.

    Of two groups, 95 % for both at once take 2.24 standard errors, .0194; 1.96 are .0170.
    """
    task = _task(breakdown=_COUNTRIES)
    shares = tuple((1 - share) * each for each in _SHARES) + tuple(share * each for each in _SHARES)
    found = _exact(task, shares)
    _, small = Distribution.of_groups(found.histogram, found, task)

    assert known == small.is_known


def test_intervals_are_as_wide_as_the_noise_of_clusters_needs() -> None:
    """Half-widths of single shares are used where they exceed those of the normal distribution."""
    task = _task()
    found = _exact(task)
    wide = dataclasses.replace(found.histogram, table=IntervalTable.alike(np.linspace(0, 30, 91)))
    below = [
        Distribution.of_groups(each, found, task)[0].cumulative for each in (wide, found.histogram)
    ]
    widths = [each.high - each.low for each in below]

    ratio = wide.half_width(0.95) / found.histogram.half_width(0.95)
    assert ratio > 1.1
    assert widths[0][:4] == pytest.approx(ratio * widths[1][:4], rel=1e-4)


def test_printed_edges_are_those_given() -> None:
    """Those of equal ratio have few digits, and count from the printed number on."""
    given = EdgesSpec(spacing="given", given=(0.0, 12570.0, 50270.5, 125140.0))
    computed = EdgesSpec(low=12345.0, high=12346.0, buckets=3)
    wide = EdgesSpec(spacing="logarithmic", low=100.0, high=1e7, buckets=64)

    assert ["119.7 to 143.3", "8,350,000 to 10,000,000"] == value_names(_task(edges=wide))[1::62]
    assert [0, 1] == [wide.bucket_of(number) for number in (math.nextafter(119.7, 0), 119.7)]
    assert ["12,570 to 50,270.5", "50,270.5 to 125,140"] == value_names(_task(edges=given))[1:]
    assert "12,345.3333333 to 12,345.6666667" == value_names(_task(edges=computed))[1]


@pytest.mark.parametrize("outside", ["refuse", "clip"])
@pytest.mark.parametrize(
    "fields",
    [
        {"low": 0.0, "high": 10_000.0, "buckets": 16},
        {"low": 0.0, "high": 1.0, "buckets": 3},
        {"low": 0.1, "high": 0.3, "buckets": 512},
        {"low": -1e9, "high": -1e9 + 1000.0, "buckets": 300},
        {"spacing": "logarithmic", "low": 1.0, "high": 1e5, "buckets": 512},
        {"spacing": "logarithmic", "low": 1e-30, "high": 1e11, "buckets": 7},
        {"spacing": "given", "given": (0.1, 0.1 + 2**-40, 1 / 3, 123_456.789)},
    ],
)
def test_a_label_is_the_edge_and_a_range_that_may_be_asked(
    fields: dict[str, Any], outside: Any
) -> None:
    """The numbers of a label are floats of the edges; it names a range, also typed with a colon."""
    spec = EdgesSpec(**fields, outside=outside)
    many = {"n_min": 1_000_000, "target_size": 1_000_000}
    task = _task(edges=spec, domain_size=spec.size, **many)
    names, edges = value_names(task), spec.edges.tolist()
    printed = [float(name.partition(" to ")[0].replace(",", "")) for name in names[1:-1]]
    typed = [name.replace(" to ", ":") for name in names[1:-1]]

    assert edges[1:-2] == printed
    assert [*itertools.pairwise(edges)] == [*asked_ranges(task, names)]
    assert [*itertools.pairwise(edges)][1:-1] == [*asked_ranges(task, typed)]
    Questions(batch=_exact(_task()), task=task, ranges=asked_ranges(task, names))


def test_a_group_without_users_has_no_shares() -> None:
    """Its intervals are infinite; it has no table and no quantiles."""
    task = _task(breakdown=_COUNTRIES, edges=None, labels=("flu", "cold"))
    found = _exact(task, (0.6, 0.4, 0.0, 0.0))
    view = _view(task, found)

    _, empty = Distribution.of_groups(found.histogram, found, task)
    assert not empty.is_known
    assert np.isinf(empty.within.high).all()
    titles = [table.title for table in view.tables[1:]]
    assert ["Share of users by country", "Shares among the users of DE"] == titles
    assert ["flu", "cold"] == list(view.tables[2].names)
    ordered = _task(breakdown=_COUNTRIES)
    _, totals, quantiles = _view(
        ordered, _exact(ordered, (*_SHARES, *[0.0] * 5)), quantiles=(0.5,)
    ).tables
    assert ["DE / 50\N{NO-BREAK SPACE}%"] == list(quantiles.names)
    assert totals.notes[0].endswith("since their share may be 0: 1.")
    assert totals.notes == view.tables[1].notes


def test_a_view_has_tables_columns_and_json_of_the_questions() -> None:
    """With a row per bucket, and per question."""
    task = _task()
    view = _view(task, _exact(task), quantiles=(0.5,), ranges=((1.0, 3.0),))
    fields = json.loads(dumps({**as_json(_exact(task)), **view.fields}))

    assert ["value in s", "users below", "range"] == [table.name for table in view.tables]
    assert ("ordered", [0, 2, 4, 6, 8, 10]) == (fields["kind"], fields["edges"])
    assert (0.5, 5) == (fields["quantiles"][0]["quantile"], fields["quantiles"][0]["estimate"])
    assert (1, 3) == (fields["ranges"][0]["from"], fields["ranges"][0]["to"])
    assert [0.1, 0.3, 0.7, 0.9, 1] == pytest.approx(view.columns["cumulative_share"])
    assert [0, 2, 4, 6, 8] == view.columns["lower_edge"]
    assert {5} == {len(column) for column in view.columns.values()}
    expected = [math.sqrt(3 * k * (5 - k) / 25 / 10_000) for k in range(1, 6)]
    assert expected == pytest.approx(view.columns["cumulative_error"], rel=1e-6)


def test_quantiles_stand_beside_those_of_a_demos_people() -> None:
    """The median of all in the third bucket is its middle; rows keep the order of the edges."""
    task = _task()
    found, truth = _exact(task), np.array([0.0, 0.0, 1.0, 0.0, 0.0])
    people = SamplePeople(kind="ordered", title="", values=[], draft={}, truth=truth)
    shares, quantiles = beside_truth(_view(task, found), found.estimate, task, people).tables

    assert [4.1, 4.5, 5, 5.5, 5.9] == pytest.approx(cast("Vector", quantiles.truth))
    assert [0, 1, 2, 3, 4] == shares.shown


def test_names_of_buckets_tell_them_apart() -> None:
    """With as many digits as needed; groups come first; clipped buckets are open."""
    narrow = EdgesSpec(low=1000.0, high=1000.004, buckets=4, outside="clip")
    task = _task(edges=narrow, breakdown=_COUNTRIES)

    assert ["below 1,000.001", "1,000.001 to 1,000.002"] == value_names(task)[:2]
    assert "FR / from 1,000.003" == item_names(task)[-1]


def test_ranges_are_open_where_numbers_are_clipped() -> None:
    """The name of a range says that it includes the numbers beyond the outermost edge."""
    task = _task(edges=dataclasses.replace(_EDGES, outside="clip"))
    view = _view(task, _exact(task), ranges=((0.0, 4.0), (2.0, 4.0), (4.0, 10.0), (0.0, 10.0)))

    assert ["below 4", "2 to 4", "from 4", "all"] == list(view.tables[2].names)
    assert "outside the edges" in view.tables[2].notes[0]
    for cut in ((1.0, 4.0), (9.0, 10.0)):
        with pytest.raises(SettingsError, match="ends within the first or the last bucket, which"):
            Questions(batch=_exact(task), task=task, ranges=(cut,))
    halves = _task(edges=EdgesSpec(low=0.0, high=1.0, buckets=2, outside="clip"))
    assert Questions(batch=_exact(task), task=halves, ranges=((0.0, 0.5), (0.5, 1.0))).ranges


@pytest.mark.parametrize(
    ("asked", "rule"),
    [
        ({"quantiles": (0.0,)}, "a quantile is 0; it must be above 0 and below 1"),
        ({"quantiles": (0.5, 1.5)}, "a quantile is 1.5"),
        ({"quantiles": (math.nan,)}, "a quantile is nan"),
        ({"ranges": ((3.0, 3.0),)}, "the range 3:3 must ascend and lie between 0 and 10"),
        ({"ranges": ((0.0, 11.0),)}, "the range 0:11 must"),
        ({"ranges": ((math.nan, 3.0),)}, "the range nan:3 must"),
    ],
)
def test_questions_out_of_range_are_refused(asked: dict[str, Any], rule: str) -> None:
    """The message names the number."""
    task = _task()
    with pytest.raises(SettingsError, match=rule):
        Questions(batch=_exact(task), task=task, **asked)


def test_other_data_has_no_quantiles() -> None:
    """A task of labels refuses them; the default questions ask nothing."""
    task = _task(edges=None, labels=("a", "b", "c", "d", "e"))

    assert 1 == len(_view(task, _exact(task)).tables)
    for asked in ({"quantiles": (0.5,)}, {"ranges": ((0.0, 1.0),)}):
        with pytest.raises(SettingsError, match="quantiles and ranges are for ordered data"):
            _view(task, _exact(task), **asked)


def test_the_page_of_an_ordered_result_has_its_curve_and_quantiles() -> None:
    """An accessible drawing, and the table beside it; hostile units and groups are text."""
    task = _task(edges=dataclasses.replace(_EDGES, unit=_UNIT), breakdown=_COUNTRIES)
    found = _exact(task, tuple(share / 2 for share in (*_SHARES, *_SHARES)))
    view = _view(task, found)
    page = result_page(found, task, view)

    assert 2 == page.count('class="curve"')
    assert "Quantiles in [red]&lt;b&gt;" in page
    assert all(f" in {_UNIT}" in printed(partial(print_table, table)) for table in view.tables[::2])
    assert "<b>" not in page
    assert page.index("Quantiles in") < page.index('id="histogram"')


_RUNS: Final = 200
_MANY: Final = {"n_min": 600_000, "target_size": 602_156}
_CITIES: Final = EdgesSpec(spacing="logarithmic", low=100.0, high=1e7, buckets=1024)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("protocol", "changes"),
    [
        ("puredump", {"dummies_per_user": 30.0}),
        ("mixdump", {"local_epsilon": 6.0, "dummies_per_user": 2.0}),
        ("signed", {}),
        ("hierarchy", {"buckets": 16, "dummies_per_user": 3.0}),
        ("hierarchy", {"buckets": 16, "dummies_per_user": 3.0, "breakdown": _COUNTRIES}),
        ("ldp-olh", {"local_epsilon": 4.0, "breakdown": _COUNTRIES}),
    ],
)
def test_intervals_of_quantiles_and_ranges_cover_the_truth(
    protocol: str, changes: dict[str, Any]
) -> None:
    """
    The sizes of 602,156 people's cities, which are skewed and lumpy, in 1,024 buckets.

    A quarter of the people is in the second group, if there are two. Seed 21. Of 1,000 intervals
    of five quantiles in 200 runs, which are correlated as if there were 400, fewer than 88 % or
    more than 99.5 % cover by chance with probability 1e-7; so do the intervals of ranges.
    """
    from shuffledp.deploy.datasets.sample_people import numbers_of  # noqa: PLC0415  # slow to load

    numbers, data, _ = numbers_of(None, 2)
    task = protocol_task(
        protocol, **{"domain_size": 1, "labels": (), "edges": _CITIES, **_MANY, **changes}
    )
    counts, edges = np.histogram(numbers, _CITIES.edges, weights=data.counts)
    groups = [counts.astype(np.int64)]
    if task.groups > 1:
        groups = [groups[0] - groups[0] // 4, groups[0] // 4]
    users, mechanism, rng = np.concatenate(groups), mechanism_of(task), np.random.default_rng(21)
    n_users, ranges = int(users.sum()), [(1e3, 1e4), (2e4, 1e6), (5e5, 1e7)]
    covered: list[list[np.ndarray[Any, np.dtype[np.bool_]]]] = [[], []]
    for _ in range(_RUNS):
        batch = collect(task, mechanism, users, rng, one_by_one=False)
        histogram, _ = estimate_histogram(task, mechanism, batch, n_users)
        own = n_users * task.own_reports
        sizes = {"n_reports": batch.n_reports, "n_dummies": batch.n_reports - own}
        found = result_of(task, estimate=histogram, n_users=n_users, **sizes)
        for each, held in zip(
            Distribution.of_groups(found.histogram, found, task), groups, strict=True
        ):
            below = np.append(0.0, np.cumsum(held)) / held.sum()
            quantiles, shares = each.quantiles(DEFAULT_QUANTILES), each.ranges(ranges)
            truth = np.interp(DEFAULT_QUANTILES, below, edges)
            covered[0].append((quantiles.low <= truth) & (truth <= quantiles.high))
            truth = np.diff(np.interp(np.array(ranges), edges, below), axis=1).ravel()
            covered[1].append((shares.low <= truth) & (truth <= shares.high))

    assert 0.88 < np.mean(covered[0]) < 0.995
    assert 0.88 < np.mean(covered[1]) < 0.995
