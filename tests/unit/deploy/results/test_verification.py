"""Results checked against their signed tasks."""

import dataclasses
import math
import re
from functools import cache
from typing import Any

import numpy as np
import pytest

from shuffledp.common.accounting.guarantees import guarantees, published_claim
from shuffledp.common.crypto.signing import SignedTask
from shuffledp.common.errors import WireError
from shuffledp.common.messages.guarantee import Waived
from shuffledp.common.protocols import protocols_of
from shuffledp.common.task.draft import PairDraft
from shuffledp.common.task.task import Task
from shuffledp.common.task_digest import TaskDigest
from shuffledp.deploy.results.verification import check_fits, recompute_guarantees
from tests.support.kind_results import N_USERS, kind_collected, result_of
from tests.support.kind_tasks import kind_task
from tests.support.protocol_tasks import protocol_task
from tests.support.result_pages import Collected, collected
from tests.support.results import guarantee, released


@cache
def _true() -> Collected:
    """Return a result with true guarantees, with an eighth of the users assumed dishonest."""
    found = collected(size=4)
    task = dataclasses.replace(found.task, assumed_honest_fraction=0.875, n_min=9_000)
    digest = SignedTask(task_bytes=task.to_bytes(), signature=b"").digest()
    n_refused = sum(found.result.refused.values())
    stated = guarantees(task, found.result.n_users, n_refused)
    changed = dataclasses.replace(found.result, task_digest=digest, guarantees=stated)
    return dataclasses.replace(found, task=task, result=changed)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"protocol": "sh"}, "the result's protocol is sh; the task's is od-hp"),
        ({"mechanism": "local-hashing"}, "result's mechanism is local-hashing; the task's is grr"),
        ({"buckets": 3}, "the result's number of buckets is 3; the task's is 4"),
        ({"local_epsilon": 0.01}, "the result's local_epsilon is 0.01; the task's is 4.0"),
        ({"n_users": 8_999}, "has 8999 users; the task needs at least 9000"),
        ({"n_reports": 39_999}, "has 39999 reports; 20000 users of this task send 40000 to"),
        ({"n_users": 10**9}, "has 40000 reports; 1000000000 users of this task send 2000000000"),
        ({"n_reports": 51_001}, "20000 users of this task send 40000 to 51000"),
        ({"refused": {"malformed": 10**6}}, "has 1000000 refused reports .* its 40000 reports"),
        ({"n_dummies": 40_001}, "40001 dummies, more than its 40000 reports"),
        ({"n_sentinels": 11_001}, "misses 0 of 11001 sentinels; at most 11000 are possible"),
        ({"n_sentinels": 3, "n_sentinels_missing": 4}, "misses 4 of 3 sentinels"),
        (
            {"waived": Waived(("lengths",), (1, 20_000))},
            "the lengths of 20001 submissions; it has 20000 users and 0 sentinels",
        ),
        # Another task's labels would name its shares, or be too few for them.
        ({"task_digest": TaskDigest(b"\xd1" * 32)}, "the result's digest is d1d1"),
        ({"estimate": collected(size=3).result.estimate}, "estimate is 3 values; the task's is 4"),
    ],
)
def test_a_result_that_its_task_contradicts_is_refused(
    change: dict[str, Any], sentence: str
) -> None:
    """The message names both figures."""
    true = _true()
    check_fits(true.result, true.task)

    with pytest.raises(WireError, match=sentence):
        check_fits(dataclasses.replace(true.result, **change), true.task)


def _check_estimate(task: Task, **changes: Any) -> None:
    """Check a result of another kind than items, with these changes to its estimate."""
    estimate = dataclasses.replace(kind_collected(task.kind).result.estimate, **changes)
    n_reports = N_USERS * task.lengths[0] + task.shuffler.expected_dummies
    check_fits(result_of(task, estimate=estimate, n_reports=n_reports), task)


@pytest.mark.parametrize(
    ("protocol", "counts"),
    [
        ("rappor", ("cohort_sizes", "bit_counts")),
        ("priv-kv", ("reports",)),
        ("discover", ("reports",)),
    ],
)
def test_an_estimate_counts_the_reports_of_the_batch(
    protocol: str, counts: tuple[str, ...]
) -> None:
    """A hundred times as many would have a tenth of the stated error."""
    task = kind_task(protocol)
    estimate = kind_collected(task.kind).result.estimate
    with pytest.raises(WireError, match=r"counts 400000 reports; .* it must count 4000"):
        _check_estimate(task, **{name: getattr(estimate, name) * 100 for name in counts})


@pytest.mark.parametrize("protocol", protocols_of("vector"))
def test_means_are_biased_exactly_if_they_are_projected(protocol: str) -> None:
    """Intervals of projected means cover the noise alone."""
    task, projects = kind_task(protocol), protocol == "multi-rphm"
    _check_estimate(task, unbiased=not projects)
    with pytest.raises(WireError, match=r"\d+ \w*biased means; the task's is \d+ \w*biased"):
        _check_estimate(task, unbiased=projects)


