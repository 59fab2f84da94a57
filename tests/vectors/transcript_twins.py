"""Failing twins of the transcripts: one change each, and the name of the error that it causes."""

import dataclasses
import json
import math
from base64 import b64encode
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from google.protobuf.json_format import MessageToDict, ParseDict

from shuffledp.common.crypto.signing import KeyUse, SigningIdentity, digest_of, prove_key
from shuffledp.common.limits import MAX_UNIX_TIME
from shuffledp.common.messages import inclusion_proof
from shuffledp.common.messages.batch import BatchId
from shuffledp.common.task.specs import KeyValueSpec, MechanismSpec, RapporSpec
from shuffledp.common.task.task import Task
from shuffledp.common.task.task_parts import TaskShuffler
from shuffledp.common.task_digest import TaskDigest
from shuffledp.common.wire.batches import proof_to_wire
from shuffledp.common.wire.transparency import log_proof_to_wire
from shuffledp.protos.shuffledp.v1 import shuffler_pb2
from tests.vectors.transcript_log import (
    ANALYZER,
    DAY,
    NOW,
    RELAY,
    SHUFFLER,
    STRANGER,
    log_of,
    public,
)

Twins = Sequence[tuple[str, str, Mapping[str, Any]]]
"""Why each fails, its error, and the fields of the transcript that are replaced."""


def twins_of(
    task: Task, good: Mapping[str, Any], refused: object, *, every: bool
) -> list[dict[str, Any]]:
    """Return the failing twins of a transcript, each with the step that fails."""
    by_step: dict[str, Twins] = {
        "task": [*(_signatures(task, good) if every else ()), *_claims(task, good)],
        "value": [("a value outside", "ValueRangeError", {"value": refused})],
    }
    if every:
        by_step |= {
            "seal": _seals(task, good),
            "log": _logs(task, good),
            "receipt": [("a changed receipt", "PeerError", {"receipt": _receipt(good)})],
            "inclusion": _proofs(good),
        }
    if "token" in good:
        by_step |= {"token": _tokens(good)}
    if task.relay:
        by_step["task"] = [*by_step["task"], *_relays(task, task.relay, good)]
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


def _changed(task: Task, **changes: Any) -> dict[str, Any]:  # of any type
    return _shown(dataclasses.replace(task, **changes).to_bytes().decode())


def _edited(text: str, old: str, new: str) -> dict[str, Any]:
    assert old in text
    return _shown(text.replace(old, new, 1))


def _signatures(task: Task, good: Mapping[str, Any]) -> Twins:
    """Return twins that are the same for every protocol."""
    text, [shuffler], pins, policy = good["task"], task.shufflers, good["pins"], good["policy"]

    def key_of(identity: SigningIdentity, end: int = MAX_UNIX_TIME) -> bytes:
        return prove_key(identity, KeyUse.ENVELOPES, task.suite, shuffler.key, end=end)

    def with_proof(proof: bytes) -> dict[str, Any]:
        return _changed(task, shufflers=(dataclasses.replace(shuffler, proof=proof),))

    tampered = text.replace(f'"n_min":{task.n_min}', f'"n_min":{task.n_min - 1}')
    early = key_of(SHUFFLER, task.deadline - 1).hex()
    twins = [
        ("a tampered byte", "ProofError", _shown(tampered, signed=text)),
        ("another digest", "ProofError", {"digest": bytes(32).hex()}),
        ("another analyzer", "ProofError", _shown(text, STRANGER)),
        ("an unsigned key", "ProofError", with_proof(b"")),
        ("a key signed by a stranger", "ProofError", with_proof(key_of(STRANGER))),
        ("a key that ends early", "TaskError", _edited(text, shuffler.proof.hex(), early)),
        ("another pin", "ProofError", {"pins": pins | {"shuffler": public(STRANGER)}}),
        ("an unknown field", "TaskError", _shown(text[:-1] + ',"zeta":0}')),
        ("a later format", "TaskError", _edited(text, '"version":2', '"version":3')),
        ("a rounded number", "TaskError", _edited(text, '"delta":1e-06', '"delta":0.000001')),
        ("spaces", "TaskError", _edited(text, ":", ": ")),
        (
            "a stated default",
            "TaskError",
            _edited(text, ',"shufflers"', ',"series":"","shufflers"'),
        ),
        ("a deadline that has passed", "PolicyError", {"now": task.deadline}),
    ]
    if task.tokens is None:
        strict = {"policy": policy | {"allow_tasks_without_tokens": False}}
        return [*twins, ("a task without tokens", "PolicyError", strict)]
    forged = prove_key(
        STRANGER, KeyUse.TOKENS, task.tokens.issuer, task.tokens.key, end=MAX_UNIX_TIME
    )
    proof, early = task.tokens.proof.hex(), (NOW.to_bytes(8) + forged[8:]).hex()
    return [
        *twins,
        ("no pinned issuer", "PolicyError", {"pins": pins | {"issuer": None}}),
        ("a token key signed by a stranger", "ProofError", _edited(text, proof, forged.hex())),
        ("a token key that ends early", "TaskError", _edited(text, proof, early)),
    ]


