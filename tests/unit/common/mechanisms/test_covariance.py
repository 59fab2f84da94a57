"""Exact variances of weighted sums of shares, for every protocol that collects items."""

from typing import Final

import numpy as np
import pytest

from analyzer.finalize import mixture_of
from common.mechanisms.covariance import ShareCovariance
from common.task.task import Task
from deploy.simulate.collection import collect
from tests.support.protocol_tasks import ITEM_PROTOCOLS, protocol_task

_N: Final = 3000
_SLOW: Final = ("ldp-olh-strings",)


def _task(name: str) -> Task:
    return protocol_task(name)


def _users(task: Task, seed: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    rng = np.random.default_rng(seed)
    return rng.multinomial(_N, rng.dirichlet(np.full(task.domain_size, 0.3)))


def _covariance(task: Task, users: np.ndarray[tuple[int], np.dtype[np.int64]]) -> ShareCovariance:
    reports = round(_N * (task.own_reports + task.dummies.expected_per_user))
    mixture = mixture_of(task, _N, counted=reports)
    return ShareCovariance.of(task, users / _N, mixture)


@pytest.mark.parametrize("name", ITEM_PROTOCOLS)
def test_sums_agree_with_single_shares_and_prefixes(name: str) -> None:
    """The diagonal is the variance of each share; prefixes are sums with weights 1 and 0."""
    task = _task(name)
    covariance, size = _covariance(task, _users(task, 4)), task.domain_size
    matrix = np.array([covariance.with_sum(each) for each in np.eye(size)])
    lower = np.tril(np.ones((size, size)))

    assert matrix == pytest.approx(matrix.T, rel=1e-9, abs=1e-15)
    assert covariance.of_shares() == pytest.approx(np.diag(matrix), rel=1e-9, abs=1e-15)
    assert np.zeros(size) == pytest.approx(matrix.sum(axis=0), abs=1e-9 * matrix.max() * size)
    whole = np.einsum("ij,jk,ik->i", lower, matrix, lower)
    assert whole == pytest.approx(covariance.of_prefixes(), rel=1e-9, abs=1e-12)
    assert whole == pytest.approx(covariance.of_sums(lower), rel=1e-9, abs=1e-12)
    if not name.endswith(("warner", "ddps")):
        halves = np.kron(np.eye(2), np.tril(np.ones((size // 2, size // 2))))
        stated = np.einsum("ij,jk,ik->i", halves, matrix, halves)
        if name != "hierarchy":  # whose groups have their own trees
            assert stated == pytest.approx(covariance.of_prefixes(2), rel=1e-9, abs=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("name", ITEM_PROTOCOLS)
def test_sums_vary_as_stated(name: str) -> None:
    """
    A prefix, a difference of halves and random weights, against 2,000 simulated collections.

    Seed 6; some 60 comparisons at 6.5 standard errors each fail by chance with probability 5e-9.
    """
    task, rng, runs = _task(name), np.random.default_rng(6), 300 if name in _SLOW else 2000
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
