import pytest

from common.accounting.amplification import epsilon_upper
from common.accounting.coalitions import guarantees, honest_crowd, published_claim
from common.accounting.crowd import Crowd
from common.errors import AccountingError
from common.mechanisms.catalogue import mechanism_of
from tests.support.tasks import published


def test_every_batch_states_both_guarantees() -> None:
    """Against the analyzer, and against shuffler and analyzer; both with all they rest on."""
    task = published().task
    central, local = guarantees(task, 5000, 0)

    assert ("analyzer", "shuffler+analyzer") == (central.coalition, local.coalition)
    assert (task.delta, 0.0) == (central.delta, local.delta)
    assert task.local_epsilon == local.epsilon
    assert 0 < central.epsilon < local.epsilon
    for guarantee in (central, local):
        assert "replace-one" in guarantee.neighbouring
        assert guarantee.theorem
        assert guarantee.assumptions


def test_the_crowd_is_the_honest_users_of_the_batch_that_arrived() -> None:
    """⌊n·fraction⌋ less the refused, and as many dummies each; never the planned number."""
    task = published(dummies_per_user=3, assumed_honest_fraction=0.9).task

    assert Crowd(users=90, dummies=270) == honest_crowd(task, 100, 0)
    assert Crowd(users=80, dummies=240) == honest_crowd(task, 100, 10)
    assert Crowd(users=1, dummies=0) == honest_crowd(task, 100, 400)
    assert Crowd(users=1, dummies=2) == honest_crowd(task, 1, 1)
    assert Crowd(users=1, dummies=3) == honest_crowd(task, 100, 95)


def test_refused_reports_cost_privacy() -> None:
    """Each may have been another user's."""
    task = published().task

    assert guarantees(task, 1000, 200)[0].epsilon > guarantees(task, 1000, 0)[0].epsilon


def test_the_central_epsilon_is_formula_1s() -> None:
    """For the mechanism's integer weights."""
    task = published().task
    expected = epsilon_upper(
        mechanism_of(task).reduction, Crowd(users=1000, dummies=1000), task.delta
    )

    assert expected == guarantees(task, 1000, 0)[0].epsilon


def test_the_task_claims_what_holds_at_n_min() -> None:
    """Users are promised the worst batch that can be released."""
    task = published(n_min=500, target_size=500).task

    holds = guarantees(task, 500, 0)[0].epsilon
    assert holds <= task.central_epsilon <= 1.001 * holds


def test_an_empty_batch_has_no_guarantee() -> None:
    """There is nobody to protect."""
    with pytest.raises(AccountingError):
        honest_crowd(published().task, 0, 0)


def test_the_published_bound_speaks_in_words() -> None:
    """A claim where the theorem holds, the reason where it does not."""
    task = published().task

    assert "would claim epsilon" in published_claim(task, 100_000, 0)
    assert "makes no claim here" in published_claim(task, 20, 0)
