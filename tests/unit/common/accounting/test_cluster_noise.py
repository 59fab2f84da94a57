"""The accountant of clusters: reference figures, enumeration, a recursion, monotonicity."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from shuffledp.common.accounting.cluster_counts import CountGrid, ItemCounts, Room, _window
from shuffledp.common.accounting.cluster_noise import (
    OF_BATCHES,
    OF_CLAIMS,
    ClusterRelease,
    Fineness,
    _Labels,
    _limits,
    _plans,
)
from shuffledp.common.errors import AccountingError
from tests.support.exhaustive_delta import excess, grr_distribution, summed
from tests.support.vectors import vectors

_VECTORS = vectors("signed")
_SUM = 2**32
_TYPES = {(law["epsilon"], *law["sizes"]): law["types"] for law in _VECTORS["laws"]}

Types = tuple[tuple[int, int, float], ...]
Outcomes = Mapping[tuple[int, ...], float]
"""Probabilities of positive counts by item, followed by negative ones."""


def _room(shown: float, filled: float, types: Any) -> Room:
    total = sum(weight for *_, weight in types)
    return Room(shown, filled, tuple((plus, minus, w / total) for plus, minus, w in types))


def _rooms(types: Any, vector: Any) -> tuple[Room, ...]:
    """Return the rooms of a vector: one that everybody shows, or each with the types that fit."""
    if "rooms" not in vector:
        return (_room(1.0, vector["chance_weight"] / _SUM, types),)
    found, below = [], 0
    for room in vector["rooms"]:
        own = [each for each in types if below < each[0] + each[1] <= room["size"]]
        found.append(_room(room["shown_weight"] / _SUM, room["filled_weight"] / _SUM, own))
        below = room["size"]
    return tuple(found)


def _cases() -> Iterator[tuple[dict[str, Any], ClusterRelease]]:
    """Yield each vector with a figure, and its release."""
    for law in _VECTORS["laws"]:
        for kind in ("full", "rooms"):
            vector = {**law, **law[kind]}
            yield vector, _release(vector, _rooms(law["types"], law[kind]))
    for more in _VECTORS["more"]:
        types = _TYPES[more["law"][0], *more["law"][1]]
        yield more, _release(more, _rooms(types, more))


def _release(vector: Any, rooms: tuple[Room, ...]) -> ClusterRelease:
    return ClusterRelease(trials=vector["users"], domain_size=vector["items"], rooms=rooms)


@pytest.mark.parametrize(
    ("vector", "release"),
    [
        pytest.param(*case, marks=[pytest.mark.slow] if case[0].get("epsilon", 1) < 0.5 else [])
        for case in _cases()
    ],
)
def test_reference_figures_are_met(vector: dict[str, Any], release: ClusterRelease) -> None:
    """At least 98% of independent items' δ; at most 2% above the reference, ε within .2% of it."""
    if "epsilon_upper" in vector:
        assert vector["epsilon_upper"] == pytest.approx(release.epsilon(1e-6), rel=2e-3)
    else:
        found = release.delta(vector["epsilon"])
        assert 0.98 * vector["delta_ideal"] <= found <= 1.02 * vector["delta_upper"]


def _views(release: ClusterRelease) -> Iterator[tuple[float, Outcomes]]:
    """Yield each choice of shown rooms: its probability, and the counts of the clusters in them."""
    d, rooms = release.domain_size, release.rooms
    contents: list[Outcomes] = []
    for room in rooms:
        content = {(0,) * 2 * d: 1.0 - room.filled}
        for plus, minus, share in room.types:
            for item in range(d):
                counts = [0] * 2 * d
                counts[item], counts[d + item] = plus, minus
                content[tuple(counts)] = room.filled * share / d
        contents.append(content)
    hidden = 1 - sum(room.shown for room in rooms)
    for shown in itertools.product(range(release.trials + 1), repeat=len(rooms)):
        rest = release.trials - sum(shown)
        if rest < 0:
            continue
        chance = math.factorial(release.trials) / math.factorial(rest) * hidden**rest
        law: Outcomes = {(0,) * 2 * d: 1.0}
        for room, number, of_room in zip(rooms, shown, contents, strict=True):
            chance *= room.shown**number / math.factorial(number)
            for _ in range(number):
                law = summed(law, of_room)
        yield chance, law


