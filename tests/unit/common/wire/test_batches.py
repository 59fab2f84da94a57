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
    """To a device, and to the shuffler's operator."""
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


def test_a_state_that_is_not_known_is_refused() -> None:
    """As one of a later version would be."""
    with pytest.raises(WireError, match="batch state 0 is not one that this program knows"):
        batches.status_from_wire(shuffler_pb2.GetBatchStatusResponse())


def test_a_delivery_begins_with_its_manifest_and_goes_on_with_reports() -> None:
    """The two kinds of message do not change places."""
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
        ({"target_size": 10**9 + 1}, "target_size is 1000000001"),
        ({"n_min": 0}, "n_min is 0"),
        ({"n_min": 10**9 + 1}, "n_min is 1000000001"),
        ({"n_users": 10**9 + 1}, "n_users is 1000000001"),
        ({"deadline": 0}, "deadline is 0"),
        ({"deadline": 2**40 + 1}, "deadline is 1099511627777"),
    ],
)
def test_progress_out_of_range_is_refused(change: dict[str, int], message: str) -> None:
    """Whoever shows it divides by these."""
    fields = {"n_users": 5, "n_min": 2, "target_size": 9, "deadline": 2**31} | change
    answer = shuffler_pb2.GetBatchProgressResponse(
        state=shuffler_pb2.BATCH_STATE_COLLECTING,
        n_users=fields["n_users"],
        n_min=fields["n_min"],
        target_size=fields["target_size"],
        deadline=fields["deadline"],
    )

    with pytest.raises(WireError, match=message):
        batches.progress_from_wire(answer)
