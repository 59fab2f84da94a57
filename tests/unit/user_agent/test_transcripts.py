"""The device is held to the transcripts, as devices in other languages are."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

import pytest
from google.protobuf.json_format import ParseDict

from common.accounting.claims import delta_at_claim
from common.crypto.hpke import HpkePrivateKey, envelope_context, report_context, split_every
from common.crypto.privacy_tokens import PendingToken
from common.crypto.signing import PublicIdentity, is_valid_receipt
from common.errors import BudgetError, PeerError, WireError
from common.messages.inclusion_proof import leaf
from common.messages.submission import split_submission
from common.task.task import Task
from common.task_digest import TaskDigest
from common.transparency.checkpoint import NoteKey, SignedCheckpoint, log_key
from common.transparency.log_entry import LogEntry
from common.transparency.log_evidence import LogEvidence
from common.transparency.witness_policy import WitnessPolicy
from common.wire.batches import proof_from_wire
from common.wire.tasks import signed_task_from_wire
from common.wire.transparency import log_proof_from_wire
from protos.shuffledp.v1 import shuffler_pb2
from tests.support.policies import generous
from tests.support.vectors import vectors
from tests.vectors.make_transcripts import (
    FOLDER,
    Draws,
    budgets,
    changes,
    dense,
    edges,
    make,
    notes,
)
from tests.vectors.odd_signatures import odd_signatures
from tests.vectors.transcript_cases import ALL
from user_agent.contribution import Contributor
from user_agent.policy import Claim, check, check_totals

_NAMES: Final = sorted(path.stem for path in FOLDER.glob("transcript-*.json"))
_QUICK: Final = {
    f"transcript-{name}" for name in ("ddps", "each-item", "fe1", "hashing", "symmetric-unary")
}
"""Those for which finding the central epsilon takes a moment."""

Transcript = Mapping[str, Any]


def _answer(shown: Transcript) -> Any:
    return ParseDict(shown["fetch"], shuffler_pb2.FetchTaskResponse())


def _digest(shown: Transcript) -> TaskDigest:
    return TaskDigest(bytes.fromhex(shown["digest"]))


def _pin(shown: Transcript, name: str) -> PublicIdentity:
    return PublicIdentity(bytes.fromhex(shown["pins"][name]))


def _task(shown: Transcript) -> Task:
    policy = generous(
        _pin(shown, "analyzer"),
        float(shown["policy"]["local_epsilon_cap"]),
        _pin(shown, "shuffler"),
        _pin(shown, "issuer") if shown["pins"]["issuer"] else None,
        allow_tasks_without_tokens=shown["policy"]["allow_tasks_without_tokens"],
    )
    policy = replace(policy, permanent_responses=shown["policy"]["lasting_responses"])
    return check(
        signed_task_from_wire(_answer(shown).task), _digest(shown), policy, float(shown["now"])
    )


def _log(shown: Transcript) -> None:
    answer, pins = _answer(shown), shown["pins"]
    proof, signed = log_proof_from_wire(answer), signed_task_from_wire(answer.task)
    policy = WitnessPolicy(
        log=log_key(_pin(shown, "analyzer")),
        witnesses=tuple(map(NoteKey.parse, pins["witnesses"])),
        quorum=pins["quorum"],
    )
    last = SignedCheckpoint.parse(shown["last_checkpoint"].encode())
    policy.check(proof.checkpoint, float(shown["now"]), last, proof.consistency)
    entry = LogEntry.of_task(signed)
    LogEvidence(
        checkpoint=proof.checkpoint, entry=entry, index=proof.index, path=proof.path
    ).verify()


def _contributor(shown: Transcript) -> Contributor:
    secret = bytes.fromhex(shown["secret"]) if "secret" in shown else None
    return Contributor(Task.from_bytes(shown["task"].encode()), _digest(shown), secret)


def _value(shown: Transcript) -> None:
    _contributor(shown).prepare(shown["value"], Draws.repeating([]))


def _seal(shown: Transcript) -> None:
    answer = shown["answers"][0]
    _contributor(shown).prepare(answer["value"], Draws.repeating(answer["draws"]))


def _receipt(shown: Transcript) -> None:
    answer = shown["answers"][0]
    envelope = bytes.fromhex(answer["envelope"])
    receipt = bytes.fromhex(shown.get("receipt", answer["receipt"]))
    if not is_valid_receipt(_pin(shown, "shuffler"), _digest(shown), envelope, receipt):
        raise PeerError("the receipt is not valid")


def _inclusion(shown: Transcript) -> str:
    proof = proof_from_wire(ParseDict(shown["inclusion"], shuffler_pb2.GetInclusionResponse()))
    own = bytes.fromhex(shown["leaf"])
    return "" if proof.includes(own, _pin(shown, "analyzer"), _digest(shown)) else "absent"


def _token(shown: Transcript) -> None:
    tokens, stated = Task.from_bytes(shown["task"].encode()).tokens, shown["token"]
    assert tokens is not None
    key, challenge = tokens.token_key(), tokens.challenge(_digest(shown))
    pending = PendingToken.draw(key, challenge, Draws.repeating(stated["draws"]).bytes)
    assert stated["challenge"] == challenge.hex()
    assert stated["blinded"] == pending.blinded().hex()
    token = pending.finalize(bytes.fromhex(stated["blind_signature"]))
    assert stated["token"] == token.hex()


_STEPS: Final[Mapping[str, Callable[[Transcript], Any]]] = {
    "task": _task,
    "log": _log,
    "value": _value,
    "seal": _seal,
    "receipt": _receipt,
    "inclusion": _inclusion,
    "token": _token,
}


@pytest.mark.parametrize(
    "name",
    [name if name in _QUICK else pytest.param(name, marks=pytest.mark.slow) for name in _NAMES],
)
def test_the_files_are_what_the_generator_makes(name: str) -> None:
    """Its draws and keys are fixed, so a difference is a change of the device."""
    made = dense(make(name.removeprefix("transcript-")))

    assert made + "\n" == (FOLDER / name).with_suffix(".json").read_text(encoding="utf-8")


def test_there_is_a_file_for_every_case() -> None:
    """The others hold odd signatures, and edges of buckets."""
    assert [f"transcript-{name}" for name in sorted(ALL)] == _NAMES
    assert vectors("transcript_signatures") == odd_signatures()
    assert vectors("transcript_edges") == edges()
    assert vectors("transcript_budgets") == budgets()
    assert vectors("transcript_notes") == notes()


def test_changed_tasks_are_accepted_or_refused_as_before() -> None:
    """What one reader accepts, every reader accepts."""
    assert vectors("transcript_changes") == changes(lambda name: vectors(name)["task"])


@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_the_claims_hold(step: int) -> None:
    """δ at the claim is what it was, to the accuracy of the bound; fast: each third."""
    for claim in vectors("transcript_claims")[::step]:
        task = Task.from_bytes(claim["task"].encode())

        assert claim["delta_at_claim"] == pytest.approx(delta_at_claim(task), rel=1e-9)
        assert claim["delta_at_claim"] <= task.delta


@pytest.mark.parametrize("row", vectors("transcript_budgets"), ids=lambda row: row["local"])
def test_a_cap_below_a_total_refuses_the_last_answer(row: Transcript) -> None:
    """A cap of the total itself does not."""
    *spent, last = (
        Claim(local_epsilon=float(local), central_epsilon=central, delta=delta)
        for local, central, delta in row["claims"]
    )
    local, central = float(row["local"]), float(row["central"])
    policy = replace(
        generous(_pin(vectors(_NAMES[0]), "analyzer")),
        total_local_epsilon_cap=local,
        total_central_epsilon_cap=central,
        total_delta_cap=row["delta"],
    )
    lower: dict[str, Any] = {"total_central_epsilon_cap": central * 0.999}
    if local < float("inf"):
        lower |= {"total_local_epsilon_cap": local * 0.999}

    check_totals(policy, spent, last)
    for name, cap in lower.items():
        with pytest.raises(BudgetError, match=name):
            check_totals(replace(policy, **{name: cap}), spent, last)


@pytest.mark.parametrize("name", _NAMES)
def test_a_transcript_is_verified_step_by_step(name: str) -> None:
    """Task, place in the log, receipt, inclusion and, if there is one, token."""
    shown = vectors(name)

    assert shown["task"] == _task(shown).to_bytes().decode()
    assert "" == _inclusion(shown)
    for step in (_log, _receipt, *([_token] if "token" in shown else [])):
        step(shown)


@pytest.mark.parametrize("name", _NAMES)
def test_the_same_draws_give_the_same_reports(name: str) -> None:
    """In the same order and with the same bounds, each used once; the given envelope opens."""
    shown, digest = vectors(name), _digest(vectors(name))
    task = Task.from_bytes(shown["task"].encode())
    analyzer, shuffler = (
        HpkePrivateKey(task.suite, bytes.fromhex(shown["private_keys"][party]))
        for party in ("analyzer", "shuffler")
    )

    def opened(envelope: bytes) -> tuple[str, list[str], list[bytes]]:
        plaintext = shuffler.open(envelope, envelope_context(digest))
        submission_id, together = split_submission(plaintext)
        each = split_every(together, task.sealed_report_bytes)
        reports = [analyzer.open(one, report_context(digest)).hex() for one in each]
        return submission_id.hex(), reports, each

    for answer in shown["answers"]:
        draws = Draws.repeating(answer["draws"])
        prepared = _contributor(shown).prepare(answer["value"], draws)
        submission_id, reports, _ = opened(prepared.envelope)
        given_id, given, each = opened(bytes.fromhex(answer["envelope"]))

        assert answer["draws"] == draws.record
        assert answer["reports"] == reports == given
        assert answer["submission_id"] == submission_id == given_id
        assert answer["leaves"] == [leaf(one).hex() for one in each]


def _outcome(shown: Transcript) -> Any:
    try:
        return _STEPS[shown["step"]](shown)
    except Exception as error:  # noqa: BLE001  # its name is compared
        return type(error).__name__


@pytest.mark.parametrize("name", _NAMES)
def test_every_failing_twin_is_refused(name: str) -> None:
    """By its step, with its error."""
    good = vectors(name)

    expected = {twin["why"]: twin["error"] for twin in good["failing"]}
    assert expected == {twin["why"]: _outcome(good | twin) for twin in good["failing"]}


@pytest.mark.parametrize("odd", vectors("transcript_signatures"), ids=lambda odd: odd["why"])
def test_odd_keys_and_signatures_are_refused(odd: dict[str, Any]) -> None:
    """OpenSSL alone accepts forgeries of keys of small order, which no identity can have."""
    label, message = odd["label"].encode(), bytes.fromhex(odd["message"])
    try:
        key = PublicIdentity(bytes.fromhex(odd["key"]))
    except WireError:
        assert not odd["valid"]
    else:
        signature = bytes.fromhex(odd["signature"])
        assert odd["valid"] == key.is_valid_signature(label, message, signature)
