import dataclasses
import math
from typing import Any

import pytest

from common.errors import TaskError
from common.mechanisms.catalogue import mechanism_of
from common.mechanisms.grr import Grr
from common.mechanisms.local_hashing import LocalHashing
from tests.support.tasks import published


def test_a_task_names_its_mechanism() -> None:
    """Hashing where there are fewer buckets than items, GRR where there are not."""
    assert isinstance(mechanism_of(published().task), LocalHashing)
    assert isinstance(mechanism_of(published(domain_size=13).task), Grr)


@pytest.mark.parametrize("buckets", [13, 0])
def test_a_task_without_local_noise_has_the_weights_1_and_0(buckets: int) -> None:
    """Hashed or not; the mechanism is rebuilt from those integers."""
    task = published(
        buckets=buckets, local_epsilon=math.inf, dummies_per_user=100, n_min=100, target_size=100
    ).task

    assert (1, 0) == (task.mechanism.true_weight, task.mechanism.other_weight)
    assert math.inf == mechanism_of(task).local_epsilon


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"buckets": 12}, "prime"),
        ({"digits": 8}, "seeds"),
        ({"digits": 2, "buckets": 10_007}, "seeds"),
        ({"report_bytes": 13}, "report_bytes is 13"),
    ],
)
def test_integers_that_describe_no_mechanism_are_refused(
    change: dict[str, Any], message: str
) -> None:
    """A signed task may still be nonsense."""
    task = published().task
    odd = dataclasses.replace(task, mechanism=dataclasses.replace(task.mechanism, **change))

    with pytest.raises(TaskError, match=message):
        mechanism_of(odd)