def _claims(task: Task, good: Mapping[str, Any]) -> Twins:
    """Return twins of what the protocol states."""
    text, spec, policy = good["task"], task.mechanism, good["policy"]
    length = f'"report_bytes":{spec.report_bytes}'
    twins = [("another length of reports", "TaskError", _edited(text, length, f"{length}0"))]
    if isinstance(spec, MechanismSpec):
        weight = f'"true_weight":"{spec.true_weight}"'
        number = weight.replace(':"', ":")[:-1]
        twins.append(("a weight as a number", "TaskError", _edited(text, weight, number)))
    if math.isfinite(task.local_epsilon):
        cap = {"policy": policy | {"local_epsilon_cap": task.local_epsilon * 0.99}}
        twins.append(("a local epsilon above the cap", "PolicyError", cap))
        twins.append(("weights above the claim", "PolicyError", _changed(task, **_weaker(task))))
    if task.lasting:
        strict = {"policy": policy | {"lasting_responses": False}}
        twins.append(("a question that is asked again", "PolicyError", strict))
    if task.amplified and not good["checked_by_witnesses"]:
        lower = _changed(task, central_epsilon=float(f"{task.central_epsilon * 0.98:.4g}"))
        twins.append(("a central epsilon 2 % too low", "PolicyError", lower))
    return twins


def _weaker(task: Task) -> dict[str, Any]:
    """Return a mechanism, or for RAPPOR a claim, whose odds are above what the task claims."""
    spec, name = task.mechanism, "true_weight"
    if isinstance(spec, RapporSpec):
        lower = math.nextafter(task.local_epsilon, 0)
        central = min(lower, task.central_epsilon)
        return {"local_epsilon": lower, "coalition_epsilon": lower, "central_epsilon": central}
    more = 1
    if isinstance(spec, KeyValueSpec):  # the sum of two ε has some room
        name, more = "value_true_weight", 2**8
    elif spec.name == "laplace":
        name, more = "scale", -1
    changed: dict[str, Any] = {name: getattr(spec, name) + more}
    return {"mechanism": dataclasses.replace(spec, **changed)}


