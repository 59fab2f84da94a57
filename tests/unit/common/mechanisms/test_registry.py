import dataclasses
from typing import Any

import numpy as np
import pytest

from shuffledp.common.errors import TaskError
from shuffledp.common.mechanisms.base import MechanismRequest
from shuffledp.common.mechanisms.registry import ITEM_MECHANISMS, mechanism_of
from shuffledp.common.protocols import MechanismName
from shuffledp.common.task.task import Task
from tests.support.protocol_tasks import ITEM_PROTOCOLS, protocol_task
from tests.support.tables import table
from tests.support.tasks import published

_LABELS = tuple(f"item {number}" for number in range(100))


@table("protocol", ITEM_PROTOCOLS)
def test_mechanisms_are_rebuilt_from_their_tasks(protocol: str) -> None:
    """From published bytes, a mechanism meets the task's local ε and report length."""
    task = Task.from_bytes(protocol_task(protocol).to_bytes())
    mechanism = mechanism_of(task)
    reports = mechanism.randomize(np.array([0, 1, 1]), np.random.default_rng(1))

    assert mechanism.keeps_promise(task.local_epsilon)
    assert mechanism.local_epsilon == pytest.approx(task.local_epsilon, abs=1e-8)
    assert 3 * task.own_reports * task.mechanism.report_bytes == len(reports.tobytes())
    assert mechanism.valid(reports).all()
    assert task.domain_size == mechanism.domain_size


_BARE = {"buckets": 0, "dummies_per_user": 0}


@table(
    ("wishes", "change", "message"),
    [
        ({"protocol": "ldp-warner", "domain_size": 2}, {"buckets": 3}, "buckets and 1 digit"),
        ({"protocol": "ldp-sue"}, {"buckets": 3}, "symmetric-unary they must be 2 and 1"),
        ({"protocol": "ldp-sue"}, {"digits": 2}, "buckets is 2 and digits is 2"),
        ({"protocol": "ldp-sue"}, {"report_bytes": 12}, "for this mechanism it must be 13"),
        ({"protocol": "ldp-oue"}, {"buckets": 100}, "optimized-unary they must be 2 and 1"),
        ({"protocol": "ldp-sw"}, {"buckets": 127}, "square-wave they must be 126 and 1"),
        ({"protocol": "ldp-sw"}, {"buckets": 99}, "square-wave they must be 100 and 1"),
        ({"protocol": "ldp-sw"}, {"digits": 2}, "buckets is 126 and digits is 2"),
        (
            {"protocol": "ldp-olh-strings", "buckets": 8, "labels": _LABELS},
            {"digits": 2},
            "for the mechanism string-hashing they must be 8 and 1",
        ),
        ({"buckets": 13}, {"buckets": 12}, "prime"),
        ({"buckets": 13}, {"digits": 8}, "seeds"),
        ({"buckets": 13}, {"digits": 2, "buckets": 10_007}, "seeds"),
        ({"buckets": 13}, {"report_bytes": 13}, "report_bytes is 13"),
    ],
)
def test_a_task_states_its_mechanism_in_one_form_only(
    wishes: dict[str, Any], change: dict[str, Any], message: str
) -> None:
    """Unused integers have fixed values, even in a signed task."""
    task = published(**_BARE | wishes).task
    mechanism = dataclasses.replace(task.mechanism, **change)

    with pytest.raises(TaskError, match=message):
        mechanism_of(dataclasses.replace(task, mechanism=mechanism))


@pytest.mark.parametrize(
    ("name", "domain_size", "local_epsilon", "message"),
    [
        ("optimized-unary", 2**20, 1.0, "it must be at most 524287"),
        ("square-wave", 2**24, 1.0, "buckets is 25369934; it must lie"),
        ("string-hashing", 5, 1.0, "buckets is 0"),
        ("grr", 5, 21.0, "local_epsilon is 21.0"),
        ("symmetric-unary", 5, 21.0, "local_epsilon is 21.0"),
    ],
)
def test_invalid_requests_are_refused(
    name: MechanismName, domain_size: int, local_epsilon: float, message: str
) -> None:
    """The message states the rule."""
    request = MechanismRequest(
        name=name, domain_size=domain_size, buckets=0, local_epsilon=local_epsilon
    )
    with pytest.raises(TaskError, match=message):
        ITEM_MECHANISMS[name].specify(request)