def _exact_delta(release: ClusterRelease, epsilon: float) -> float:
    """
    Return the exact δ, all rooms and all counts seen, by enumeration.

    The victim holds item 0 or 1; the others' own reports are known, and subtracted.
    """
    return sum(
        chance * excess((summed(law, _own(item, release.domain_size)) for item in (0, 1)), epsilon)
        for chance, law in _views(release)
    )


def _own(item: int, items: int) -> Outcomes:
    return {tuple(int(place == item) for place in range(2 * items)): 1.0}


def _randomized_delta(release: ClusterRelease, others: tuple[int, ...], epsilon: float) -> float:
    """Return the exact δ if GRR randomizes the victim's item and the others' items, all unknown."""
    d = release.domain_size

    def randomized(value: int) -> Outcomes:
        reports = grr_distribution(value, d, release.local_epsilon).items()
        return {next(iter(_own(item, d))): p for (item,), p in reports}

    among = [*map(randomized, others)]
    return sum(
        chance * excess((summed(law, *among, randomized(item)) for item in (0, 1)), epsilon)
        for chance, law in _views(release)
    )


def _tiny() -> Iterator[ClusterRelease]:
    """Yield every instance of at most three trials and items, with one or two rooms."""
    shares: list[Types] = [
        ((1, 0, 1.0),),
        ((1, 0, 0.5), (0, 1, 0.5)),
        ((1, 0, 0.4), (0, 1, 0.4), (1, 1, 0.2)),
        ((2, 1, 0.8), (2, 0, 0.2)),
    ]
    for trials, items in itertools.product((1, 2, 3), (2, 3)):
        for shown, filled, types in itertools.product((0.5, 0.875, 1.0), (0.25, 0.875), shares):
            yield ClusterRelease(
                trials=trials, domain_size=items, rooms=(Room(shown, filled, types),)
            )
        for filled, other in itertools.product((0.5, 0.875), (0.625, 0.9)):
            rooms = (Room(0.375, filled, shares[1]), Room(0.5, other, shares[3]))
            yield ClusterRelease(trials=trials, domain_size=items, rooms=rooms)


def _without_bins(release: ClusterRelease, epsilon: float) -> float:
    """Return the expected bound over the exact numbers of rooms labelled with each of two items."""
    n, rooms, growth = release.trials, release.rooms, math.exp(epsilon)
    shares = [(1 - room.filled * (1 - 2 / release.domain_size)) / 2 for room in rooms]
    fillings = [
        room.filled / (release.domain_size * share)
        for room, share in zip(rooms, shares, strict=True)
    ]
    grid, most = CountGrid(rooms, fillings, [n] * len(rooms)), 2 * n + 1
    # No cluster has more than two reports of a sign.
    chances = [room.shown * share for room, share in zip(rooms, shares, strict=True)] * 2
    total = 0.0
    for labelled in itertools.product(range(n + 1), repeat=2 * len(rooms)):
        rest = n - sum(labelled)
        if rest < 0:
            continue
        chance = math.factorial(n) / math.factorial(rest) * (1 - sum(chances)) ** rest
        for number, each in zip(labelled, chances, strict=True):
            chance *= each**number / math.factorial(number)
        one, other = (
            _counts(grid, part, (most, most))[0]
            for part in (labelled[: len(rooms)], labelled[len(rooms) :])
        )
        none = np.zeros((1, one.shape[1]))
        with_report, without = (
            np.outer(np.concatenate([none, first]), np.concatenate([second, none]))
            for first, second in ((one, other), (other, one))
        )
        total += chance * np.maximum(with_report - growth * without.T, 0).sum()
    return total


@pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.slow)])
def test_no_tiny_instance_has_a_larger_delta(step: int) -> None:
    """Over 168 instances at three ε, each enumerated with all rooms, items and lengths seen."""
    for release in itertools.islice(_tiny(), 0, None, step):
        for epsilon in (0.1, 0.5, 1.5):
            expected = _without_bins(release, epsilon)
            assert _exact_delta(release, epsilon) <= expected + 1e-12
            assert expected <= release.delta(epsilon) + 1e-12