def _seals(task: Task, good: Mapping[str, Any]) -> Twins:
    """Return twins with a key that seals nothing: a point of small order."""
    text = good["task"]
    return [
        (
            "a key of small order",
            "WireError",
            {"task": text.replace(task.analyzer_key.hex(), bytes(32).hex())},
        )
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

    cut = shown()
    cut["fetch"]["logProof"]["checkpoint"] = _base64(proof.checkpoint.to_bytes()[:-1])
    few = log_of(signed, cosigned=1)[1].checkpoint
    forged = dataclasses.replace(head, root=bytes(32)).sign(STRANGER)
    lines = dataclasses.replace(proof.checkpoint, signatures=(own, broken))
    return [
        ("no proof", "ProofError", {"fetch": {"task": good["fetch"]["task"]}}),
        ("a note that is cut", "WireError", cut),
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

    if "path" in proof:
        return [
            ("no path", "ProofError", shown(path="")),
            ("another path", "ProofError", shown(path=_base64(bytes(32)))),
        ]
    return [
        ("an absent leaf", "absent", {"leaf": sha256(b"absent").hexdigest()}),
        ("a commitment of another task", "ProofError", {"digest": bytes(32).hex()}),
        (
            "a changed root",
            "ProofError",
            shown(commitment=commitment | {"root": _base64(bytes(32))}),
        ),
        ("another depth", "ProofError", shown(commitment=commitment | {"bits": 5})),
        ("a deeper tree that the analyzer signed", "ProofError", {"inclusion": _deeper(good)}),
        ("a longer path", "ProofError", shown(path=_base64(bytes(64)))),
        ("a bucket without leaves", "ProofError", shown(bucket=_base64(bytes(4)))),
        ("a bucket that is cut", "WireError", shown(bucket=_base64(b"\0\0\1\0" + bytes(32)))),
    ]


def _deeper(good: Mapping[str, Any]) -> dict[str, Any]:
    """Return the proof of a tree with one bucket beside the whole batch."""
    found = ParseDict(good["inclusion"], shuffler_pb2.GetInclusionResponse())
    bucket, commitment = found.bucket[4:], found.commitment
    place = inclusion_proof.prefix_of(
        inclusion_proof.salted(commitment.salt, bytes.fromhex(good["leaf"])), 1
    )
    hashes = bytes(32), inclusion_proof.bucket_hash(bucket)
    tree = inclusion_proof.Tree(512, b"".join(hashes if place else reversed(hashes)))
    tree.n_leaves = commitment.n_leaves
    digest, batch_id = TaskDigest(commitment.task_digest), BatchId(commitment.batch_id)
    signed = inclusion_proof.BatchCommitment.sign(ANALYZER, digest, batch_id, tree, commitment.salt)
    proof = inclusion_proof.InclusionProof(commitment=signed, bucket=bucket, path=tree.path(place))
    return MessageToDict(proof_to_wire(proof, len(bucket) // 32))


def _relays(task: Task, relay: TaskShuffler, good: Mapping[str, Any]) -> Twins:
    """Return twins of a second shuffler, and of the claim against either one."""
    text, pins = good["task"], good["pins"]
    name, key, proof = '"name":"second.example"', f'"key":"{relay.key.hex()}"', relay.proof.hex()
    lower = float(f"{task.coalition_epsilon * 0.98:.4g}")
    claim = f'"coalition_epsilon":{task.coalition_epsilon}'

    def signed(identity: SigningIdentity, use: KeyUse = KeyUse.LAYERS, end: int = NOW) -> str:
        return prove_key(identity, use, task.suite, relay.key, end).hex()

    def with_proof(given: str) -> dict[str, Any]:
        return _edited(text, proof, given)

    stranger, first = signed(STRANGER, end=MAX_UNIX_TIME), signed(SHUFFLER, end=MAX_UNIX_TIME)
    of_envelopes = signed(RELAY, KeyUse.ENVELOPES, MAX_UNIX_TIME)
    noise = {"noise": json.loads(text)["shufflers"][1]["noise"]}
    kept = '"keep_weight":"7",'
    own = json.dumps(noise, separators=(",", ":"), sort_keys=True)[1:-1]
    checked = not good["checked_by_witnesses"]
    low = [
        ("a coalition epsilon 2 % too low", "PolicyError", _changed(task, coalition_epsilon=lower))
    ]
    return [
        *low * checked,
        ("a relay's unsigned key", "ProofError", _edited(text, f',"proof":"{proof}"', "")),
        ("a relay's key signed by a stranger", "ProofError", with_proof(stranger)),
        ("a relay's key signed by the first shuffler", "ProofError", with_proof(first)),
        ("a relay's key signed for envelopes", "ProofError", with_proof(of_envelopes)),
        ("a relay's key that has expired", "TaskError", with_proof(signed(RELAY))),
        ("another pin of the relay", "ProofError", {"pins": pins | {"relay": public(STRANGER)}}),
        ("another pinned name", "PolicyError", {"pins": pins | {"shuffler_name": "x"}}),
        ("another pinned name of the relay", "PolicyError", {"pins": pins | {"relay_name": "x"}}),
        ("two equal names", "TaskError", _edited(text, name, '"name":"first.example"')),
        ("a relay without a name", "TaskError", _edited(text, f"{name},", "")),
        ("two equal keys", "TaskError", _edited(text, key, f'"key":"{task.shuffler_key.hex()}"')),
        (
            "a relay that only permutes",
            "TaskError",
            _edited(text, f"{name},{own}", f'{name},"noise":[{{"distribution":"none"}}]'),
        ),
        ("a relay that samples", "TaskError", _edited(text, key, f"{kept}{key}")),
        ("a coalition epsilon of 0", "TaskError", _edited(text, claim, '"coalition_epsilon":0.0')),
    ]


def _tokens(good: Mapping[str, Any]) -> Twins:
    signature = bytes.fromhex(good["token"]["blind_signature"])
    token = good["token"] | {"blind_signature": _flipped(signature, 9).hex()}
    return [("another blind signature", "ProofError", {"token": token})]
