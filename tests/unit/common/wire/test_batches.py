import pytest

from common.errors import WireError
from common.messages.batch import BatchId, BatchManifest, BatchProgress, BatchState, BatchStatus
from common.task_digest import TaskDigest
from common.wire import batches
from protos.shuffledp.v1 import analyzer_pb2, shuffler_pb2

_MANIFEST = BatchManifest(
    task_digest=TaskDigest(b"d" * 32), batch_id=BatchId(b"b" * 16), n_users=3, n_reports=6
)


@pytest.mark.parametrize("state", BatchState)
def test_a_batchs_state_is_read_back_as_it_was_written(state: BatchState) -> None:
    """For devices and for the shuffler's operator; an unknown state is refused."""
    with pytest.raises(WireError, match="batch state 0 is not one that this program knows"):
        batches.status_from_wire(shuffler_pb2.GetBatchStatusResponse())
    status = BatchStatus(state=state, n_users=5, n_min=2, shuffle_seconds=0.5)
    progress = BatchProgress(
        state=state,
        n_users=5,
        n_min=2,
        target_size=9,
        deadline=2**31,
        refused={"conflict": 3},
        repeated=4,
    )

    assert status == batches.status_from_wire(batches.status_to_wire(status))
    assert progress == batches.progress_from_wire(batches.progress_to_wire(progress))


def test_a_delivery_is_a_manifest_followed_by_reports() -> None:
    """The two kinds of message cannot be swapped."""
    manifest, chunk = batches.manifest_to_wire(_MANIFEST), batches.chunk_to_wire(b"chunk")

    assert _MANIFEST == batches.manifest_from_wire(manifest)
    assert b"chunk" == batches.chunk_from_wire(chunk)
    for wrong in (chunk, analyzer_pb2.DeliverBatchRequest()):
        with pytest.raises(WireError, match="begins with its manifest"):
            batches.manifest_from_wire(wrong)
    for wrong, rule in (
        (manifest, "nothing but sealed reports"),
        (batches.chunk_to_wire(b""), "at least one report"),
        (batches.chunk_to_wire(bytes(2**20 + 1)), "at most 1048576"),
    ):
        with pytest.raises(WireError, match=rule):
            batches.chunk_from_wire(wrong)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"target_size": 0}, "target_size is 0; it must lie between 1 and 1000000000"),
        ({"n_min": 0}, "n_min is 0"),
        ({"n_users": 10**9 + 1}, "n_users is 1000000001"),
        ({"deadline": 2**40 + 1}, "deadline is 1099511627777"),
    ],
)
def test_progress_out_of_range_is_refused(change: dict[str, int], message: str) -> None:
    """Displays divide by these figures."""
    figures = {"n_users": 5, "n_min": 2, "target_size": 9, "deadline": 2**31} | change
    answer = shuffler_pb2.GetBatchProgressResponse(
        state=shuffler_pb2.BATCH_STATE_COLLECTING,
        **figures,  # type: ignore[arg-type]  # each is a whole number
    )

    with pytest.raises(WireError, match=message):
        batches.progress_from_wire(answer)
