"""
Make tests/vectors/transcript-*.json and chain-*.json: whole answers, from a task's bytes to its
inclusion.

Run as `python -m tests.vectors.make_transcripts`. A transcript holds a task as the shuffler sends
it, randomness as uniform integers, and what a device must make of both; and failing twins, each
with the change that breaks it and the error's name. Every device is held to these files, whatever
its language. All keys, draws and ephemeral keys are fixed, so the files are the same each time.
"""

import dataclasses
import hmac
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305
from google.protobuf.json_format import MessageToDict

from shuffledp.analyzer.task_builder import complete
from shuffledp.common.accounting.claims import delta_at_claim
from shuffledp.common.accounting.privacy_parameters import PrivacyParameters
from shuffledp.common.crypto import hpke
from shuffledp.common.crypto.hpke import split_every as split
from shuffledp.common.crypto.privacy_tokens import PendingToken
from shuffledp.common.crypto.signing import (
    KeyUse,
    SigningIdentity,
    digest_of,
    prove_key,
    sign_receipt,
    signed_key,
)
from shuffledp.common.crypto.token_signing import TokenSigningKey
from shuffledp.common.errors import AccountingError
from shuffledp.common.limits import MAX_UNIX_TIME
from shuffledp.common.messages.inclusion_proof import leaf
from shuffledp.common.messages.submission import Value, split_submission
from shuffledp.common.protocols import protocol_named
from shuffledp.common.task.domain_spec import EdgesSpec
from shuffledp.common.task.draft import RelayDraft
from shuffledp.common.task.named_dummies import ItemDummies
from shuffledp.common.task.shuffler_spec import BinomialNoise, GeometricNoise, ShufflerSpec
from shuffledp.common.task.specs import MechanismSpec
from shuffledp.common.task.task import Task
from shuffledp.common.task.token_spec import TokenSpec
from shuffledp.common.task.uniform_dummies import BinomialDummies
from shuffledp.common.task_digest import TaskDigest
from shuffledp.common.transparency.checkpoint import log_key
from shuffledp.common.wire.batches import proof_to_wire
from shuffledp.common.wire.tasks import signed_task_to_wire
from shuffledp.common.wire.transparency import log_proof_to_wire
from shuffledp.protos.shuffledp.v1 import shuffler_pb2
from shuffledp.user_agent.contribution import Contributor
from shuffledp.user_agent.policy import Claim, composed_total, local_total
from tests.support.leaves import GrownTree, commitment_over, some_leaves
from tests.support.tasks import draft
from tests.support.vectors import vectors
from tests.vectors.changed_notes import changed_notes
from tests.vectors.changed_tasks import changed_tasks, near_promises
from tests.vectors.odd_signatures import odd_signatures
from tests.vectors.transcript_cases import ALL, CASES, CHAINS, CLAIMS, FIVE, HIDDEN, OTHERS, Case
from tests.vectors.transcript_log import (
    ANALYZER,
    DAY,
    ISSUER,
    NOW,
    RELAY,
    SHUFFLER,
    WITNESS_KEYS,
    log_of,
    public,
)
from tests.vectors.transcript_twins import twins_of

FOLDER: Final = Path(__file__).parent


class Draws(np.random.Generator):
    """A generator that records every uniform integer with its bound, or repeats a record."""

    def __init__(self, source: Callable[[int], int]) -> None:
        """Draw from a source, which returns an integer below its argument."""
        super().__init__(np.random.PCG64(0))
        self._source = source
        self.record: list[list[str]] = []

    @classmethod
    def repeating(cls, record: Sequence[Sequence[str]]) -> "Draws":
        """Repeat a record; another bound than the recorded one is an AssertionError."""
        left = iter(record)

        def drawn(bound: int) -> int:
            expected, value = next(left)
            assert int(expected) == bound
            return int(value)

        return cls(drawn)

    def below(self, bound: int) -> int:
        """Draw and record one integer."""
        value = self._source(bound)
        self.record.append([str(bound), str(value)])
        return value

    def integers(self, low: Any, high: Any = None, **options: Any) -> Any:  # type: ignore[override]
        """Draw integers one by one, in the order of the array."""
        assert low == 0
        size, dtype = options.get("size"), options["dtype"]
        bound = int(high) + options.get("endpoint", False)
        if size is None:
            return self.below(bound)
        shape = np.empty(size, dtype=np.uint8).shape
        drawn = [self.below(bound) for _ in range(math.prod(shape))]
        return np.array(drawn, dtype=dtype).reshape(shape)

    def permutation(self, x: Any, axis: int = 0) -> Any:
        """Permute as numpy does: exchange the last with one of the first, and so on down."""
        assert axis == 0
        order = np.arange(x)
        for last in range(x - 1, 0, -1):
            at = self.below(last + 1)
            order[[last, at]] = order[[at, last]]
        return order

    def bytes(self, length: int) -> bytes:
        """Draw bytes as one integer, big-endian."""
        return self.below(256**length).to_bytes(length)