def test_owners_are_in_a_result_exactly_if_the_task_asks_who_owns_a_key() -> None:
    """Later iterations of PrivKVM do not ask."""
    asks = kind_task("priv-kv")
    later = kind_task("priv-kv", pairs=PairDraft(low=0.0, high=5.0, key_share=0.0))
    _check_estimate(asks)
    _check_estimate(later, owners=None)
    with pytest.raises(WireError, match="6 keys without owners; the task's is 6 keys with "):
        _check_estimate(asks, owners=None)
    with pytest.raises(WireError, match="6 keys with owners; the task's is 6 keys without "):
        _check_estimate(later)


@pytest.mark.parametrize(
    ("protocol", "change", "fits"),
    [
        # Every report is kept: a batch of 1000 users and two sentinels holds 1002 of them.
        ("sh", {}, True),
        ("sh", {"n_reports": 1_001}, False),
        ("sh", {"n_reports": 999}, False),
        # A sentinel that was planned alone, and of which one of its reports came.
        ("puredump", {"n_reports": 5_004}, True),
        ("puredump", {"n_reports": 3_999}, False),
        # Half of 1000, and 3000 dummies of the shuffler; its distribution leaves room for hundreds.
        ("sbin", {"n_reports": 3_500, "n_sentinels_missing": 2}, True),
        ("sbin", {"n_reports": 10_000, "n_sentinels_missing": 2}, False),
        ("sageo", {"n_reports": 1_600}, True),
        ("sageo", {"n_reports": 1_000}, False),
    ],
)
def test_the_number_of_reports_fits_users_shuffler_and_sentinels(
    protocol: str,
    change: dict[str, Any],
    fits: bool,  # noqa: FBT001
) -> None:
    """Two sentinels were acknowledged, and removed before reports were counted."""
    task = dataclasses.replace(protocol_task(protocol), target_size=1010)
    numbers = {"n_users": 1000, "n_sentinels": 2, "n_reports": 1000} | change
    buckets = task.item_mechanism.buckets
    found = released(task, estimate=collected(size=30).result.estimate, buckets=buckets, **numbers)
    if fits:
        check_fits(found, task)
        return
    with pytest.raises(WireError, match=f"has {change['n_reports']} reports; 1000 users"):
        check_fits(found, task)


@pytest.mark.parametrize(
    "change",
    [
        {"coalition": "analyzer", "epsilon": 0.001},
        {"coalition": "analyzer+users", "delta": 0.989e-6},
        {"coalition": "analyzer+skippers", "delta": 0.0},
        {"coalition": "shuffler+analyzer", "epsilon": 3.956},
    ],
)
def test_a_guarantee_that_is_too_good_is_refused(change: dict[str, Any]) -> None:
    """An epsilon or delta that is 1.1 % smaller is too good."""
    true, coalition = _true(), change["coalition"]
    stated = [
        dataclasses.replace(one, **change) if one.coalition == coalition else one
        for one in true.result.guarantees
    ]
    with pytest.raises(WireError, match=re.escape(f"against {coalition} the result")):
        recompute_guarantees(dataclasses.replace(true.result, guarantees=tuple(stated)), true.task)


def test_a_true_worse_or_slightly_better_guarantee_is_accepted() -> None:
    """Another version's accountant may be tighter by less than 1 %; the recomputed ones count."""
    true = _true()
    for factor in (1.0, 0.995, 1.5, math.inf):
        stated = [
            dataclasses.replace(one, epsilon=one.epsilon * factor if one.epsilon else 0.0)
            for one in true.result.guarantees
        ]
        found = dataclasses.replace(
            true.result, guarantees=tuple(stated), published_claim="another version's text"
        )
        checked = recompute_guarantees(found, true.task)
        assert true.result.guarantees == checked.guarantees
        assert published_claim(true.task, found.n_users, 0) == checked.published_claim


def test_missing_and_made_up_guarantees_and_uncounted_refusals_are_refused() -> None:
    """A false guarantee would be charged to the budget; refused reports may be of honest users."""
    true, honest = _true(), collected(size=4)
    fewer = tuple(one for one in true.result.guarantees if "users" not in one.coalition)
    stated = guarantees(honest.task, honest.result.n_users, 6)
    more = (*stated, guarantee("analyzer+users", 0.001, 1e-6))
    for found, change, sentence in (
        (true, {"guarantees": fewer}, r"has no guarantee against analyzer\+users"),
        (honest, {"guarantees": more}, "recomputed: none"),
        (true, {"refused": {"malformed": 15_000}}, "against analyzer the result states"),
    ):
        with pytest.raises(WireError, match=sentence):
            recompute_guarantees(dataclasses.replace(found.result, **change), found.task)


def test_found_values_have_the_tasks_levels() -> None:
    """A result of three levels cannot be that of a task with five."""
    task = kind_task("discover")
    _check_estimate(task)
    with pytest.raises(WireError, match="found at 3 levels; the task's is values found at 5"):
        _check_estimate(task, reports=np.array([4000, 0, 0]))
