"""Exact variances of weighted sums of shares, for every protocol that collects items."""

import dataclasses
import itertools
from typing import Any, Final

import numpy as np
import pytest

from examples.subset_selection import SubsetSelection
from shuffledp.analyzer.finalize import mixture_of
from shuffledp.common.mechanisms.base import Mixture, Vector
from shuffledp.common.mechanisms.covariance import ShareCovariance
from shuffledp.common.mechanisms.weights import ResponseWeights
from shuffledp.common.task.task import Task
from shuffledp.lab.simulate.collection import collect
from tests.support.protocol_tasks import ITEM_PROTOCOLS, protocol_task

_N: Final = 3000
_RUNS: Final = {"ldp-olh-strings": 300, "hierarchy": 500}
"""Simulated collections, where each takes long; else 2,000."""


def _users(task: Task, seed: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    rng = np.random.default_rng(seed)
    return rng.multinomial(_N, rng.dirichlet(np.full(task.domain_size, 0.3)))


def _covariance(task: Task, users: np.ndarray[tuple[int], np.dtype[np.int64]]) -> ShareCovariance:
    reports = round(_N * (task.own_reports + task.dummies.expected_per_user))
    mixture = mixture_of(task, _N, counted=reports)
    return ShareCovariance.of(task, users / _N, mixture)


def _with_share(covariance: ShareCovariance, item: int) -> Vector:
    """Return each share's covariance with an item's, by the weights of `summing_to_one`."""
    c, total = covariance.correction, covariance._with_total
    debiased = covariance._debiased_with(np.eye(len(c))[item])
    return np.asarray(debiased - c * total[item] - (total - c * total.sum()) * c[item])


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name == "od-hp" else ())
        for name in ITEM_PROTOCOLS
    ],
)
def test_sums_agree_with_single_shares_and_prefixes(name: str) -> None:
    """The diagonal is the variance of each share; prefixes are sums with weights 1 and 0."""
    task = protocol_task(name)
    covariance, size = _covariance(task, _users(task, 4)), task.domain_size
    matrix = np.array([_with_share(covariance, item) for item in range(size)])
    lower = np.tril(np.ones((size, size)))

    assert matrix == pytest.approx(matrix.T, rel=1e-9, abs=1e-15)
    assert covariance.of_shares() == pytest.approx(np.diag(matrix), rel=1e-9, abs=1e-15)
    assert np.zeros(size) == pytest.approx(matrix.sum(axis=0), abs=1e-9 * matrix.max() * size)
    whole = np.einsum("ij,jk,ik->i", lower, matrix, lower)
    assert whole == pytest.approx(covariance.of_prefixes(), rel=1e-9, abs=1e-12)
    assert whole == pytest.approx(covariance.of_sums(lower), rel=1e-9, abs=1e-12)
    if not name.endswith(("warner", "ddps")):
        grouped = dataclasses.replace(covariance, groups=2)
        halves = np.kron(np.eye(2), np.tril(np.ones((size // 2, size // 2))))
        stated = np.einsum("ij,jk,ik->i", halves, matrix, halves)
        if name != "hierarchy":  # whose groups have their own trees
            assert stated == pytest.approx(grouped.of_prefixes(), rel=1e-9, abs=1e-12)
        own = np.kron(np.eye(2), np.ones((size // 2, size // 2)))
        expected = (matrix * own).sum(axis=1)
        assert expected == pytest.approx(grouped.with_group_totals(), rel=1e-9, abs=1e-15)


@pytest.mark.parametrize("name", ["puredump", "sageo"])
def test_shares_of_any_sum_are_corrected(name: str) -> None:
    """Evenly, also if a batch of these reports should sum to 1 without it."""
    task = protocol_task(name)
    covariance = _covariance(task, _users(task, 4))
    shares = np.arange(task.domain_size) / task.domain_size

    corrected = covariance.summing_to_one(shares)
    assert 1 == pytest.approx(corrected.sum(), rel=1e-12)
    assert np.ptp(corrected - shares) < 1e-9


@pytest.mark.parametrize("mixture", [Mixture(n_real=50), Mixture(n_real=9, n_dummies=4)])
@pytest.mark.parametrize("items", [2, 3, 8, 10])
def test_a_mechanism_without_a_channel_states_exact_covariances(
    items: int, mixture: Mixture
) -> None:
    """Of subset selection, from the probability of each set; sums of counts are constant."""
    mechanism = SubsetSelection(items, ResponseWeights(true=3, other=1))
    sets = list(itertools.combinations(range(items), mechanism.size))
    named = np.array([[item in one for item in range(items)] for one in sets], dtype=np.float64)
    shares = np.arange(items) / sum(range(items))
    found = np.zeros((items, items))
    for item in range(items):
        chances = np.where(named[:, item] == 1, 3.0, 1.0)
        chances /= chances.sum()
        mean = chances @ named
        found += mixture.n_real * shares[item] * (named.T * chances @ named - np.outer(mean, mean))
    mean = named.mean(axis=0)
    found += mixture.n_dummies * (named.T @ named / len(sets) - np.outer(mean, mean))
    found /= (mixture.n_real * (mechanism.p - mechanism.q)) ** 2
    covariance = ShareCovariance.of_mechanism(mechanism, shares, mixture)
    lower = np.tril(np.ones((items, items)))

    stated = np.array([covariance._debiased_with(row) for row in np.eye(items)])
    assert found == pytest.approx(stated, rel=1e-9, abs=1e-12)
    expected = np.einsum("ij,jk,ik->i", lower, found, lower)
    assert expected == pytest.approx(covariance.of_prefixes(), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize(
    ("name", "size", "groups"),
    [
        pytest.param("ldp-olh", 4_096, 64, marks=pytest.mark.slow),
        ("ldp-sw", 2_048, 1),
        pytest.param("ldp-olh", 4_096, 1, marks=pytest.mark.slow),
        pytest.param("ldp-olh", 4_096, 3, marks=pytest.mark.slow),
    ],
)
def test_interpolated_prefixes_follow_the_exact_ones(name: str, size: int, groups: int) -> None:
    """
    Of skewed shares, and of one spike in each group; between prefixes that are computed exactly.

    The standard error of a prefix is then exact to 5 %, and that of square waves exact.
    """
    fields: dict[str, Any] = {"domain_size": size // groups * groups, "labels": ()}
    task = protocol_task(name, **fields, local_epsilon=5.0)
    size, rng = task.domain_size, np.random.default_rng(4)
    skewed = np.random.default_rng(3).zipf(1.5, size).clip(max=size) * 1.0
    spikes = np.ones(size)
    spikes[size // groups // 3] = 4 * size
    for shares in (skewed, spikes):
        users = np.rint(shares / shares.sum() * 40 * size).astype(np.int64)
        covariance = dataclasses.replace(
            _covariance(task, users), shares=users / users.sum(), groups=groups
        )
        places = np.append(np.arange(6), rng.integers(size, size=6))
        first = places // (size // groups) * (size // groups)
        items = np.arange(size)
        prefixes = (items >= first[:, np.newaxis]) & (items <= places[:, np.newaxis])
        expected = covariance.of_sums(prefixes.astype(np.float64))
        found = covariance.of_prefixes()[places]
        assert expected == pytest.approx(found, rel=0.11 if name == "ldp-olh" else 1e-6)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name == "hierarchy" else pytest.mark.slow)
        for name in ITEM_PROTOCOLS
    ],
)
def test_sums_vary_as_stated(name: str) -> None:
    """
    A prefix, a difference of halves and random weights, against many simulated collections.

    Seed 6; some 60 comparisons at 6.5 standard errors each fail by chance with probability 5e-9.
    """
    task, rng, runs = protocol_task(name), np.random.default_rng(6), _RUNS.get(name, 2000)
    size, users = task.domain_size, _users(task, 5)
    weights = np.zeros((3, size))
    weights[0, : size // 3 + 1] = 1
    weights[1] = np.where(np.arange(size) < size // 2, 0.5, -0.5)
    weights[2] = rng.normal(size=size)
    found = []
    for _ in range(runs):
        covariance = _covariance(task, users)
        counts = collect(task, covariance.mechanism, users, rng, one_by_one=False)
        mixture = mixture_of(task, _N, counted=counts.n_reports)
        exact = ShareCovariance.of(task, users / _N, mixture)
        shares = exact.summing_to_one(covariance.mechanism.debias(counts.cells, mixture))
        stated = exact.of_sums(weights)
        found.append(weights @ (shares - users / _N) / np.sqrt(stated))
    scores = np.array(found)

    assert (np.abs(scores.mean(axis=0)) < 6.5 / np.sqrt(runs)).all()
    assert np.ones(3) == pytest.approx((scores**2).mean(axis=0), abs=6.5 * np.sqrt(2 / runs) * 1.1)
