"""How a device notices that the text of a lasting question changes."""

import pytest

from shuffledp.common.task.task import Task
from shuffledp.common.task_digest import TaskDigest
from shuffledp.user_agent.contribution import Contributor
from tests.support.kind_tasks import kind_task, lasting_task

_DIGEST = TaskDigest(b"\xd1" * 32)


@pytest.mark.parametrize(
    ("task", "text", "secret", "same"),
    [
        (lasting_task(), "Ohio", b"s" * 32, True),
        (lasting_task(delta=1e-7), "Ohio", b"s" * 32, True),
        (lasting_task(), "Utah", b"s" * 32, False),
        (lasting_task(), "Ohio", b"t" * 32, False),
        (lasting_task(population="guests"), "Ohio", b"s" * 32, False),
    ],
)
def test_a_device_knows_its_texts_by_keyed_hashes(
    task: Task, text: str, secret: bytes, *, same: bool
) -> None:
    """Equal for one text, question and secret; none for other tasks."""
    first = Contributor(lasting_task(), _DIGEST, b"s" * 32).text_hash("Ohio")
    found = Contributor(task, _DIGEST, secret).text_hash(text)

    assert same == (first == found)
    assert (32, 32) == (len(first), len(found))
    assert b"" == Contributor(kind_task("rappor"), _DIGEST, secret).text_hash(text)
