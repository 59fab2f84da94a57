"""Failing twins of the transcripts: one change each, and the name of the error that it causes."""

import dataclasses
import math
from base64 import b64encode
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from google.protobuf.json_format import MessageToDict

from common.crypto.signing import KeyUse, SigningIdentity, digest_of, prove_key
from common.limits import MAX_UNIX_TIME
from common.task.task import Task
from common.wire.transparency import log_proof_to_wire
from tests.vectors.transcript_log import ANALYZER, DAY, NOW, STRANGER, log_of, public

Twins = Sequence[tuple[str, str, Mapping[str, Any]]]
"""Why each fails, its error, and the fields of the transcript that are replaced."""


def twins_of(task: Task, good: Mapping[str, Any], refused: object) -> list[dict[str, Any]]:
    """Return the failing twins of a transcript, each with the step that fails."""
    by_step: dict[str, Twins] = {
        "task": _tasks(task, good),
        "value": [("a value outside", "ValueRangeError", {"value": refused})],
        "log": _logs(task, good) if "token" in good else [],
        "receipt": [("a changed receipt", "PeerError", {"receipt": _receipt(good)})],
        "inclusion": _proofs(good),
        "token": _tokens(good) if "token" in good else [],
    }
    return [
        {"step": step, "why": why, "error": error, **changes}
        for step, twins in by_step.items()
        for why, error, changes in twins
    ]


def _base64(raw: bytes) -> str:
    return b64encode(raw).decode()


def _flipped(raw: bytes, at: int) -> bytes:
    return raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :]


def _shown(text: str, identity: SigningIdentity = ANALYZER, signed: str = "") -> dict[str, Any]:
    """Return the fields of a transcript that show a text as a task, signed or as `signed`."""
    raw = text.encode()
    signature = identity.sign((signed or text).encode()).signature
    task = {"task": _base64(raw), "signature": _base64(signature)}
    return {"digest": digest_of(raw).hex(), "fetch": {"task": task}}


def _tasks(task: Task, good: Mapping[str, Any]) -> Twins:
    text, spec, [shuffler] = good["task"], task.item_mechanism, task.shufflers
    pins, policy = good["pins"], good["policy"]
    stranger = prove_key(STRANGER, KeyUse.ENVELOPES, task.suite, shuffler.key, end=MAX_UNIX_TIME)

    def changed(**changes: Any) -> dict[str, Any]:  # of any type
        return _shown(dataclasses.replace(task, **changes).to_bytes().decode())

    def with_proof(proof: bytes) -> dict[str, Any]:
        return changed(shufflers=(dataclasses.replace(shuffler, proof=proof),))

    def edited(old: str, new: str) -> dict[str, Any]:
        assert old in text
        return _shown(text.replace(old, new, 1))

    weight, length = f'"true_weight":"{spec.true_weight}"', f'"report_bytes":{spec.report_bytes}'
    tampered = text.replace(f'"n_min":{task.n_min}', f'"n_min":{task.n_min - 1}')
    twins = [
        ("a tampered byte", "ProofError", _shown(tampered, signed=text)),
        ("another digest", "ProofError", {"digest": bytes(32).hex()}),
        ("another analyzer", "ProofError", _shown(text, STRANGER)),
        ("an unsigned key", "ProofError", with_proof(b"")),
        ("a key signed by a stranger", "ProofError", with_proof(stranger)),
        ("another pin", "ProofError", {"pins": pins | {"shuffler": public(STRANGER)}}),
        ("an unknown field", "TaskError", _shown(text[:-1] + ',"zeta":0}')),
        ("a later format", "TaskError", edited('"version":2', '"version":3')),
        ("a rounded number", "TaskError", edited('"delta":1e-06', '"delta":0.000001')),
        ("a weight as a number", "TaskError", edited(weight, weight.replace(':"', ":")[:-1])),
        ("spaces", "TaskError", edited(":", ": ")),
        ("a stated default", "TaskError", edited(',"shufflers"', ',"series":"","shufflers"')),
        ("another length of reports", "TaskError", edited(length, f"{length}0")),
        ("a deadline that has passed", "PolicyError", {"now": task.deadline}),
    ]
    if math.isfinite(task.local_epsilon):
        cap = {"policy": policy | {"local_epsilon_cap": task.local_epsilon * 0.99}}
        more = changed(mechanism=dataclasses.replace(spec, true_weight=spec.true_weight + 1))
        twins += [
            ("a local epsilon above the cap", "PolicyError", cap),
            ("a weight that is one too large", "PolicyError", more),
        ]
    if task.amplified and not good["checked_by_witnesses"]:
        lower = changed(central_epsilon=float(f"{task.central_epsilon * 0.98:.4g}"))
        twins.append(("a central epsilon 2 % too low", "PolicyError", lower))
    if task.tokens is None:
        strict = {"policy": policy | {"allow_tasks_without_tokens": False}}
        return [*twins, ("a task without tokens", "PolicyError", strict)]
    forged = prove_key(
        STRANGER, KeyUse.TOKENS, task.tokens.issuer, task.tokens.key, end=MAX_UNIX_TIME
    )
    proof, early = task.tokens.proof.hex(), (NOW.to_bytes(8) + forged[8:]).hex()
    return [
        *twins,
        ("a token key signed by a stranger", "ProofError", edited(proof, forged.hex())),
        ("a token key that ends early", "TaskError", edited(proof, early)),
    ]


