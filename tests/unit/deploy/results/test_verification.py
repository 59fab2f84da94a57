"""Results beside their signed tasks: only true ones pass."""

import dataclasses
import math
import re
from functools import cache
from typing import Any, Final

import numpy as np
import pytest

from analyzer.finalize import build_result
from analyzer.intake import Intake
from common.accounting.guarantees import guarantees
from common.crypto.signing import SignedTask
from common.errors import WireError
from common.mechanisms.registry import mechanism_of
from common.messages.batch import BatchId, BatchManifest
from common.messages.result import KeyValues, Means, Result
from common.protocols import Kind, protocols_of
from common.task.draft import PairDraft
from common.task.task import Task
from common.task_digest import TaskDigest
from common.wire.results import result_from_wire, result_to_wire
from deploy.results.verification import check_fits, check_guarantees
from deploy.simulate.collection import count
from tests.support.kind_results import kind_collected, result_of
from tests.support.kind_tasks import kind_task
from tests.support.protocol_tasks import protocol_task
from tests.support.result_pages import Collected, collected
from tests.support.results import guarantee, result

_USERS: Final = 1200
_SPOILED: Final = 7


def _released(task: Task) -> Result:
    """Return the result of 1200 users, of whom seven sent unreadable reports."""
    values = np.random.default_rng(5).integers(0, task.domain_size, _USERS - _SPOILED)
    users = np.bincount(values, minlength=task.domain_size)
    mechanism = mechanism_of(task)
    counted = count(task, mechanism, users, np.random.default_rng(6), one_by_one=False)
    refused = _SPOILED * task.reports_per_user
    null = (_USERS - _SPOILED) * task.reports_per_user - counted.n_reports
    intake = Intake(
        cells=counted.cells,
        counted=counted.n_reports,
        null=null if task.shuffler.idle else 0,
        refused={"repeated": 0, "unreadable": refused, "malformed": 0},
    )
    manifest = BatchManifest(
        task_digest=SignedTask(task_bytes=task.to_bytes(), signature=b"").digest(),
        batch_id=BatchId(bytes(16)),
        n_users=_USERS,
        n_reports=intake.counted + intake.null + refused,
    )
    return build_result(manifest, task, mechanism, intake)


@pytest.mark.parametrize(
    "protocol",
    [
        pytest.param(name, marks=() if name in {"od-hp", "sbin"} else pytest.mark.slow)
        for name in protocols_of("categorical")
    ],
)
def test_a_true_result_of_every_protocol_fits(protocol: str) -> None:
    """As it is read from the wire, with refused reports among the others."""
    task = protocol_task(protocol)
    found = result_from_wire(result_to_wire(_released(task)))

    assert sum(found.refused.values()) >= _SPOILED
    check_fits(found, task)
    check_guarantees(found, task)


@cache
def _true() -> Collected:
    """Return a result with true guarantees, an eighth of the users taken to be dishonest."""
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
        ({"protocol": "sh"}, "the task's protocol is od-hp, and the result says sh"),
        ({"mechanism": "local-hashing"}, "the task's mechanism is grr, and the result says local"),
        ({"buckets": 3}, "the task's number of buckets is 4, and the result says 3"),
        ({"local_epsilon": 0.01}, "the task's local_epsilon is 4.0, and the result says 0.01"),
        ({"n_users": 8_999}, "is of 8999 users; the task is released from 9000 on"),
        ({"n_reports": 39_999}, "is of 39999 reports; 20000 users of this task make 40000 to"),
        ({"n_users": 10**9}, "is of 40000 reports; 1000000000 users of this task make 2000000000"),
        ({"n_reports": 51_001}, "20000 users of this task make 40000 to 51000"),
        ({"refused": {"malformed": 10**6}}, "refused 1000000 reports .* there were 40000 reports"),
        ({"n_dummies": 40_001}, "counted 40001 dummies; there were 40000 reports"),
        ({"n_sentinels": 11_001}, "misses 0 of 11001 sentinels; the task has room for 11000"),
        ({"n_sentinels": 3, "n_sentinels_missing": 4}, "misses 4 of 3 sentinels"),
    ],
)
def test_a_result_that_its_task_contradicts_is_refused(
    change: dict[str, Any], sentence: str
) -> None:
    """The message has both figures."""
    true = _true()
    check_fits(true.result, true.task)

    with pytest.raises(WireError, match=sentence):
        check_fits(dataclasses.replace(true.result, **change), true.task)


@pytest.mark.parametrize(
    ("kind", "counts"),
    [("string", ("cohort_sizes", "bit_counts")), ("key-value", ("reports",))],
)
def test_an_estimate_counts_the_reports_of_the_batch(kind: Kind, counts: tuple[str, ...]) -> None:
    """A hundred times as many would seem to err a tenth as much."""
    found = kind_collected(kind)
    check_fits(found.result, found.task)
    many = {name: getattr(found.result.estimate, name) * 100 for name in counts}
    estimate = dataclasses.replace(found.result.estimate, **many)

    sentence = "refused 0 of 4000 reports, and its estimate counts 400000"
    with pytest.raises(WireError, match=sentence):
        check_fits(dataclasses.replace(found.result, estimate=estimate), found.task)


