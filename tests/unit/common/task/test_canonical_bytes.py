import hashlib

import pytest
from syrupy.assertion import SnapshotAssertion

from common.task.task import Task
from tests.support.kind_tasks import OF_OTHER_KINDS, kind_task, lasting_task
from tests.support.protocol_tasks import ITEM_PROTOCOLS, protocol_task


def _task(name: str) -> Task:
    if name == "lasting":
        return lasting_task()
    return protocol_task(name) if name in ITEM_PROTOCOLS else kind_task(name)


@pytest.mark.parametrize("name", [*ITEM_PROTOCOLS, *OF_OTHER_KINDS, "lasting"])
def test_a_tasks_canonical_bytes_never_change(name: str, snapshot: SnapshotAssertion) -> None:
    """A task of every protocol keeps the digest that earlier versions published."""
    task_bytes = _task(name).to_bytes()

    assert snapshot == hashlib.sha256(task_bytes).hexdigest()
    assert task_bytes == Task.from_bytes(task_bytes).to_bytes()