def _logs(task: Task, good: Mapping[str, Any]) -> Twins:
    signed = ANALYZER.sign(task.to_bytes())
    last, proof = log_of(signed)
    head, (own, cosigned, *_) = proof.checkpoint.checkpoint, proof.checkpoint.signatures
    broken = dataclasses.replace(cosigned, signature=_flipped(cosigned.signature, 30))

    def shown(**changes: Any) -> dict[str, Any]:  # of any type
        place = MessageToDict(log_proof_to_wire(dataclasses.replace(proof, **changes)))
        return {"fetch": {"task": good["fetch"]["task"], "logProof": place}}

    def after(size: int, root: bytes) -> dict[str, Any]:
        other = dataclasses.replace(last.checkpoint, size=size, root=root).sign(ANALYZER)
        return {"last_checkpoint": other.to_bytes().decode()}

    few = log_of(signed, cosigned=1)[1].checkpoint
    forged = dataclasses.replace(head, root=bytes(32)).sign(STRANGER)
    lines = dataclasses.replace(proof.checkpoint, signatures=(own, broken))
    return [
        ("no proof", "ProofError", {"fetch": {"task": good["fetch"]["task"]}}),
        ("a stale checkpoint", "WitnessQuorumError", {"now": NOW + 8 * DAY}),
        ("cosignatures of the future", "WitnessQuorumError", {"now": NOW - 400}),
        ("a missed quorum", "WitnessQuorumError", shown(checkpoint=few)),
        ("another log", "ProofError", shown(checkpoint=forged)),
        ("a broken cosignature", "ProofError", shown(checkpoint=lines)),
        ("a forged path", "ProofError", shown(path=(bytes(32), *proof.path[1:]))),
        ("a shorter path", "ProofError", shown(path=proof.path[1:])),
        ("another index", "ProofError", shown(index=5)),
        ("an index beyond the log", "ProofError", shown(index=7)),
        ("a fork", "ForkError", after(3, bytes(32))),
        ("no consistency proof", "ForkError", shown(consistency=())),
        ("a smaller log", "ProofError", after(9, bytes(32))),
    ]


def _receipt(good: Mapping[str, Any]) -> str:
    return _flipped(bytes.fromhex(good["answers"][0]["receipt"]), 50).hex()


def _proofs(good: Mapping[str, Any]) -> Twins:
    proof, commitment = good["inclusion"], good["inclusion"]["commitment"]

    def shown(**changes: Any) -> dict[str, Any]:  # of any type
        return {"inclusion": proof | changes}

    other_root = shown(commitment=commitment | {"root": _base64(bytes(32))})
    absent = {"leaf": sha256(b"absent").hexdigest()}
    return [
        *([] if "path" in proof else [("an absent leaf", "absent", absent)]),
        ("a changed root", "ProofError", other_root),
        ("another depth", "ProofError", shown(commitment=commitment | {"bits": 5})),
        ("a longer path", "ProofError", shown(path=_base64(bytes(64)))),
        ("a bucket without leaves", "ProofError", shown(bucket=_base64(bytes(4)))),
        ("a bucket that is cut", "WireError", shown(bucket=_base64(b"\0\0\1\0" + bytes(32)))),
    ]


def _tokens(good: Mapping[str, Any]) -> Twins:
    signature = bytes.fromhex(good["token"]["blind_signature"])
    token = good["token"] | {"blind_signature": _flipped(signature, 9).hex()}
    return [("another blind signature", "ProofError", {"token": token})]
