import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.crypto.signing import SignedTask
from common.errors import ShuffleDpError, WireError
from common.messages.batch import BatchId, BatchManifest, BatchState, BatchStatus
from common.messages.submission import Outcome
from common.task.dummy_spec import DummySpec
from common.task.shuffler_spec import ShufflerSpec
from common.task_digest import TaskDigest
from common.wire import batches as wire
from common.wire import evidence as evidence_wire
from common.wire import results as result_wire
from common.wire import tasks as draft_wire
from common.wire import values as value_wire
from deploy.audit.harness.tasks import draft
from protos.shuffledp.v1 import analyzer_pb2, shuffler_pb2, task_pb2, user_agent_pb2
from tests.support.results import result as released

_DIGEST = TaskDigest(b"d" * 32)


def test_every_value_is_read_back_as_it_was_written() -> None:
    """Both directions of each pair agree."""
    signed = SignedTask(task_bytes=b"task", signature=bytes(64))
    manifest = BatchManifest(
        task_digest=_DIGEST, batch_id=BatchId(b"b" * 16), n_users=3, n_reports=6
    )
    status = BatchStatus(state=BatchState.PERMUTED, n_users=5, n_min=2, shuffle_seconds=0.5)
    wanted = draft(labels=("a", "b"), domain_size=2, dummies_per_user=1.3)

    assert signed == wire.signed_task_from_wire(wire.signed_task_to_wire(signed))
    assert manifest == wire.manifest_from_wire(wire.manifest_to_wire(manifest))
    assert status == wire.status_from_wire(wire.status_to_wire(status))
    drawn = draft(
        dummies=DummySpec(
            law="negative-binomial",
            per_user=1,
            trials=8,
            extra_weight=2**30,
            most=90,
        ),
        shuffler=ShufflerSpec(
            law="geometric", keep_weight=2**31, peak=3, left_weight=5, right_weight=7, most=20
        ),
    )
    for asked in (wanted, draft(local_epsilon=math.inf), drawn):
        assert asked == draft_wire.draft_from_wire(draft_wire.draft_to_wire(asked))
    hybrid = draft(bytes(1216), suite="mlkem768x25519-hkdf-sha256-chacha20poly1305")
    assert hybrid == draft_wire.draft_from_wire(draft_wire.draft_to_wire(hybrid))
    budgeted = draft(population="staff", budget_epsilon=3.0, budget_delta=1e-5)
    assert budgeted == draft_wire.draft_from_wire(draft_wire.draft_to_wire(budgeted))
    assert list(Outcome) == wire.outcomes_from_wire(wire.outcomes_to_wire(list(Outcome)))
    assert b"chunk" == wire.chunk_from_wire(wire.chunk_to_wire(b"chunk"))
    for state in BatchState:
        moved = BatchStatus(state=state, n_users=0, n_min=1, shuffle_seconds=0.0)
        assert moved == wire.status_from_wire(wire.status_to_wire(moved))


def test_a_result_survives_the_wire_and_the_file() -> None:
    """Infinite epsilon included."""
    result = released(_DIGEST)
    again = result_wire.result_from_bytes(result_wire.result_to_bytes(result))

    assert result.local_epsilon == again.local_epsilon
    assert result.guarantees == again.guarantees
    assert result.refused == again.refused
    np.testing.assert_array_equal(result.histogram.frequencies, again.histogram.frequencies)
    np.testing.assert_array_equal(result.histogram.refined, again.histogram.refined)


@pytest.mark.parametrize("length", [0, 31, 33])
def test_a_digest_has_32_bytes(length: int) -> None:
    """The message names the field, its length and the rule."""
    with pytest.raises(WireError, match=f"task_digest has {length} bytes; it must have 32"):
        wire.digest_from_wire(bytes(length))


@pytest.mark.parametrize("dummies", [-0.5, math.nan, math.inf, 2.0**20 + 1])
def test_a_draft_has_a_sensible_number_of_dummies(dummies: float) -> None:
    """A double may be anything; the field is named."""
    message = draft_wire.draft_to_wire(draft(dummies_per_user=dummies))

    with pytest.raises(WireError, match="dummies_per_user is"):
        draft_wire.draft_from_wire(message)