@pytest.mark.parametrize(
    ("local_epsilon", "most"),
    [(1.0, 2), *(pytest.param(epsilon, 3, marks=pytest.mark.slow) for epsilon in (1.0, 3.0))],
)
def test_no_tiny_instance_with_local_noise_has_a_larger_delta(
    local_epsilon: float, most: int
) -> None:
    """One to three users of any values, against s times the bound without noise."""
    types: tuple[Types, ...] = (((1, 0, 0.5), (0, 1, 0.5)), ((2, 1, 0.8), (2, 0, 0.2)))
    cases = itertools.product(range(1, most + 1), (2, 3), (0.5, 1.0), (0.25, 0.875), types)
    for n, d, shown, filled, of_room in cases:
        signal = math.expm1(local_epsilon) / (math.exp(local_epsilon) + d - 1)
        plain = ClusterRelease(trials=n, domain_size=d, rooms=(Room(shown, filled, of_room),))
        release = replace(plain, signal=signal, local_epsilon=local_epsilon)
        for epsilon in (0.1, 0.5, 1.5):
            inner = math.log1p(math.expm1(epsilon) / signal)
            expected = signal * _without_bins(plain, inner) if epsilon < local_epsilon else 0.0
            for others in itertools.combinations_with_replacement(range(d), n - 1):
                assert _randomized_delta(release, others, epsilon) <= expected + 1e-12
            assert expected <= release.delta(epsilon) + 1e-12


def test_local_noise_lowers_the_bound_as_it_lowers_the_tiny_ones() -> None:
    """With 4,000 users, where bins cost little; and nothing is left from the local ε on."""
    room = _room(1.0, 0.1, _VECTORS["laws"][5]["types"])
    plain = ClusterRelease(trials=4000, domain_size=60, rooms=(room,))
    noisy = replace(plain, signal=0.8, local_epsilon=5.5)
    expected = 0.8 * plain.delta(math.log1p(math.expm1(1.0) / 0.8))

    assert noisy.delta(1.0) == pytest.approx(expected, rel=1e-7)
    assert noisy.delta(1.0) < 0.8 * plain.delta(1.0)
    assert (0.0, True) == (noisy.delta(5.5), noisy.delta(5.4) > 0)


@pytest.mark.slow
def test_an_attack_on_the_whole_protocol_comes_close_to_the_bound() -> None:
    """
    The likelihood-ratio event on the victim's two items, among 4,000 users and 60 items.

    Clusters are drawn as devices draw them (test_contribution.py); the event takes the counts on
    the two items as independent, by Panjer's recursion. Seed 8; were the bound exact, the
    test would fail by chance with probability 1e-6.
    """
    law, users, items, epsilon, filled = _VECTORS["laws"][5], 4000, 60, 1.0, 0.1
    room, batches, size = _room(1.0, filled, law["types"]), 1_000_000, 160
    bound = ClusterRelease(
        trials=users, domain_size=items, rooms=(room,), fineness=OF_BATCHES
    ).delta(epsilon)
    rates = {(i, j): users / items * filled * share for i, j, share in room.types}
    own = np.zeros((size + 1, size))  # the last row, place -1, stays 0
    own[0, 0] = math.exp(-sum(rates.values()))
    for k, m in itertools.islice(np.ndindex(size, size), 1, None):
        fitting = ((i, j, rate) for (i, j), rate in rates.items() if i <= k and j <= m)
        terms = ((i if k else j) * rate * own[k - i, m - j] for i, j, rate in fitting)
        own[k, m] = sum(terms) / (k or m)

    chances = [filled * share / items for *_, share in room.types]
    drawn = np.random.default_rng(8).multinomial(
        users, [*chances, *chances, 1 - 2 * sum(chances)], batches
    )
    counts = drawn[:, :-1].reshape(batches, 2, -1) @ [each[:2] for each in room.types]

    def seen(*added: int) -> NDArray[np.bool_]:
        (a, b), (c, d) = (counts + np.stack([added, (0, 0)], axis=1)).transpose(1, 2, 0)
        return np.asarray(own[a - 1, b] * own[c, d] > math.exp(epsilon) * own[a, b] * own[c - 1, d])

    excess = seen(1, 0) - math.exp(epsilon) * seen(0, 1)
    reach = 4.76 * excess.std() / math.sqrt(batches)

    assert 0.05 < bound < 0.15
    assert 0.85 * bound < excess.mean() - reach < bound


