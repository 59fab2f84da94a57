import numpy as np
import pytest

from common.messages.value import kind_of
from common.task.task import Task
from common.task_digest import TaskDigest
from deploy.tasks.value_parser import sample_value
from tests.support.kind_tasks import OF_OTHER_KINDS, kind_task
from tests.support.tasks import published
from user_agent.encoding import encoder_for

_DIGEST = TaskDigest(b"d" * 32)


def _laid_out(task: Task) -> int:
    """Draw fifty values, lay each out as a device does, and give how many differ."""
    rng = np.random.default_rng(5)
    lay_out = encoder_for(task, None)
    drawn = [sample_value(task, rng) for _ in range(50)]
    for value in drawn:
        lay_out(value, rng)
        assert task.kind == kind_of(value)
    return len(set(map(repr, drawn)))


@pytest.mark.parametrize("protocol", [*OF_OTHER_KINDS, "od-hp"])
def test_every_task_takes_what_is_drawn_for_it(protocol: str) -> None:
    """
    Of its own kind and within its rules; and not always the same.

    Seed 5; fifty values of a hundred and more are all the same with probability 1e-98 at most.
    """
    task = published().task if protocol == "od-hp" else kind_task(protocol)

    assert _laid_out(task) > 1


def test_a_task_for_labels_is_given_one_of_them() -> None:
    """Anything else would be refused."""
    task = kind_task("rappor", labels=("yes", "no", "maybe"), domain_size=3, texts=None)

    assert 3 == _laid_out(task)