def test_a_bulk_call_has_a_limit() -> None:
    """2,001 envelopes are one too many."""
    request = shuffler_pb2.SubmitBulkRequest(task_digest=_DIGEST, envelopes=[b""] * 2001)

    with pytest.raises(WireError, match="2001 envelopes"):
        wire.envelopes_from_wire(request)


def test_a_delivery_begins_with_its_manifest_and_goes_on_with_reports() -> None:
    """The two kinds of message do not change places."""
    manifest = wire.manifest_to_wire(
        BatchManifest(task_digest=_DIGEST, batch_id=BatchId(bytes(16)), n_users=1, n_reports=1)
    )
    with pytest.raises(WireError):
        wire.manifest_from_wire(wire.chunk_to_wire(b""))
    with pytest.raises(WireError):
        wire.chunk_from_wire(manifest)
    with pytest.raises(WireError):
        wire.manifest_from_wire(analyzer_pb2.DeliverBatchRequest())


_PARSERS = (
    (task_pb2.SignedTask, wire.signed_task_from_wire),
    (analyzer_pb2.CreateTaskRequest, draft_wire.draft_from_wire),
    (user_agent_pb2.ContributeRequest, value_wire.contribution_from_wire),
    (shuffler_pb2.SubmitRequest, wire.envelope_from_wire),
    (shuffler_pb2.SubmitBulkRequest, wire.envelopes_from_wire),
    (shuffler_pb2.SubmitBulkResponse, wire.outcomes_from_wire),
    (shuffler_pb2.GetBatchStatusResponse, wire.status_from_wire),
    (analyzer_pb2.DeliverBatchRequest, wire.manifest_from_wire),
    (analyzer_pb2.DeliverBatchRequest, wire.chunk_from_wire),
    (analyzer_pb2.GetResultResponse, result_wire.result_from_wire),
    (shuffler_pb2.SubmitResponse, evidence_wire.receipt_from_wire),
    (analyzer_pb2.DeliverBatchResponse, evidence_wire.delivered_from_wire),
    (shuffler_pb2.GetInclusionRequest, evidence_wire.prefix_from_wire),
    (shuffler_pb2.GetInclusionResponse, evidence_wire.proof_from_wire),
    (analyzer_pb2.RegisterSentinelsRequest, evidence_wire.sentinels_from_wire),
    (user_agent_pb2.GetReceiptRequest, evidence_wire.record_question_from_wire),
)


@pytest.mark.parametrize(("message", "parse"), _PARSERS, ids=lambda p: getattr(p, "__name__", ""))
@given(raw=st.binary(max_size=200))
def test_any_message_is_a_value_or_a_foreseen_error(message, parse, raw) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
    """Whatever protobuf accepts, the project accepts or refuses with its own error."""
    try:
        parsed = message.FromString(raw)
    except Exception:  # noqa: BLE001  # protobuf's own refusal never reaches the project
        return
    try:
        parse(parsed)
    except ShuffleDpError:
        return


def test_a_draft_without_a_suite_has_the_default_one() -> None:
    """As operators of earlier versions send it; a suite that there is not is refused by name."""
    message = draft_wire.draft_to_wire(draft())
    message.suite = ""
    assert draft() == draft_wire.draft_from_wire(message)

    message.suite = "rot13"
    with pytest.raises(WireError, match="the suite must be one of x25519"):
        draft_wire.draft_from_wire(message)
    message.suite = "mlkem768x25519-hkdf-sha256-chacha20poly1305"
    with pytest.raises(WireError, match="shuffler_key has 32 bytes; it must have 1216"):
        draft_wire.draft_from_wire(message)


def test_a_kept_result_that_was_damaged_is_a_foreseen_error() -> None:
    """Protobuf's own refusal does not come through."""
    with pytest.raises(WireError, match="what is kept of this task is no result"):
        result_wire.result_from_bytes(b"\xff\xff\xff")


@pytest.mark.parametrize(
    ("field", "name", "figures"),
    [
        ("frequencies", "a share", (math.nan, math.inf, -math.inf, 1.1e30, -1.1e30)),
        ("standard_errors", "a standard error", (math.nan, math.inf, -0.1, 1.1e30)),
        ("refined", "a refined share", (math.nan, math.inf, -0.1, 1.1)),
    ],
)
def test_a_result_s_lists_hold_figures_that_can_be(
    field: str, name: str, figures: tuple[float, ...]
) -> None:
    """No JSON could be written of others, no page drawn, and no share is infinite."""
    for figure in figures:
        message = result_wire.result_to_wire(released(_DIGEST))
        getattr(message, field)[0] = figure
        with pytest.raises(WireError, match=re.escape(f"{name} is {figure}; it must lie between")):
            result_wire.result_from_wire(message)