@pytest.mark.parametrize("vector", _VECTORS["tiny"])
def test_tiny_reference_figures_are_met(vector: dict[str, Any]) -> None:
    """Both enumerations here agree with independent ones."""
    rooms = tuple(_room(room["shown"], room["filled"], room["types"]) for room in vector["rooms"])
    trials, epsilon = vector["users"] * vector["trials"], vector["epsilon"]
    release = ClusterRelease(trials=trials, domain_size=vector["items"], rooms=rooms)

    assert vector["delta_bound_without_bins"] <= release.delta(epsilon) * (1 + 1e-9)
    if trials <= 4 and vector["items"] <= 3:
        without = pytest.approx(_without_bins(release, epsilon), rel=1e-9)
        assert vector["delta_bound_without_bins"] == without
        exact = pytest.approx(_exact_delta(release, epsilon), rel=1e-9)
        assert vector["delta_true_lengths_seen"] == exact


def _counts(
    grid: CountGrid, numbers: Sequence[int], shape: tuple[int, int]
) -> tuple[NDArray[np.float64], float]:
    """Return the probabilities of positive and negative counts, and their error."""
    found, error = grid.probabilities(numbers)
    positive, negative = np.indices(shape)
    law = np.zeros(shape)
    places = [
        a * positive + b * negative - first
        for (a, b), (first, _) in zip(grid._axes, grid._windows(numbers), strict=True)
    ]
    inside = np.all(
        [(place >= 0) & (place < size) for place, size in zip(places, found.shape, strict=True)],
        axis=0,
    )
    law[inside] = found[places[0][inside], places[1][inside]]
    return law, error


def _distribution(
    room: Room, filling: float, n: int, shape: tuple[int, int]
) -> tuple[NDArray[np.float64], float]:
    """Return the counts of n labelled rooms, and their error."""
    return _counts(CountGrid([room], [filling], [n]), [n], shape)


def test_a_law_agrees_with_a_recursion_of_positive_terms() -> None:
    """Rooms are added one by one, without subtraction or transform."""
    types: Types = ((3, 1, 0.5), (1, 0, 0.3), (0, 1, 0.15), (0, 2, 0.05))
    room, n, filling = Room(1.0, 0.9, types), 400, 0.05
    height, width = 180, 60
    found, _ = _distribution(room, filling, n, (height, width))
    expected = np.zeros((height, width))
    expected[0, 0] = 1.0
    for _ in range(n):  # one room after the other
        before, expected = expected, (1 - filling) * expected
        for plus, minus, share in types:
            more = before[: height - plus, : width - minus]
            expected[plus:, minus:] += filling * share * more

    assert np.abs(found - expected).sum() < 1e-12


@pytest.mark.parametrize(
    ("n", "filling"), [(400, 0.05), (3000, 0.99), (600_000, 0.002), (10**7, 0.002), (10**9, 1e-7)]
)
def test_a_laws_error_is_within_its_charge(n: int, filling: float) -> None:
    """With one type of cluster, the number of positive reports is binomial."""
    grid = CountGrid([Room(1.0, 0.9, ((1, 0, 1.0),))], [filling], [n])
    found, error = grid.probabilities([n])
    axes = list(zip(grid._axes, grid._windows([n]), strict=True))
    [first] = [first for axis, (first, _) in axes if axis[0]]
    expected = stats.binom.pmf(first + np.arange(found.size), n, filling).reshape(found.shape)

    assert np.abs(found - expected).sum() < error


def test_the_error_of_a_wide_grid_is_within_its_charge() -> None:
    """Nearly all clusters are (1, 1), a few (1, 0): a binomial number of pairs, and a few more."""
    n, filling, few = 2000, 0.95, 2.0**-10
    room = Room(1.0, 0.95, ((1, 1, 1 - few), (1, 0, few)))
    found, error = _distribution(room, filling, n, (n + 31, n + 31))
    more, negative = np.arange(30), np.arange(n + 1)
    pairs = stats.binom.pmf(negative, n, filling * (1 - few))
    missing = 0.0
    for number in more:
        left = n - negative
        lone = stats.binom.pmf(number, left, filling * few / (1 - filling * (1 - few)))
        missing += np.abs(found[negative + number, negative] - pairs * lone).sum()
        found[negative + number, negative] = 0.0

    assert 0.02 * error < missing + found.sum() < 0.5 * error


