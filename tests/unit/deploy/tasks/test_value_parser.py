from collections.abc import Callable
from functools import partial
from typing import Any, Final

import numpy as np
import pytest

from shuffledp.common.errors import UsageError
from shuffledp.common.messages.submission import kind_of
from shuffledp.common.task.task import Task
from shuffledp.deploy.tasks.value_parser import parse_breakdown, parse_range, sample_value
from shuffledp.user_agent.contribution import encoder_for
from tests.support.kind_tasks import OF_OTHER_KINDS, kind_task
from tests.support.tables import table
from tests.support.tasks import published

_CHOICES: Final[dict[str, Any]] = {
    "labels": ("yes", "no", "maybe"),
    "domain_size": 3,
    "texts": None,
}


@table(
    ("task_of", "fewest"),
    [
        *((partial(kind_task, protocol), 2) for protocol in OF_OTHER_KINDS),
        (lambda: published().task, 2),
        (partial(kind_task, "rappor", **_CHOICES), 3),
    ],
)
def test_every_task_accepts_its_sample_values(task_of: Callable[[], Task], fewest: int) -> None:
    """Values are random and valid. Seed 5; fails by chance with probability at most 1e-98."""
    task = task_of()
    rng = np.random.default_rng(5)
    lay_out = encoder_for(task, None)
    drawn = [sample_value(task, rng) for _ in range(50)]
    for value in drawn:
        lay_out(value, rng)
        assert {"open": "string", "table": "string"}.get(task.kind, task.kind) == kind_of(value)

    assert len(set(map(repr, drawn))) >= fewest


@pytest.mark.parametrize("text", ["-0.0:10", "-0:10", "-0e5 to 10", "-1e-400:10"])
def test_a_zero_of_a_range_has_no_sign(text: str) -> None:
    """As in files and answers; a task has one form of zero."""
    assert "(0.0, 10.0)" == str(parse_range(text))


def test_a_wrong_range_or_breakdown_is_a_wrong_use_of_an_option() -> None:
    """The command ends with the exit status of other wrong options."""
    for text in ("3", "a:b", "1:2:3", "1_0:20", "\N{ARABIC-INDIC DIGIT THREE}:5"):
        with pytest.raises(UsageError, match="--range must be two numbers, such as 18:65"):
            parse_range(text)
    with pytest.raises(UsageError, match="a breakdown is an attribute and its values"):
        parse_breakdown("country")