@pytest.mark.parametrize("protocol", protocols_of("vector"))
def test_means_are_biased_exactly_if_they_are_projected(protocol: str) -> None:
    """An unbiased mean is in its interval; the interval of a projection is of noise alone."""
    task, means = kind_task(protocol), kind_collected("vector").result.estimate
    assert isinstance(means, Means)
    projects = protocol == "multi-rphm"

    honest = dataclasses.replace(means, unbiased=not projects)
    check_fits(result_of(task, estimate=honest), task)
    false = dataclasses.replace(means, unbiased=projects)
    with pytest.raises(WireError, match=r"biased means, and the result says \d+ \w*biased"):
        check_fits(result_of(task, estimate=false), task)


def test_owners_are_in_a_result_exactly_if_the_task_asks_who_owns_a_key() -> None:
    """Later iterations of PrivKVM do not."""
    asks = kind_collected("key-value")
    pairs = PairDraft(low=0.0, high=5.0, key_share=0.0)
    later = kind_task(
        "priv-kv", n_min=asks.task.n_min, target_size=asks.task.target_size, pairs=pairs
    )
    estimate = asks.result.estimate
    assert isinstance(estimate, KeyValues)
    without = dataclasses.replace(estimate, owners=None)

    check_fits(asks.result, asks.task)
    check_fits(result_of(later, estimate=without), later)
    with pytest.raises(WireError, match="6 keys with owners, and the result says 6 keys without"):
        check_fits(result_of(asks.task, estimate=without), asks.task)
    with pytest.raises(WireError, match="6 keys without owners, and the result says 6 keys with"):
        check_fits(result_of(later, estimate=estimate), later)


def test_a_result_is_of_a_task_with_its_digest_and_as_many_values() -> None:
    """Another task's labels would name its shares, or be too few for them."""
    found = collected(size=3)
    check_fits(found.result, found.task)

    with pytest.raises(WireError, match="the task's estimate is 3 values, and the result says 4"):
        check_fits(collected(size=4).result, found.task)
    with pytest.raises(WireError, match=r"the task's digest is .*, and the result says d1d1"):
        check_fits(result(TaskDigest(b"\xd1" * 32)), found.task)


@pytest.mark.parametrize(
    ("protocol", "change", "fits"),
    [
        # Every report is kept: a batch of 1000 users and two sentinels holds 1002 of them.
        ("sh", {}, True),
        ("sh", {"n_reports": 1_001}, False),
        ("sh", {"n_reports": 999}, False),
        # A sentinel that was planned alone, and of which one of five reports came.
        ("puredump", {"n_reports": 5_004}, True),
        ("puredump", {"n_reports": 4_999}, False),
        # Half of 1000, and 3000 dummies of the shuffler; its law leaves room for hundreds.
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
    """Two sentinels were planted, and taken off before anything was counted."""
    task = protocol_task(protocol)
    task = dataclasses.replace(task, target_size=1010)
    digest = SignedTask(task_bytes=task.to_bytes(), signature=b"").digest()
    numbers = {"n_users": 1000, "n_sentinels": 2, "n_reports": 1000, "n_dummies": 0}
    found = dataclasses.replace(_released(task), task_digest=digest, refused={}, **numbers | change)
    if fits:
        check_fits(found, task)
        return
    with pytest.raises(WireError, match=f"is of {change['n_reports']} reports; 1000 users"):
        check_fits(found, task)


@pytest.mark.parametrize(
    "change",
    [
        {"coalition": "analyzer", "epsilon": 0.001},
        {"coalition": "analyzer+users", "delta": 0.9e-6},
        {"coalition": "analyzer+skippers", "delta": 0.0},
        {"coalition": "shuffler+analyzer", "epsilon": 3.9},
    ],
)
def test_a_guarantee_that_is_too_good_is_refused(change: dict[str, Any]) -> None:
    """By its epsilon or its delta."""
    true, coalition = _true(), change["coalition"]
    stated = [
        dataclasses.replace(one, **change) if one.coalition == coalition else one
        for one in true.result.guarantees
    ]
    with pytest.raises(WireError, match=re.escape(f"against {coalition} the result")):
        check_guarantees(dataclasses.replace(true.result, guarantees=tuple(stated)), true.task)


def test_a_true_worse_or_slightly_better_guarantee_is_accepted() -> None:
    """Another version's accountant may be tighter by less than one percent."""
    true = _true()
    for factor in (1.0, 0.995, 1.5, math.inf):
        stated = [
            dataclasses.replace(one, epsilon=one.epsilon * factor if one.epsilon else 0.0)
            for one in true.result.guarantees
        ]
        check_guarantees(dataclasses.replace(true.result, guarantees=tuple(stated)), true.task)


def test_missing_and_made_up_guarantees_and_uncounted_refusals_are_refused() -> None:
    """A made-up guarantee would be charged; refused reports may be of honest users."""
    true, honest = _true(), collected(size=4)
    fewer = tuple(one for one in true.result.guarantees if "users" not in one.coalition)
    stated = guarantees(honest.task, honest.result.n_users, 6)
    more = (*stated, guarantee("analyzer+users", 0.001, 1e-6))
    for found, change, sentence in (
        (true, {"guarantees": fewer}, r"has no guarantee against analyzer\+users"),
        (honest, {"guarantees": more}, "this program finds none"),
        (true, {"refused": {"malformed": 15_000}}, "against analyzer the result states"),
    ):
        with pytest.raises(WireError, match=sentence):
            check_guarantees(dataclasses.replace(found.result, **change), found.task)
