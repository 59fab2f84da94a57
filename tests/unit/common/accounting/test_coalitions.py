import math

import pytest

from common.accounting.amplification import epsilon_upper
from common.accounting.coalitions import guarantees, honest_crowd, published_claim
from common.accounting.counts import Binomial
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


def test_a_fractional_number_of_dummies_is_certain_ones_and_a_binomial() -> None:
    """Every refused report may have been an honest user, its dummy, or the one on top."""
    task = published(dummies_per_user=2.5, assumed_honest_fraction=0.9).task

    assert Crowd(users=90, dummies=180, random_dummies=Binomial(90, 0.5)) == honest_crowd(
        task, 100, 0
    )
    assert honest_crowd(task, 100, 10) == Crowd(
        users=80, dummies=160, random_dummies=Binomial(80, 0.5), known_dummies=10
    )
    assert honest_crowd(task, 100, 400) == Crowd(
        users=1, dummies=0, random_dummies=Binomial(1, 0.5), known_dummies=400
    )


@pytest.mark.parametrize(
    ("dummies", "words"),
    [
        (0.0, "add no dummies"),
        (2.0, "add uniform dummies, 2 each"),
        (
            0.5,
            (
                "add one uniform dummy with probability 0.5 (2147483648 in 4294967296), "
                "drawn by each alone"
            ),
        ),
        (
            1.25,
            (
                "add uniform dummies, 1 each and one more with probability 0.25 "
                "(1073741824 in 4294967296), drawn by each alone"
            ),
        ),
    ],
)
def test_the_law_of_the_dummies_is_said_in_words(dummies: float, words: str) -> None:
    """Whoever reads the guarantee knows what honest users do."""
    task = published(dummies_per_user=dummies).task

    assert guarantees(task, 1000, 0)[0].assumptions[1].endswith(words)


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

    assert task.central_epsilon == guarantees(task, 500, 0)[0].epsilon


def test_without_local_noise_nothing_holds_against_shuffler_and_analyzer() -> None:
    """The second guarantee is infinite and says why; the first one is finite all the same."""
    task = published(local_epsilon=math.inf, dummies_per_user=100).task
    central, local = guarantees(task, 5000, 0)

    assert math.isfinite(central.epsilon)
    assert math.inf == local.epsilon
    assert "no local noise" in local.theorem


def test_an_empty_batch_has_no_guarantee() -> None:
    """There is nobody to protect."""
    with pytest.raises(AccountingError):
        honest_crowd(published().task, 0, 0)


def test_the_published_bound_speaks_in_words() -> None:
    """A claim where the theorem holds, the reason where it does not."""
    task = published().task

    assert "would claim epsilon" in published_claim(task, 100_000, 0)
    assert "makes no claim here" in published_claim(task, 20, 0)
    fractional = published(dummies_per_user=1.5).task
    assert "makes no claim here" in published_claim(fractional, 100_000, 0)
