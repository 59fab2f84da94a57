"""Tasks reduced to a few users."""

import pytest

from analyzer.task_builder import complete
from common.task.task import Task
from deploy.audit.harness.tasks import reduced_draft
from tests.support.protocol_tasks import ITEM_PROTOCOLS, protocol_task


def _reduced(task: Task) -> Task | None:
    wanted = reduced_draft(task.to_bytes(), most_reports=2500, n_users=(16, 64, 256))
    if wanted is None:
        return None
    return complete(wanted, analyzer_key=task.analyzer_key, nonce=task.nonce)


@pytest.mark.parametrize("protocol", sorted(ITEM_PROTOCOLS))
def test_every_protocol_keeps_its_mechanism_laws_and_weights(protocol: str) -> None:
    """Only the batch is smaller."""
    task = protocol_task(protocol)
    found = _reduced(task)

    assert found is not None
    assert (task.protocol, task.dummies.law, task.shuffler.law, task.suite) == (
        found.protocol,
        found.dummies.law,
        found.shuffler.law,
        found.suite,
    )
    assert task.mechanism.name == found.mechanism.name
    assert task.item_mechanism.true_weight == found.item_mechanism.true_weight
    assert found.n_min <= 256
