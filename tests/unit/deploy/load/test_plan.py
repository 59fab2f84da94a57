"""The plan of a load run: rates, ramps, arrivals, behaviours and drafts."""

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from shuffledp.common.errors import PlanError
from shuffledp.common.task.task import Task
from shuffledp.deploy.load.behaviour import Behaviour, LoadPlan, Tally, arrivals
from shuffledp.deploy.load.scenario import LoadTarget, Ramp
from shuffledp.deploy.load.target import load_draft, unpublished
from shuffledp.deploy.tasks.drafts import as_toml, read
from tests.support.chains import COINS, chain
from tests.support.tasks import draft

_DRAFT = """domain_size = 3
local_epsilon = 4.0
delta = 1e-6
n_min = 1900
target_size = 2500
deadline = 2030-01-31T12:00:00Z
"""


def test_a_closed_loop_has_as_many_in_flight_as_one_shuffler_serves_well() -> None:
    """Users count singly, or as the calls that a connection may have at once."""
    assert 64 == LoadPlan().in_flight
    assert 4 == LoadPlan(mode="bulk").in_flight
    assert 8 == LoadPlan(mode="bulk", processes=2).in_flight
    assert 5 == LoadPlan(concurrency=5).in_flight


def test_a_ramp_climbs_evenly() -> None:
    """Rates go from the first to the last, each for the seconds of a step."""
    phases = [(100, 250), (200, 500), (300, 750), (400, 1000)]

    assert phases == Ramp(first=100, last=400, steps=4, step_seconds=2.5).phases


def test_behaviours_are_dealt_to_the_nearest_number_and_the_last_user_is_honest() -> None:
    """The last user closes the batch, after which a repeat would be answered `closed`."""
    for seed in range(50):
        kinds = LoadPlan(n_users=20, shares={Behaviour.FLOODING: 0.9}, seed=seed).draw_kinds()
        assert 18 == np.count_nonzero(kinds == Behaviour.FLOODING)
        assert Behaviour.HONEST == kinds[-1]
    with pytest.raises(PlanError, match="at least one must be honest"):
        LoadPlan(n_users=1, shares={Behaviour.FLOODING: 0.9}).draw_kinds()


@pytest.mark.parametrize(
    ("answered", "given_up", "p99_ms", "broke"),
    [
        (95, 0, 499, None),
        (94, 0, 499, "94 users per second of 100 offered"),
        (100, 0, 502, "the 99th percentile is 502 ms, above 500"),
        (99, 1, 499, "users gave up: 1"),
    ],
)
def test_a_rate_holds_if_nearly_all_are_answered_in_time(
    answered: int, given_up: int, p99_ms: int, broke: str | None
) -> None:
    """95 of 100 users per second suffice, within the limit of waits, if no user gives up."""
    seen = Tally(finished=answered + given_up, given_up=given_up, first=5.0, last=6.0)
    seen.waits.record_value(1000 * p99_ms)

    assert broke == Ramp(first=10, last=40, steps=4, p99_limit=500).broken_by(100, seen)


def test_steady_arrivals_keep_their_rate_and_are_independent() -> None:
    """The gaps are exponential. Seed 5; fails by chance with probability 1e-7 over seeds."""
    moments, again = (arrivals(5000, 50.0, np.random.default_rng(5)) for _ in range(2))

    np.testing.assert_array_equal(moments, again)
    assert moments[-1] < 100
    assert (np.diff(moments) >= 0).all()
    assert stats.kstest(np.diff(moments), "expon", args=(0, 1 / 50)).pvalue > 1e-7


def test_bursts_come_at_once_and_keep_the_rate() -> None:
    """Three users come at a time, and ten per second."""
    moments = arrivals(7, 10.0, np.random.default_rng(1), burst=3)

    np.testing.assert_allclose([0, 0, 0, 0.3, 0.3, 0.3, 0.6], moments)


@pytest.mark.parametrize(
    ("users", "sentence"),
    [(1900, None), (1999, None), (1899, "1,899 users would"), (2501, "allow 1,900 to 2,500: use")],
)
def test_a_draft_is_published_as_it_is_or_refused(
    tmp_path: Path, users: int, sentence: str | None
) -> None:
    """Its n_min, target size and deadline stay; other numbers of users are an error."""
    file = tmp_path / "draft.toml"
    file.write_text(_DRAFT, encoding="utf-8")
    if sentence is not None:
        with pytest.raises(PlanError, match=sentence):
            load_draft(LoadTarget(draft=file), LoadPlan(n_users=users))
        return

    assert read(file) == load_draft(LoadTarget(draft=file), LoadPlan(n_users=users))


def test_a_sink_has_keys_of_both_shufflers(tmp_path: Path) -> None:
    """The draft of a plan with two shufflers has none; devices seal a layer for the second one."""
    file = tmp_path / "draft.toml"
    wanted = draft(**chain(COINS), n_min=1900, target_size=2500)
    file.write_text(as_toml(wanted), encoding="utf-8")
    task = Task.from_bytes(unpublished(LoadPlan(n_users=2000), LoadTarget(draft=file)).task_bytes)

    assert [COINS, COINS] == [task.hop(number).noises[0] for number in (0, 1)]
    assert 2 == len({each.key for each in task.shufflers})
