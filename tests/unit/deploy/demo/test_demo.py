from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from shuffledp.common.errors import BatchStateError, UsageError
from shuffledp.common.messages.batch import BatchState, BatchStatus
from shuffledp.common.protocols import Kind
from shuffledp.common.task.kinds import ITEM_KINDS, KINDS
from shuffledp.common.task_digest import TaskDigest
from shuffledp.deploy.clients.shuffler import ShufflerClient
from shuffledp.deploy.demo import demo
from shuffledp.shuffler.batch_states import FINAL_STATES
from tests.support.command_line import shown


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ITEM_KINDS])
def test_two_shufflers_are_for_items(kind: Kind) -> None:
    """Each adds dummies of items, and other kinds have none; nothing is started."""
    rule = f"these kinds: categorical, ordered; this is {kind} data"
    with pytest.raises(UsageError, match=f"--two-shufflers is for data of {rule}"):
        shown("demo", "--two-shufflers", "--task-kind", kind)


@pytest.mark.parametrize("state", sorted(FINAL_STATES | {BatchState.QUARANTINED}, key=str))
async def test_the_demo_waits_for_no_batch_that_has_ended(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, state: BatchState
) -> None:
    """It ends with the state as its error, unless the batch was delivered."""
    status = BatchStatus(state=state, n_users=5, n_min=3, shuffle_seconds=0.0)

    class Shuffler:
        async def status_or_none(self, _: TaskDigest) -> BatchStatus:
            return status

    class Cluster:
        shuffler = type("Process", (), {"address": ""})
        authority = tmp_path

    cluster: Any = Cluster
    monkeypatch.setattr(ShufflerClient, "connect", lambda *_: nullcontext(Shuffler()))
    monkeypatch.setattr(demo, "_POLL_SECONDS", 10.0)
    delivered = state is BatchState.ERASED
    with nullcontext() if delivered else pytest.raises(BatchStateError, match=f"is {state.value};"):
        assert status == await demo._wait_until_delivered(cluster, TaskDigest(bytes(32)))
