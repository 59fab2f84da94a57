"""The shuffler's answers and receipts."""

from shuffledp.common.crypto.signing import SigningIdentity
from shuffledp.common.messages.submission import REFUSALS, Outcome
from shuffledp.protos.shuffledp.v1 import shuffler_pb2
from shuffledp.shuffler.collection import _ERRORS
from shuffledp.shuffler.servicer import ShufflerServicer, bulk_receipt_for
from tests.support.keys import is_valid_bulk_receipt
from tests.support.shuffler_core import DIGEST, Shuffler


class _Call:
    """The part of a call that the shuffler may use: more could carry data beside the answers."""

    def peer(self) -> str:
        """Return gRPC's name for the peer."""
        return "ipv4:192.0.2.1:1"


async def test_every_device_gets_the_same_answer(shuffler: Shuffler) -> None:
    """Answers have one length, repeated or not; a repeat is marked."""
    servicer = ShufflerServicer(shuffler)
    envelopes = [shuffler.envelope() for _ in range(4)]
    answers = []
    for envelope in (*envelopes, envelopes[0]):
        request = shuffler_pb2.SubmitRequest(task_digest=DIGEST, envelope=envelope)
        answers.append(await servicer.Submit(request, _Call()))
    assert [False] * 4 + [True] == [answer.repeated for answer in answers]
    assert 1 == len({len(answer.SerializeToString()) for answer in answers})

    before = await _status(servicer)
    await shuffler.submit(1)
    assert before == await _status(servicer)


async def test_answers_have_no_metadata(shuffler: Shuffler) -> None:
    """Neither FetchTask nor SubmitBulk sets any: `_Call` has no method for it."""
    servicer = ShufflerServicer(shuffler)
    task = shuffler_pb2.FetchTaskRequest(task_digest=DIGEST)
    assert (await servicer.FetchTask(task, _Call())).HasField("task")
    envelopes = [envelope := shuffler.envelope(), envelope, b""]
    bulk = shuffler_pb2.SubmitBulkRequest(task_digest=DIGEST, envelopes=envelopes)
    assert 3 == len((await servicer.SubmitBulk(bulk, _Call())).outcomes)


async def _status(servicer: ShufflerServicer) -> bytes:
    request = shuffler_pb2.GetBatchStatusRequest(task_digest=DIGEST)
    return (await servicer.GetBatchStatus(request, _Call())).SerializeToString()


_IDENTITY = SigningIdentity.generate()
_ON_THE_DISK = {Outcome.STORED, Outcome.REPEATED}


def test_every_refusal_of_one_submission_is_an_error() -> None:
    """So what has a receipt is stored."""
    assert {*REFUSALS} == {*_ERRORS, Outcome.UNAUTHENTICATED}


def test_a_bulk_receipt_covers_only_stored_submissions() -> None:
    """Their order counts; without any there is no receipt."""
    envelopes = [outcome.value.encode() for outcome in Outcome]
    answer = bulk_receipt_for(_IDENTITY, DIGEST, envelopes, list(Outcome))

    stored = [outcome.value.encode() for outcome in Outcome if outcome in _ON_THE_DISK]
    assert is_valid_bulk_receipt(_IDENTITY.public_identity(), DIGEST, stored, answer)
    assert b"" == bulk_receipt_for(_IDENTITY, DIGEST, [b"one"], [Outcome.MALFORMED])
