"""The device is held to the transcripts, as devices in other languages are."""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, Final

import pytest
from google.protobuf.json_format import ParseDict

from shuffledp.common.accounting.claims import (
    check_central_claim,
    check_coalition_claim,
    delta_at_claim,
)
from shuffledp.common.accounting.privacy_parameters import PrivacyParameters
from shuffledp.common.crypto import hpke
from shuffledp.common.crypto.privacy_tokens import PendingToken
from shuffledp.common.crypto.signing import PublicIdentity, is_valid_receipt
from shuffledp.common.errors import BudgetError, PeerError, PolicyError, WireError
from shuffledp.common.messages.inclusion_proof import leaf
from shuffledp.common.messages.submission import split_submission
from shuffledp.common.task.task import Task
from shuffledp.common.task_digest import TaskDigest
from shuffledp.common.transparency.checkpoint import NoteKey, SignedCheckpoint, log_key
from shuffledp.common.transparency.log import LogEntry, LogEvidence
from shuffledp.common.transparency.witness_policy import WitnessPolicy
from shuffledp.common.wire.batches import proof_from_wire
from shuffledp.common.wire.tasks import signed_task_from_wire
from shuffledp.common.wire.transparency import log_proof_from_wire
from shuffledp.protos.shuffledp.v1 import shuffler_pb2
from shuffledp.user_agent.contribution import Contributor
from shuffledp.user_agent.policy import Claim, check, check_totals
from tests.support.policies import generous
from tests.support.tables import table
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
from tests.vectors.transcript_cases import ALL, CHAINS

_NAMES: Final = sorted(
    path.stem for form in ("transcript", "chain") for path in FOLDER.glob(f"{form}-*.json")
)
_QUICK: Final = {
    f"transcript-{name}" for name in ("ddps", "each-item", "fe1", "hashing", "symmetric-unary")
} | {*CHAINS}
"""Those for which finding the central epsilon takes a moment."""
_DEAR: Final = {
    f"transcript-{name}" for name in ("hierarchy", "mixdump", "negative-binomial", "tables")
}
"""Those whose claim takes a second to check."""

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
        relay_identity=_pin(shown, "relay") if "relay" in shown["pins"] else None,
        shuffler_name=shown["pins"].get("shuffler_name"),
        relay_name=shown["pins"].get("relay_name"),
        allow_tasks_without_tokens=shown["policy"]["allow_tasks_without_tokens"],
    )
    policy = replace(policy, lasting_responses=shown["policy"]["lasting_responses"])
    signed, now = signed_task_from_wire(_answer(shown).task), float(shown["now"])
    return check(signed, _digest(shown), policy, now)


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
    signer = _pin(shown, "relay" if "relay" in shown["pins"] else "analyzer")
    most = Task.from_bytes(shown["task"].encode()).most_leaves
    return "" if proof.includes(own, signer, _digest(shown), most) else "absent"


def _token(shown: Transcript) -> None:
    tokens, stated = Task.from_bytes(shown["task"].encode()).tokens, shown["token"]
    assert tokens is not None
    key, challenge = tokens.token_key(), tokens.challenge(_digest(shown))
    pending = PendingToken.draw(key, challenge, Draws.repeating(stated["draws"]).bytes)
    assert stated["challenge"] == challenge.hex()
    assert stated["blinded"] == pending.blinded().hex()
    token = pending.finalize(bytes.fromhex(stated["blind_signature"]))
    assert stated["token"] == token.hex()


def _layer(shown: Transcript) -> None:
    """Open a report as the relay does, and then as the analyzer."""
    suite, digest = Task.from_bytes(shown["task"].encode()).suite, _digest(shown)
    relay, analyzer = (
        hpke.HpkePrivateKey(suite, bytes.fromhex(shown["private_keys"][party]))
        for party in ("relay", "analyzer")
    )
    inner = relay.open(bytes.fromhex(shown["layer"]), hpke.layer_context(digest, 1))
    report = analyzer.open(inner, hpke.report_context(digest))
    assert shown["answers"][0]["reports"][0] == report.hex()