def test_more_trials_and_a_larger_epsilon_never_raise_delta() -> None:
    """Other users can only help."""
    law = _VECTORS["laws"][5]
    rooms = _rooms(law["types"], law["rooms"])
    numbers = (100_000, 300_000, 602_325, 2_000_000)
    table = np.array(
        [
            [_release({"users": n, "items": 915}, rooms).delta(epsilon) for n in numbers]
            for epsilon in (0.0, 0.3, 1.0, 1.2, 5.0, 20.0)
        ]
    )

    assert (np.diff(table, axis=0) <= 0).all()
    assert (np.diff(table[:4], axis=1) < 0).all()
    assert table[-1, -1] < 1e-10
    tiny = _release({"users": 2_000_000, "items": 915}, rooms).epsilon(1e-10)
    assert 0.3 < tiny < 3  # found although the transform's error grows with ε


_USUAL: Types = ((1, 0, 0.5), (0, 1, 0.3), (1, 1, 0.2))
_ODD: Types = ((2, 1, 0.6), (3, 0, 0.4))
_RARE: dict[str, tuple[Room, ...]] = {
    "rare rooms of the types that hide": (Room(0.01, 0.5, _USUAL), Room(0.5, 0.9, _ODD)),
    "rare rooms of other types": (Room(0.2, 0.5, _USUAL), Room(0.002, 0.9, _ODD)),
    "three sizes": (
        Room(0.1, 0.3, _USUAL), Room(0.01, 0.9, _ODD), Room(0.001, 0.5, ((5, 1, 1.0),))
    ),
    "one size": (Room(0.01, 0.5, _USUAL),),
}  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if len(rooms) > 1 else ())
        for name, rooms in _RARE.items()
    ],
)
def test_one_more_user_never_raises_delta(name: str) -> None:
    """
    But for the error of the grid of ratios: at each end of a kind of bound, and between.

    Without bounds that end before the charge for rounding rises, δ rises by half at 7,984 trials.
    """
    labels, few = _Labels(2, _RARE[name]), np.geomspace(100, 9_000, 12).astype(int)
    ends = {end for end, *_ in _limits(labels, OF_CLAIMS) if end < few[-1]}
    numbers = sorted({*few.tolist(), 7_795, 7_984, *ends, *(end + 1 for end in ends)})
    releases = [ClusterRelease(trials=n, domain_size=2, rooms=_RARE[name]) for n in numbers]
    for epsilon in (0.5, 1.0):
        found = np.array([release.delta(epsilon) for release in releases])

        assert (np.diff(found) <= 2e-4 * found[:-1]).all()  # the error of the grid of ratios
        assert found[-1] < 0.1 * found[0]


@pytest.mark.parametrize("name", _RARE)
def test_fewer_rooms_than_a_bins_edges_are_as_rare_as_stated(name: str) -> None:
    """By SciPy's binomial distribution, for each bin of each kind of bound."""
    labels, rooms = _Labels(915, _RARE[name]), _RARE[name]
    for trials, fineness, stretch in sorted(_limits(labels, Fineness(2**14, 2**6))):
        weights, below = labels.bins(min(trials, 10**6), fineness, stretch)
        stated = math.fsum(weights.values())
        assert stated + below == pytest.approx(1.0, abs=1e-12)
        for edges, weight in weights.items():
            stated -= weight
            counts = zip(rooms, edges, strict=True)
            shares = [(room.shown * (1 - room.filled * (1 - 2 / 915)) / 2, m) for room, m in counts]
            fewer = sum(stats.binom.cdf(m - 1, min(trials, 10**6), p) for p, m in shares)
            assert 2 * fewer <= (stated + below) * (1 + 1e-6) + 1e-15


def test_outcomes_that_tell_the_items_apart_are_charged_once() -> None:
    """The sum over both items' counts, of which many are possible for one value only."""
    law = np.array([[0.5, 0.15], [0.25, 0.1], [0.0, 0.0]])
    more = np.roll(law, 1, axis=0)
    with_report, without = (
        np.outer(*(each.ravel() for each in both)) for both in ((more, law), (law, more))
    )
    for epsilon in (0.1, 0.5, 2.0):
        exact = np.maximum(with_report - math.exp(epsilon) * without, 0.0).sum()
        assert exact == pytest.approx(ItemCounts(law, 0.0, (1, 0)).delta(epsilon), abs=1e-11)


