"""The least-squares estimate over a tree of histograms, and its variances."""

import numpy as np
import pytest

from shuffledp.common.errors import ReportError, ValueRangeError
from shuffledp.common.mechanisms.base import MechanismRequest, Mixture
from shuffledp.common.mechanisms.hierarchy import Hierarchy
from shuffledp.common.mechanisms.views import View
from shuffledp.common.messages.submission import plain_reports
from shuffledp.common.task.specs import hierarchy_sizes


def _hierarchy() -> Hierarchy:
    """Return an irregular tree: for each of three groups 3 and 7 nodes, the third of one child."""
    return Hierarchy(views=View.averaging(2.75, hierarchy_sizes(7, 3, 3)), fan_out=3, groups=3)


def _incidence() -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Return which of the 30 nodes, the coarsest first, hold each of the 21 buckets."""
    rows = [
        [float(item // 7 == node // 3 and item % 7 // 3 == node % 3) for item in range(21)]
        for node in range(9)
    ]
    return np.array([*rows, *np.eye(21).tolist()])


def test_the_estimate_is_that_of_dense_least_squares() -> None:
    """
    On an irregular tree with groups: weighted by variances, with the number of users known.

    The solution has all 21 shares free except that they sum to the number of users.
    """
    mechanism, rng = _hierarchy(), np.random.default_rng(1)
    cells, incidence = rng.integers(0, 50, 30), _incidence()
    found = mechanism.debias(cells, Mixture(n_real=100.0)) * 100

    each = [view.dummies.expected_per_user / view.size for view in mechanism.views]
    spread = np.repeat(np.sqrt(each), mechanism.sizes)
    target = np.concatenate(
        [part - (part.sum() - 100) / len(part) for part in np.split(cells.astype(float), [9])]
    )
    # The last share is 100 minus the others.
    free = np.vstack([np.eye(20), -np.ones(20)])
    last = np.append(np.zeros(20), 100.0)
    solved, *_ = np.linalg.lstsq(
        incidence @ free / spread[:, None], (target - incidence @ last) / spread, rcond=None
    )

    assert free @ solved + last == pytest.approx(found, abs=1e-9)
    assert 100 == pytest.approx(found.sum())


def test_without_users_dummies_none_are_drawn() -> None:
    """Shufflers may add all dummies."""
    views = View.averaging(0.0, hierarchy_sizes(7, 3, 3))

    assert 0 == len(Hierarchy(views, 3, 3).dummies(0, np.random.default_rng(1)))


def test_covariances_agree_with_variances_and_prefixes() -> None:
    """The diagonal, prefixes within groups, and a total without error."""
    mechanism, mixture = _hierarchy(), Mixture(n_real=50.0, n_dummies=50 * 2.75)
    matrix = np.array([mechanism.covariances_with(each, each, mixture) for each in np.eye(21)])
    prefix = np.kron(np.eye(3), np.tril(np.ones((7, 7))))

    assert matrix == pytest.approx(matrix.T)
    assert mechanism.variance(np.zeros(21), mixture) == pytest.approx(np.diag(matrix))
    expected = np.einsum("ij,jk,ik->i", prefix, matrix, prefix)
    assert expected == pytest.approx(mechanism.prefix_variances(50.0))
    assert np.zeros(21) == pytest.approx(matrix.sum(axis=0), abs=1e-12)


def test_errors_are_those_of_the_dummies_that_arrived() -> None:
    """
    Three times as many as a task asks for: squared errors of 400 collections are as stated.

    Seed 4; they are within five standard errors, which chance exceeds with probability below 1e-6.
    """
    mechanism, rng, users = _hierarchy(), np.random.default_rng(4), np.repeat(np.arange(21), 10)
    cells = mechanism.tally(mechanism.randomize(users, rng))
    mixture = Mixture(n_real=210.0, n_dummies=3 * 210 * 2.75)
    drawn = (cells + mechanism.sample_dummies(3 * 210, rng) for _ in range(400))
    off = np.array([mechanism.debias(each, mixture) - 1 / 21 for each in drawn])
    ratios = (off**2 / mechanism.variance(np.zeros(21), mixture)).mean(axis=1)
    prefixes = (off[:, :7].cumsum(axis=1) ** 2).mean(axis=0)
    stated = mechanism.variances_of_prefixes(np.zeros(21), mixture, 3)[:7]
    usual = Mixture(n_real=210.0, n_dummies=210 * 2.75)
    wide, narrow = (mechanism.interval_table(each).errors[0] for each in (mixture, usual))

    assert 1 == pytest.approx(ratios.mean(), abs=5 * ratios.std() / 20)
    assert stated == pytest.approx(prefixes, rel=0.35)
    assert 3 == pytest.approx((wide / narrow) ** 2, rel=1e-3)


def test_a_user_reports_a_node_of_each_level() -> None:
    """Item 11, the fifth bucket of the second group, is in that group's second node."""
    mechanism = _hierarchy()
    reports = mechanism.randomize(np.array([11, 0]), np.random.default_rng(1))

    assert [4, 9 + 11, 0, 9] == reports["item"].tolist()
    assert [1, 0, 0, 0, 1, 0, 0, 0, 0] == mechanism.tally(reports)[:9].tolist()
    assert [True, True, False, False] == mechanism.supports(reports, 11).tolist()
    with pytest.raises(ValueRangeError):
        mechanism.randomize(np.array([21]), np.random.default_rng(1))


def test_dummies_are_uniform_nodes_of_their_level() -> None:
    """As many of each level as asked, and every node of it."""
    mechanism, rng = _hierarchy(), np.random.default_rng(3)
    cells = mechanism.tally(mechanism.view_dummies([900, 2100], rng))

    assert [900, 2100] == [part.sum() for part in np.split(cells, [9])]
    # Seed 3; a node with 100 expected has below 40 with probability 1e-11.
    assert cells.min() > 40
    assert 50 == len(mechanism.dummies(50, rng))
    assert mechanism.valid(mechanism.dummies(50, rng)).all()


def test_reports_of_no_node_are_refused() -> None:
    """There are 30 nodes."""
    mechanism, reports = _hierarchy(), plain_reports(np.array([29, 30]))

    assert [True, False] == mechanism.valid(reports).tolist()
    with pytest.raises(ReportError, match="a report's number is not below 30"):
        mechanism.tally(reports)


@pytest.mark.parametrize(("buckets", "levels"), [(2, 5), (3, 4), (30, 1), (99, 1)])
def test_a_hierarchy_ends_where_a_group_has_few_nodes(buckets: int, levels: int) -> None:
    """A fan-out of at least the number of buckets is a flat histogram."""
    request = MechanismRequest(
        name="hierarchy", domain_size=30, buckets=buckets, local_epsilon=float("inf")
    )
    spec = Hierarchy.specify(request)

    assert (levels, min(buckets, 30)) == (spec.digits, spec.buckets)