_STEPS: Final[Mapping[str, Callable[[Transcript], Any]]] = {
    "task": _task,
    "log": _log,
    "value": _value,
    "seal": _seal,
    "receipt": _receipt,
    "inclusion": _inclusion,
    "token": _token,
    "layer": _layer,
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
    assert sorted([*(f"transcript-{name}" for name in ALL), *CHAINS]) == _NAMES
    assert vectors("transcript_signatures") == odd_signatures()
    assert vectors("transcript_edges") == edges()
    assert vectors("transcript_budgets") == budgets()
    assert vectors("transcript_notes") == notes()


def test_changed_tasks_are_accepted_or_refused_as_before() -> None:
    """What one reader accepts, every reader accepts."""
    assert vectors("transcript_changes") == changes(lambda name: vectors(name)["task"])


@pytest.mark.parametrize("step", [9, pytest.param(1, marks=pytest.mark.slow)])
def test_the_claims_hold_or_are_refused(step: int) -> None:
    """δ at the claim is what it was, to the accuracy of the bound; fast: each ninth."""
    for claim in vectors("transcript_claims")[::step]:
        task, found = Task.from_bytes(claim["task"].encode()), claim["delta_at_claim"]

        if found is not None:
            assert found == pytest.approx(delta_at_claim(task), rel=1e-9)
        if found is not None and found <= task.delta:
            check_central_claim(task)
        else:
            with pytest.raises(PolicyError):
                check_central_claim(task)
        if task.relay is not None:
            alone = PrivacyParameters.of(task).either_alone.delta(task.coalition_epsilon)
            kept = nullcontext() if alone <= task.delta else pytest.raises(PolicyError)
            assert claim["delta_of_coalition"] == pytest.approx(alone, rel=1e-9)
            with kept:
                check_coalition_claim(task)


@table("row", vectors("transcript_budgets"))
def test_a_cap_below_a_total_refuses_the_last_answer(row: Transcript) -> None:
    """A cap of the total itself does not."""
    *spent, last = (
        Claim(
            local_epsilon=(each := float(local)),
            central_epsilon=central,
            delta=delta,
            coalition_epsilon=each,
        )
        for local, central, delta in row["claims"]
    )
    local, central = float(row["local"]), float(row["central"])
    policy = replace(
        generous(_pin(vectors(_NAMES[0]), "analyzer")),
        total_local_epsilon_cap=local,
        total_coalition_epsilon_cap=float("inf"),
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


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in _DEAR else ()) for name in _NAMES]
)
def test_a_transcript_is_verified_step_by_step(name: str) -> None:
    """Task, place in the log, receipt, inclusion and, if there is one, token."""
    shown = vectors(name)

    assert shown["task"] == _task(shown).to_bytes().decode()
    assert "" == _inclusion(shown)
    more = {"token": _token, "layer": _layer}
    for step in (_log, _receipt, *(step for name, step in more.items() if name in shown)):
        step(shown)


@table("name", _NAMES)
def test_the_same_draws_give_the_same_reports(name: str) -> None:
    """In the same order and with the same bounds, each used once; the given envelope opens."""
    shown, digest = vectors(name), _digest(vectors(name))
    task = Task.from_bytes(shown["task"].encode())
    analyzer, shuffler = (
        hpke.HpkePrivateKey(task.suite, bytes.fromhex(shown["private_keys"][party]))
        for party in ("analyzer", "shuffler")
    )
    relay = shown["private_keys"].get("relay", "")
    layer = hpke.HpkePrivateKey(task.suite, bytes.fromhex(relay)) if relay else None

    def opened(envelope: bytes) -> tuple[str, list[str], list[bytes]]:
        plaintext = shuffler.open(envelope, hpke.envelope_context(digest))
        submission_id, together = split_submission(plaintext)
        each = hpke.split_every(together, task.sent_report_bytes)
        inner = [layer.open(one, hpke.layer_context(digest, 1)) for one in each] if layer else each
        reports = [analyzer.open(one, hpke.report_context(digest)).hex() for one in inner]
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


@table("odd", vectors("transcript_signatures"))
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
