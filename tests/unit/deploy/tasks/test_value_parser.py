import numpy as np
import pytest

from common.messages.submission import kind_of
from common.task.task import Task
from deploy.tasks.value_parser import sample_value
from tests.support.kind_tasks import OF_OTHER_KINDS, kind_task
from tests.support.tasks import published
from user_agent.contribution import encoder_for


@pytest.mark.parametrize(
    ("task", "fewest"),
    [
        *((kind_task(protocol), 2) for protocol in OF_OTHER_KINDS),
        (published().task, 2),
        (kind_task("rappor", labels=("yes", "no", "maybe"), domain_size=3, texts=None), 3),
    ],
)
def test_every_task_accepts_its_sample_values(task: Task, fewest: int) -> None:
    """Values are random and valid. Seed 5; fails by chance with probability at most 1e-98."""
    rng = np.random.default_rng(5)
    lay_out = encoder_for(task, None)
    drawn = [sample_value(task, rng) for _ in range(50)]
    for value in drawn:
        lay_out(value, rng)
        assert {"open": "string"}.get(task.kind, task.kind) == kind_of(value)

    assert len(set(map(repr, drawn))) >= fewest