def _seeded(seed: int) -> Callable[[int], int]:
    rng = np.random.default_rng(seed)
    return lambda bound: int.from_bytes(rng.bytes(bound.bit_length() // 8 + 9)) % bound


def _edges(task: Task) -> Callable[[int], int]:
    """Draw the ends of ranges, and 16 bits that leave a coin of a unary encoding undecided."""
    spec, ends, undecided = task.mechanism, iter(range(10**6)), 0
    if isinstance(spec, MechanismSpec):
        undecided = (spec.other_weight << 16) // (spec.true_weight + spec.other_weight)
    return lambda bound: undecided if bound == 2**16 else next(ends) % 2 * (bound - 1)


def sealed(suite: str, public: bytes, info: bytes, plaintext: bytes, ephemeral: bytes) -> bytes:
    """Seal by HPKE's base mode with this ephemeral key [RFC9180, Sections 4.1, 5.1 and 5.2]."""
    chacha = suite.endswith("chacha20poly1305")
    private = X25519PrivateKey.from_private_bytes(ephemeral)
    enc = private.public_key().public_bytes_raw()
    kem = b"HPKE-v1KEM\x00\x20"
    hpke = b"HPKE-v1HPKE\x00\x20\x00\x01\x00" + (b"\x03" if chacha else b"\x01")

    def extract(salt: bytes, label: bytes, key: bytes) -> bytes:
        return hmac.digest(salt or bytes(32), label + key, sha256)

    def expand(key: bytes, label: bytes, context: bytes, length: int) -> bytes:
        return hmac.digest(key, length.to_bytes(2) + label + context + b"\x01", sha256)[:length]

    agreed = private.exchange(X25519PublicKey.from_public_bytes(public))
    secret = extract(b"", kem + b"eae_prk", agreed)
    shared = expand(secret, kem + b"shared_secret", enc + public, 32)
    context = b"\x00" + extract(b"", hpke + b"psk_id_hash", b"")
    context += extract(b"", hpke + b"info_hash", info)
    secret = extract(shared, hpke + b"secret", b"")
    key = expand(secret, hpke + b"key", context, 32 if chacha else 16)
    nonce = expand(secret, hpke + b"base_nonce", context, 12)
    aead = ChaCha20Poly1305(key) if chacha else AESGCM(key)
    return enc + aead.encrypt(nonce, plaintext, b"")


def make(name: str) -> dict[str, Any]:
    """Make the transcript of one case."""
    case = {**ALL, **CHAINS}[name]
    task = _completed(case)
    analyzer_key, shuffler_key, relay_key = keys = _keys(case)
    signed = ANALYZER.sign(task.to_bytes())
    digest = signed.digest()
    last, proof = log_of(signed)
    fetched = shuffler_pb2.FetchTaskResponse(
        task=signed_task_to_wire(signed), log_proof=log_proof_to_wire(proof)
    )
    seeds: list[int | None] = [*range(len(case.values))]
    protocol = protocol_named(case.protocol)
    if protocol.dummy_distributions == () and protocol.kind == "categorical" and name in CASES:
        seeds.append(None)
    answers = [
        _answer(task, case.values[seed or 0], keys, seed, secret=case.secret) for seed in seeds
    ]
    own = [bytes.fromhex(each) for each in answers[0]["leaves"]]
    names = [each.name for each in task.shufflers]
    found: dict[str, Any] = {
        "pins": {
            "analyzer": public(ANALYZER),
            "shuffler": public(SHUFFLER),
            "issuer": public(ISSUER),
            "witnesses": [key.to_text() for key in WITNESS_KEYS],
            "quorum": 2,
            **({"relay": public(RELAY)} if case.relay else {}),
            **dict(zip(("shuffler_name", "relay_name"), names if case.relay else (), strict=False)),
        },
        "policy": {
            "local_epsilon_cap": "inf" if math.isinf(task.local_epsilon) else task.local_epsilon,
            "allow_tasks_without_tokens": not case.tokens,
            "lasting_responses": task.lasting,
        },
        "checked_by_witnesses": case.checked_by_witnesses,
        "now": NOW,
        "private_keys": {
            "analyzer": analyzer_key.private_bytes().hex(),
            "shuffler": shuffler_key.private_bytes().hex(),
            **({"relay": relay_key.private_bytes().hex()} if case.relay else {}),
        },
        "task": task.to_bytes().decode(),
        "digest": digest.hex(),
        "last_checkpoint": last.to_bytes().decode(),
        "fetch": MessageToDict(fetched),
        "answers": answers,
        "inclusion": _inclusion(
            digest, own, 520 if case.tokens else 5, RELAY if case.relay else ANALYZER
        ),
        "leaf": own[0].hex(),
    }
    if case.secret is not None:
        found["secret"] = case.secret.hex()
    if case.tokens:
        found["token"] = _token(task, digest)
    found["failing"] = twins_of(task, found, case.refused, every=case.every_twin)
    if case.relay:
        found["layer"], *wrong = _layers(task, digest, keys, answers[0])
        found["failing"] += wrong
    return found


Keys = tuple[hpke.HpkePrivateKey, hpke.HpkePrivateKey, hpke.HpkePrivateKey]


def _keys(case: Case) -> Keys:
    """Return the keys of the analyzer, the shuffler and a relay."""
    suite = f"x25519-hkdf-sha256-{'aes128gcm' if case.aes else 'chacha20poly1305'}"
    first, second, third = (hpke.HpkePrivateKey(suite, bytes([n]) * 32) for n in (0x11, 0x12, 0x13))
    return first, second, third


def _completed(case: Case) -> Task:
    analyzer_key, shuffler_key, relay_key = _keys(case)
    key = TokenSigningKey(bytes.fromhex(vectors("privacy_tokens")[0]["private_key"])).token_key()
    proof = prove_key(ISSUER, KeyUse.TOKENS, "issuer.example", key.der, MAX_UNIX_TIME)
    wanted: dict[str, Any] = {
        "domain_size": 1,
        "buckets": 0,
        "dummies_per_user": 0.0,
        "n_min": 1000,
        "target_size": 10**7,
        "deadline": NOW + 10 * DAY,
        "suite": analyzer_key.suite,
        "tokens": TokenSpec(issuer="issuer.example", key=key.der, proof=proof)
        if case.tokens
        else None,
    }
    if case.relay:
        layers = signed_key(RELAY, KeyUse.LAYERS, relay_key.public_key(), MAX_UNIX_TIME)
        wanted["relay"] = RelayDraft(name="second.example", key=layers, noise=case.relay)
    return complete(
        draft(
            signed_key(SHUFFLER, KeyUse.ENVELOPES, shuffler_key.public_key(), MAX_UNIX_TIME),
            protocol=case.protocol,
            **wanted | dict(case.changes),
        ),
        analyzer_key=analyzer_key.public_key().raw,
        nonce=bytes(range(32)),
    )


def _answer(
    task: Task, value: Value, keys: Keys, seed: int | None, *, secret: bytes | None
) -> dict[str, Any]:
    """Answer a task, and seal the reports again with ephemeral keys that are known."""
    digest, (analyzer_key, shuffler_key, relay_key) = digest_of(task.to_bytes()), keys
    draws = Draws(_edges(task) if seed is None else _seeded(seed))
    envelope = Contributor(task, digest, secret).prepare(value, draws).envelope
    opened = shuffler_key.open(envelope, hpke.envelope_context(digest))
    submission_id, sealed_reports = split_submission(opened)
    layers = split(sealed_reports, task.sent_report_bytes)
    context = hpke.layer_context(digest, 1)
    inner = [relay_key.open(each, context) for each in layers] if task.relay else layers
    reports = [analyzer_key.open(each, hpke.report_context(digest)) for each in inner]
    n_keys = len(task.shufflers) * len(reports) + 1
    ephemeral = [sha256(bytes([n]) + submission_id).digest() for n in range(n_keys)]
    again = [
        sealed(task.suite, task.analyzer_key, hpke.report_context(digest), report, key)
        for report, key in zip(reports, ephemeral, strict=False)
    ]
    if task.relay:
        again = [
            sealed(task.suite, task.relay.key, context, each, key)
            for each, key in zip(again, ephemeral[len(reports) :], strict=False)
        ]
    plaintext = submission_id + b"".join(again)
    envelope = sealed(
        task.suite, task.shuffler_key, hpke.envelope_context(digest), plaintext, ephemeral[-1]
    )
    return {
        "value": value,
        "draws": draws.record,
        "reports": [report.hex() for report in reports],
        "submission_id": submission_id.hex(),
        "ephemeral_keys": [key.hex() for key in ephemeral],
        "envelope": envelope.hex(),
        "leaves": [leaf(each).hex() for each in again],
        "receipt": sign_receipt(SHUFFLER, digest, envelope).hex(),
    }


def _layers(task: Task, digest: TaskDigest, keys: Keys, answer: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the first report under a layer, and failing twins that the relay does not open."""
    (report, *_), (own, *_) = answer["reports"], answer["ephemeral_keys"]
    _, first, second = (key.public_key().raw for key in keys)
    inner = bytes.fromhex(report)
    inner = sealed(
        task.suite, task.analyzer_key, hpke.report_context(digest), inner, bytes.fromhex(own)
    )
    rows = (
        ("", second, hpke.layer_context(digest, 1)),
        ("a layer of the first hop", second, hpke.layer_context(digest, 0)),
        ("a layer of a third hop", second, hpke.layer_context(digest, 2)),
        ("a layer without a hop", second, hpke.layer_context(digest, 1)[:-1]),
        ("a layer of another task", second, hpke.layer_context(TaskDigest(bytes(32)), 1)),
        ("a layer sealed as a report", second, hpke.report_context(digest)),
        ("a layer sealed as an envelope", second, hpke.envelope_context(digest)),
        ("a layer to the first shuffler", first, hpke.layer_context(digest, 1)),
    )
    for number, (why, key, context) in enumerate(rows):
        ephemeral = sha256(b"layer" + bytes([number])).digest()
        layer = sealed(task.suite, key, context, inner, ephemeral).hex()
        yield {"step": "layer", "why": why, "error": "WireError", "layer": layer} if why else layer


def _inclusion(
    digest: TaskDigest, own: list[bytes], size: int, signer: SigningIdentity
) -> dict[str, Any]:
    """Return the answer of the shuffler for the first leaf's bucket, of reports or of layers."""
    leaves = own + some_leaves(size)
    tree, commitment = GrownTree(leaves), commitment_over(leaves, signer, digest)
    proof = tree.prove(commitment, commitment.prefix_of(own[0]))
    return MessageToDict(proof_to_wire(proof, tree.largest_bucket))


def _token(task: Task, digest: TaskDigest) -> dict[str, Any]:
    assert task.tokens is not None
    draws = Draws(_seeded(9))
    signer = TokenSigningKey(bytes.fromhex(vectors("privacy_tokens")[0]["private_key"]))
    pending = PendingToken.draw(task.tokens.token_key(), task.tokens.challenge(digest), draws.bytes)
    signature = signer.blind_sign(pending.blinded())
    return {
        "draws": draws.record,
        "challenge": pending.challenge.hex(),
        "blinded": pending.blinded().hex(),
        "blind_signature": signature.hex(),
        "token": pending.finalize(signature).hex(),
    }


def edges() -> list[dict[str, Any]]:
    """Return computed edges of buckets, which must be the same in every language."""
    specs = [
        EdgesSpec(low=0.0, high=1.0, buckets=10),
        EdgesSpec(low=-1.5, high=36.6, buckets=7),
        EdgesSpec(low=0.0, high=1e9, buckets=3),
        EdgesSpec(low=1e-7, high=3e-7, buckets=12),
        EdgesSpec(spacing="logarithmic", low=0.1, high=100.0, buckets=6),
        EdgesSpec(spacing="logarithmic", low=1.0, high=1024.0, buckets=10),
        EdgesSpec(spacing="logarithmic", low=3e-5, high=7e8, buckets=31),
    ]
    return [
        {name: getattr(spec, name) for name in ("low", "high", "buckets", "spacing")}
        | {"edges": spec.edges.tolist()}
        for spec in specs
    ]


_CLAIMED: Final[Sequence[tuple[str, dict[str, Any]]]] = (
    ("sh", {"domain_size": 16, "n_min": 10_000}),
    ("sh", {"domain_size": 915, "n_min": 602_325, "local_epsilon": 6.0}),
    ("sh", {"domain_size": 2, "n_min": 1_000_000, "local_epsilon": 0.5}),
    ("murs", {"domain_size": 5000, "buckets": 53, "n_min": 100_000, "local_epsilon": 4.0}),
    ("murs", {"domain_size": 100, "buckets": 3, "n_min": 1_000_000, "local_epsilon": 1.0}),
    ("mixdump", {"domain_size": 50, "dummies_per_user": 2.3, "n_min": 9000, "local_epsilon": 8.0}),
    ("puredump", {**HIDDEN, "domain_size": 400, "dummies_per_user": 7.5, "n_min": 50_000}),
    ("fe1", {**HIDDEN, "domain_size": 900, "buckets": 11, "dummies_per_user": 4.0, "n_min": 9000}),
    (
        "od-hp",
        {
            "domain_size": 900,
            "buckets": 31,
            "dummies": BinomialDummies(per_user=2, trials=9, extra_weight=2**30),
            "local_epsilon": 12.0,
            "n_min": 200_000,
            "assumed_honest_fraction": 0.9,
        },
    ),
    (
        "aue",
        {
            **HIDDEN,
            "domain_size": 300,
            "dummies": ItemDummies(trials=300, extra_weight=2**27, most=40),
            "n_min": 5000,
        },
    ),
    (
        "sbin",
        {
            **HIDDEN,
            **FIVE,
            "shuffler": ShufflerSpec(keep_weight=2**31, noise=BinomialNoise(trials=5000)),
        },
    ),
    (
        "sbin",
        {
            **HIDDEN,
            **FIVE,
            "shuffler": ShufflerSpec(keep_weight=2**30, noise=BinomialNoise(trials=24)),
            "delta": 1e-3,
        },
    ),
    (
        "sageo",
        {
            **HIDDEN,
            **FIVE,
            "shuffler": ShufflerSpec(
                keep_weight=2**30,
                noise=GeometricNoise(
                    peak=300, left_weight=2**30 - 2**26, right_weight=2**30 - 2**26, most=700
                ),
            ),
        },
    ),
)
"""Protocols and fields of tasks whose central claim every device can check in a second."""
_FEW: Final = {**HIDDEN, "n_min": 100}
_FALSE: Final[Sequence[tuple[str, dict[str, Any], Sequence[float]]]] = (
    ("puredump", {**_FEW, "domain_size": 1000, "dummies_per_user": 1.0}, (4, 36, 37, 40, 100, 710)),
    ("fe1", {**_FEW, "domain_size": 900, "buckets": 11, "dummies_per_user": 0.1}, (37, 100, 710)),
    ("sh", {"domain_size": 16, "n_min": 50, "local_epsilon": 20.0}, (0.5, 8, 16)),
    ("murs", {"domain_size": 100, "buckets": 7, "n_min": 50, "local_epsilon": 18.0}, (0.5, 8, 16)),
    (
        "aue",
        {
            **_FEW,
            "domain_size": 300,
            "dummies": ItemDummies(trials=300, extra_weight=2**27, most=40),
        },
        (4, 40, 100, 710),
    ),
    (
        "sbin",
        {
            **HIDDEN,
            **FIVE,
            "shuffler": ShufflerSpec(keep_weight=2**30, noise=BinomialNoise(trials=24)),
            "delta": 1e-9,
        },
        (12, 40, 100, 710),
    ),
)
"""Protocols and fields of tasks, and central ε that they do not keep."""
_SPENT: Final[Sequence[tuple[float, float, float]]] = (
    (2.0, 0.25, 1e-6),
    (1.0, 0.1, 1e-6),
    (0.1, 0.1, 1e-6),
    (math.inf, 0.3, 1e-7),
    (3.3, 0.07, 5e-5),
)
"""Local ε, central ε and δ of answers."""


def claims() -> list[dict[str, Any]]:
    """Return tasks, with an upper bound on the δ of their claim; null if it is beyond any bound."""
    tasks = [_completed(Case(protocol, changes, (), 0)) for protocol, changes in _CLAIMED]
    for protocol, changes, claimed in _FALSE:
        many = _completed(Case(protocol, {**changes, "n_min": 10**6, "delta": 0.01}, (), 0))
        few = {name: changes[name] for name in ("n_min", "delta") if name in changes}
        tasks += (
            dataclasses.replace(many, **few, central_epsilon=float(each), budget_epsilon=1000.0)
            for each in claimed
        )
    tasks += (dataclasses.replace(_completed(case), **claim) for case, claim in CLAIMS)
    found = []
    for task in tasks:
        try:
            delta = delta_at_claim(task)
        except AccountingError:
            delta = None
        row = {"task": task.to_bytes().decode(), "delta_at_claim": delta}
        if task.relay is not None:
            alone = PrivacyParameters.of(task).either_alone
            row["delta_of_coalition"] = alone.delta(task.coalition_epsilon)
        found.append(row)
    return found


def budgets() -> list[dict[str, Any]]:
    """Return claims of several answers, with the totals that the Python device charges."""
    spent = [
        Claim(local_epsilon=a, central_epsilon=b, delta=c, coalition_epsilon=a)
        for a, b, c in _SPENT
    ]
    together = [*(spent[: n + 1] for n in range(len(spent))), 40 * spent[1:2], 7 * spent[2:3]]
    together += [n * spent[4:] for n in (2, 3)]  # the sum of their delta is all, and more than all
    return [
        {
            "claims": [
                ["inf" if math.isinf(each) else each for each in dataclasses.astuple(one)[:3]]
                for one in claimed
            ],
            "delta": 1e-4,
            "local": repr(local_total(claimed)),
            "central": repr(composed_total(claimed, 1e-4)),
        }
        for claimed in together
    ]


def dense(content: Mapping[str, Any] | list[Any]) -> str:
    """Return JSON with a line for each field or row, and for each answer and twin of a field."""
    if isinstance(content, list):
        return _lines("[", map(_line, content), "]")
    rows = (
        f"{_line(name)}: "
        + (_lines("[", map(_line, each), "]") if name in _BY_LINE else _line(each))
        for name, each in content.items()
    )
    return _lines("{", rows, "}")


_BY_LINE: Final = {"answers", "failing"}


def _line(content: Any) -> str:  # any JSON
    return json.dumps(content, ensure_ascii=True)


def _lines(start: str, rows: Iterable[str], end: str) -> str:
    return f"{start}\n" + ",\n".join(rows) + f"\n{end}"


def notes() -> list[dict[str, Any]]:
    """Return changes of the note of the case `grr`; see `changed_notes`."""
    signed = ANALYZER.sign(_completed(CASES["grr"]).to_bytes())
    keys = (log_key(ANALYZER.public_identity()), *WITNESS_KEYS)
    return changed_notes(log_of(signed)[1].checkpoint.to_bytes(), keys)


def changes(tasks: Callable[[str], str]) -> list[dict[str, Any]]:
    """Return changes of the tasks of both lists of cases, by the names of their files."""
    first, more = (
        {name: tasks(name) for name in map("transcript-{}".format, cases)}
        for cases in (CASES, OTHERS)
    )
    grr = "transcript-grr"
    changed = changed_tasks(first, 1200) + changed_tasks(more, 440)
    return changed + near_promises(grr, first[grr])


def files() -> dict[str, Any]:
    """Return the content of every file by its name."""
    found: dict[str, Any] = {f"transcript-{name}": make(name) for name in ALL}
    found |= {name: make(name) for name in CHAINS}
    return found | {
        "transcript_signatures": odd_signatures(),
        "transcript_edges": edges(),
        "transcript_claims": claims(),
        "transcript_budgets": budgets(),
        "transcript_notes": notes(),
        "transcript_changes": changes(lambda name: found[name]["task"]),
    }


def main() -> None:
    """Write the vectors."""
    for name, content in files().items():
        (FOLDER / name).with_suffix(".json").write_text(dense(content) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