@pytest.mark.slow
@pytest.mark.parametrize(("law", "kind"), [(5, "rooms"), (4, "full"), (6, "rooms")])
@pytest.mark.parametrize("delta", [1e-6, 1e-10])
def test_more_users_never_raise_epsilon(law: int, kind: str, delta: float) -> None:
    """
    From one more user to 400 times as many, where the grid or rounding limits the trials.

    The search for ε is precise to 1e-5.
    """
    vector = _VECTORS["laws"][law]
    rooms = _rooms(vector["types"], vector[kind])
    factors = (1, 1.00001, 1.0003, 1.001, 1.004, 1.01, 1.1, 10, 60, 400)
    found = np.array(
        [
            _release({"users": int(2_000_000 * factor), "items": 915}, rooms).epsilon(delta)
            for factor in factors
        ]
    )

    assert (np.diff(found) <= 2e-5 * found[:-1]).all()
    assert found[-1] < 0.6 * found[0]


@pytest.mark.slow
@pytest.mark.parametrize("fineness", [OF_CLAIMS, OF_BATCHES])
@pytest.mark.parametrize("local_epsilon", [math.inf, 5.5])
def test_a_device_can_check_the_dearest_clusters(local_epsilon: float, fineness: Fineness) -> None:
    """No grid has more cells than the limit, and axes need not reach the mean."""
    clusters: Types = ((255, 254, 0.3), (1, 0, 0.3), (0, 1, 0.4))
    rooms = tuple(_room(share, 0.95, clusters) for share in (0.3, 0.3, 0.4))
    release = ClusterRelease(
        trials=10**9, domain_size=2, rooms=rooms, local_epsilon=local_epsilon, fineness=fineness
    )
    for plan in _plans(release.trials, release.domain_size, release.rooms, fineness):
        assert plan._labels.grid(plan.trials).cells <= fineness.cells
    assert 0 < release.delta(0.5) <= 1


def test_axes_follow_clusters_that_nearly_cancel() -> None:
    """Ten positive reports for one negative: the grid is a quarter of the counts' rectangle."""
    room = Room(1.0, 0.9, ((10, 1, 0.9), (1, 0, 0.05), (0, 1, 0.05)))
    grid = CountGrid([room], [0.01], [100_000])
    (first, second), numbers = grid._axes, [100_000]
    ends = [_window([room], [0.01], numbers, axis) for axis in ((1, 0), (0, 1))]
    rectangle = math.prod(end - start for start, end in ends)

    assert 1 == abs(first[0] * second[1] - first[1] * second[0])
    assert 4 * grid.cells < rectangle


def test_trials_beyond_the_largest_grid_are_not_counted() -> None:
    """A batch may have many times n_min users: δ stays below that of fewer, and is found."""
    law = _VECTORS["laws"][5]
    plain = replace(
        _release({"users": 602_325, "items": 915}, _rooms(law["types"], law["rooms"])),
        fineness=Fineness(2**17, 2**9),
    )
    deltas = [
        replace(plain, trials=int(users * plain.trials)).delta(0.9) for users in (0.5, 1, 50, 1500)
    ]

    assert deltas[0] > deltas[1] >= max(deltas[2:])
    widest = (Room(1.0, 0.9, ((255, 0, 0.5), (0, 255, 0.5))),)
    assert 0 < ClusterRelease(trials=10**6, domain_size=2, rooms=widest).delta(1.0) <= 1
    with pytest.raises(AccountingError, match="epsilon is nan"):
        ClusterRelease(trials=9, domain_size=2, rooms=widest).delta(math.nan)


def test_a_finer_bound_is_smaller() -> None:
    """Finer bins gain where rooms are few, and a larger grid where trials exceed it."""
    room = _room(1.0, 0.1, _VECTORS["laws"][5]["types"])
    few, many = (
        [
            ClusterRelease(
                trials=trials, domain_size=60, rooms=(room,), fineness=Fineness(*sizes)
            ).delta(0.5)
            for sizes in ((2**13, 0), (2**14, 0), (2**14, 2**14))
        ]
        for trials in (2000, 100_000)
    )

    assert few[0] == few[1] > few[2] > 0
    assert 0.8 * many[0] > many[1] >= many[2] > 0
