"""What the coordinator answers front-ends."""

from shuffledp.common.messages.batch import BatchState
from shuffledp.protos.shuffledp.v1 import coordinator_pb2
from shuffledp.shuffler.servicer import CoordinatorServicer
from tests.support.shuffler_core import DIGEST, Shuffler


async def test_keys_leave_the_coordinator_until_a_batch_is_permuted(shuffler: Shuffler) -> None:
    """A front-end that asks later learns no key, although the batch is not delivered yet."""
    servicer = CoordinatorServicer(shuffler)
    request = coordinator_pb2.GetBatchRequest(task_digest=DIGEST, begin=True)
    before = await servicer.GetBatch(request, None)
    await shuffler.submit(5)
    shuffler.analyzer.reachable = False
    await shuffler.advance()

    assert BatchState.PERMUTED is await shuffler.batch_state()
    after = await servicer.GetBatch(request, None)
    assert before.batch_id == after.batch_id
    assert [True, False] == [answer.HasField("collecting") for answer in (before, after)]