@pytest.mark.parametrize(
    ("field", "wrong", "said"),
    [
        ("mse_theory", math.nan, "mse_theory is nan; it must lie between 0 and"),
        ("mse_theory", -1e-9, "mse_theory is -1e-09"),
        ("mse_theory", math.inf, "mse_theory is inf"),
        ("local_epsilon", math.nan, "local_epsilon is nan"),
        ("local_epsilon", -1.0, "local_epsilon is -1.0; it must lie between 0 and inf"),
        ("open_seconds", -1.0, "open_seconds is -1.0"),
        ("estimate_seconds", math.inf, "estimate_seconds is inf"),
        ("n_users", 10**9 + 1, "n_users is 1000000001; it may be at most 1000000000"),
        ("mechanism", "{buckets.__class__}", "the mechanism must be one of grr, warner"),
        ("protocol", "od-hp\n", "the protocol must be one of"),
    ],
)
def test_a_result_s_fields_are_what_they_can_be(field: str, wrong: object, said: str) -> None:
    """An analyzer may be anybody's."""
    message = result_wire.result_to_wire(released(_DIGEST))
    setattr(message, field, wrong)

    with pytest.raises(WireError, match=said):
        result_wire.result_from_wire(message)


@pytest.mark.parametrize(
    ("field", "wrong", "said"),
    [
        ("epsilon", math.nan, "a guarantee's epsilon is nan; it must lie between 0 and inf"),
        ("epsilon", -0.1, "a guarantee's epsilon is -0.1"),
        ("delta", math.nan, "a guarantee's delta is nan; it must lie between 0 and 1"),
        ("delta", -1e-9, "a guarantee's delta is -1e-09"),
        ("delta", 1.5, "a guarantee's delta is 1.5"),
        ("coalition", "nobody", "none of the 1 guarantees of a result is against the analyzer"),
        ("coalition", "network", "none of the 1 guarantees"),
    ],
)
def test_a_guarantee_is_one_that_can_hold(field: str, wrong: object, said: str) -> None:
    """And one is against the analyzer: it is what a task claims, or beside it."""
    message = result_wire.result_to_wire(released(_DIGEST))
    setattr(message.guarantees[0], field, wrong)

    with pytest.raises(WireError, match=said):
        result_wire.result_from_wire(message)


def test_every_coalition_is_one_that_is_known() -> None:
    """Also beside one against the analyzer."""
    message = result_wire.result_to_wire(released(_DIGEST))
    message.guarantees.add(coalition="nobody")

    with pytest.raises(WireError, match="a coalition must be one of analyzer, analyzer\\+users"):
        result_wire.result_from_wire(message)


def test_a_result_is_of_something() -> None:
    """Pages and tables divide by the number of values."""
    message = result_wire.result_to_wire(released(_DIGEST))
    for field in ("frequencies", "standard_errors", "refined"):
        message.ClearField(field)

    with pytest.raises(WireError, match="a result holds 0 estimates; it must hold 1"):
        result_wire.result_from_wire(message)


def test_tokens_come_with_each_envelope_or_with_none() -> None:
    """80 bytes each; an empty one stands for a user who has none."""
    envelopes, token = [b"one", b"two"], bytes(80)
    for tokens, read in (([], []), ([token, b""], [token, b""])):
        message = shuffler_pb2.SubmitBulkRequest(
            task_digest=_DIGEST, envelopes=envelopes, tokens=tokens
        )
        assert (_DIGEST, envelopes, read) == wire.envelopes_from_wire(message)
    for wrong in ([token], [token] * 3, [token, token[:-1]]):
        message = shuffler_pb2.SubmitBulkRequest(
            task_digest=_DIGEST, envelopes=envelopes, tokens=wrong
        )
        with pytest.raises(WireError, match="token"):
            wire.envelopes_from_wire(message)
    single = shuffler_pb2.SubmitRequest(task_digest=_DIGEST, envelope=b"e", token=token)
    assert (_DIGEST, b"e", token) == wire.envelope_from_wire(single)


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
        wire.progress_from_wire(answer)
