import numpy as np
import pytest

from common.errors import ValueRangeError
from common.messages.submission import Value, kind_of
from common.protocols import Kind
from common.task.task import Task
from deploy.tasks.value_parser import parse_value, sample_value
from tests.support.kind_tasks import OF_OTHER_KINDS, kind_task
from tests.support.tasks import published
from user_agent.contribution import encoder_for


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("categorical", "007", "007"),
        ("string", " two  blanks ", " two  blanks "),
        ("mean", "36.6\n", 36.6),
        ("vector", "1, -2.5,3e1", (1.0, -2.5, 30.0)),
        ("key-value", "3:0.5, 17: 1\n", {3: 0.5, 17: 1.0}),
        ("key-value", "\n", {}),
    ],
)
def test_values_of_every_kind_are_parsed(kind: Kind, text: str, value: Value) -> None:
    """Blanks around numbers are ignored; texts stay as they are."""
    found = parse_value(text, kind)

    assert value == found
    assert type(value) is type(found)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("mean", "12,5 secret"),
        ("mean", "1_0"),
        ("mean", "\N{ARABIC-INDIC DIGIT THREE}"),
        ("vector", "1, secret"),
        ("vector", ""),
        ("key-value", "3:secret"),
        ("key-value", "secret:3"),
        ("key-value", "3:1, 3:2"),
        ("key-value", "918273"),
    ],
)
def test_invalid_values_are_refused_without_being_repeated(kind: Kind, text: str) -> None:
    """The message has the format, and nothing of the value, however long."""
    with pytest.raises(ValueRangeError, match=r"^a (value is|key (appears|must))") as caught:
        parse_value(text, kind)

    assert "secret" not in str(caught.value)
    assert not text or text not in str(caught.value)


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
