"""Tasks, keys, ciphertexts and reports, which are read as fixed or canonical bytes."""

from dataclasses import replace
from functools import partial
from typing import Any, Final

import numpy as np
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import load_der_private_key

from shuffledp.common.crypto import hpke
from shuffledp.common.crypto.privacy_tokens import PendingToken, TokenKey, token_challenge
from shuffledp.common.crypto.signing import PublicIdentity, SignedTask, SigningIdentity
from shuffledp.common.crypto.token_signing import TokenSigningKey, blind_sign
from shuffledp.common.mechanisms.base import Mechanism
from shuffledp.common.mechanisms.registry import randomizer_of
from shuffledp.common.messages.inclusion_proof import distinct_rows, leaves_of, salted_leaves
from shuffledp.common.messages.submission import split_submission
from shuffledp.common.task.task import Task, honest_share
from shuffledp.common.transparency.checkpoint import SignedCheckpoint
from shuffledp.common.transparency.log import LogEntry
from shuffledp.common.wire.issuance import MAX_CREDENTIAL_BYTES
from shuffledp.issuer.id_tokens import parse_key_set, verified_subject
from shuffledp.issuer.token_keys import HeldKey
from shuffledp.user_agent.contribution import Contributor
from tests.support.id_tokens import AUDIENCE, KEY_SET, KEYS, NOW, PROVIDER, signed
from tests.support.kind_tasks import OF_OTHER_KINDS, kind_task
from tests.support.leaves import SALT
from tests.support.mechanisms import EXAMPLES, example
from tests.support.parsers import Parser
from tests.support.protocol_tasks import ITEM_PROTOCOLS, unclaimed_task
from tests.support.tasks import published
from tests.support.transparency import LOG, Log


def _task(protocol: str) -> Task:
    """Return a small task with a claim that takes no search, true or not: parsers check none."""
    task = unclaimed_task(protocol)
    return replace(task, central_epsilon=min(task.local_epsilon, task.budget_epsilon))


_CASE: Final = published()
_DIGEST: Final = _CASE.signed.digest()
_TASKS: Final = (
    _CASE.task,
    published(domain_size=3, buckets=0, labels=("a", "b", "é")).task,
    *map(_task, ITEM_PROTOCOLS),
    *map(kind_task, OF_OTHER_KINDS),
)
_REPORT: Final = hpke.report_context(_DIGEST)
_ENVELOPE: Final = hpke.envelope_context(_DIGEST)
_MAX_ITEMS: Final = 1 << 12
_SEALED: Final = _CASE.task.sealed_report_bytes
_RAW_SIGNER: Final = TokenSigningKey.generate()
_SIGNER: Final = TokenSigningKey(_RAW_SIGNER)
_TOKEN_KEY: Final = _SIGNER.token_key()
_CHALLENGE: Final = token_challenge(_DIGEST, "issuer.example")
_PENDING: Final = PendingToken.draw(_TOKEN_KEY, _CHALLENGE, np.random.default_rng(1).bytes)
_PROVIDER_KEYS: Final = parse_key_set(KEY_SET)
_PRIVATE: Final = load_der_private_key(_RAW_SIGNER, None)
assert isinstance(_PRIVATE, RSAPrivateKey)
_BLIND_SIGNATURE: Final = _SIGNER.blind_sign(_PENDING.blinded())


def _prepared(raw: bytes) -> object:
    """Read a task as a device does, and prepare an answer's mechanism and seals."""
    task = Task.from_bytes(raw)
    task.shuffler.batch_reports(task.n_min)
    honest_share(task.n_min, task.assumed_honest_fraction)
    task.shuffler.draw_kept(3, np.random.default_rng(1))
    contributor = Contributor(task, _DIGEST)
    if task.domain_size > _MAX_ITEMS or task.lengths[-1] > _MAX_ITEMS:
        return randomizer_of(task)
    return contributor


def _verified(raw: bytes) -> None:
    signed = SignedTask(task_bytes=_CASE.signed.task_bytes, signature=raw)
    _CASE.identity.public_identity().verify(signed)


def _signed_at(raw: bytes) -> int | None:
    return SignedCheckpoint.parse(raw).signed_at(LOG)


def _distinct(raw: bytes) -> bytes:
    """Drop repeats among whole reports, like the analyzer."""
    whole = raw[: len(raw) // _SEALED * _SEALED]
    return distinct_rows(salted_leaves(leaves_of(whole, _SEALED), SALT)).tobytes()


def _counted(mechanism: Mechanism, raw: bytes) -> Any:  # an array
    """Count the valid reports, as the analyzer does."""
    size = mechanism.report_dtype.itemsize
    reports = np.frombuffer(raw[: len(raw) // size * size], dtype=mechanism.report_dtype)
    return mechanism.tally(reports[mechanism.valid(reports)])


def _of_mechanism(name: str) -> Parser:
    mechanism, rng = example(name), np.random.default_rng(1)
    values = np.array([0, mechanism.domain_size - 1], dtype=np.int64)
    made = mechanism.randomize(values, rng).tobytes() + mechanism.dummies(2, rng).tobytes()
    return Parser(
        name=f"reports of {name}",
        read=partial(_counted, mechanism),
        seeds=(made, b"\xff" * mechanism.report_dtype.itemsize),
        share=4,
    )


_BYTES: Final[tuple[tuple[Any, ...], ...]] = (
    (
        *(4, "sealed envelope"),
        lambda raw: split_submission(_CASE.shuffler_key.open(raw, _ENVELOPE)),
        Contributor(_CASE.task, _DIGEST).prepare(0, np.random.default_rng(1)).envelope,
    ),
    (
        *(16, "sealed reports, some of them repeated", _distinct),
        *(bytes(_SEALED * 3), bytes(range(_SEALED)) * 2),
    ),
    (
        *(4, "sealed report", lambda raw: _CASE.analyzer_key.open(raw, _REPORT)),
        _CASE.analyzer_key.public_key().sealer(_REPORT)(b"report"),
    ),
    (
        *(
            4,
            "public key",
            lambda raw: hpke.HpkePublicKey(hpke.DEFAULT_SUITE, raw).sealer(_REPORT)(b"report"),
        ),
        _CASE.task.analyzer_key,
    ),
    (
        *(4, "private key", lambda raw: hpke.HpkePrivateKey(hpke.DEFAULT_SUITE, raw).public_key()),
        _CASE.analyzer_key.private_bytes(),
    ),
    (
        *(4, "signing key", lambda raw: SigningIdentity(raw).sign(b"task")),
        _CASE.identity.private_bytes(),
    ),
    (
        *(4, "identity", lambda raw: PublicIdentity(raw).verify(_CASE.signed)),
        _CASE.identity.public_identity().raw,
    ),
    (4, "signature", _verified, _CASE.signed.signature),
    (
        *(4, "unlinkable token", lambda raw: _TOKEN_KEY.is_valid_token(raw, _CHALLENGE)),
        _PENDING.finalize(_BLIND_SIGNATURE),
    ),
    (4, "token key", TokenKey, _TOKEN_KEY.der),
    (1, "token signing key", TokenSigningKey, _RAW_SIGNER),
    (1, "blinded message", _SIGNER.blind_sign, _PENDING.blinded()),
    (
        1,
        "blinded message, by GMP",
        partial(blind_sign, _PRIVATE.private_numbers()),
        _PENDING.blinded(),
    ),
    (1, "blind signature", _PENDING.finalize, _BLIND_SIGNATURE),
    (
        *(1, "pending token"),
        lambda raw: PendingToken.from_bytes(raw, _TOKEN_KEY, _CHALLENGE).blinded(),
        _PENDING.to_bytes(),
    ),
    (
        *(4, "record of a token key", lambda raw: HeldKey.from_bytes(raw).tag("Ada")),
        HeldKey(end=1, person_key=bytes(32), private=b"private").to_bytes(),
        HeldKey(end=1, person_key=bytes(32), private=b"x", population="staff").to_bytes(),
    ),
    (
        *(4, "ID token"),
        lambda raw: verified_subject(
            raw[:MAX_CREDENTIAL_BYTES], _PROVIDER_KEYS, issuer=PROVIDER, audience=AUDIENCE, now=NOW
        ),
        *(signed(algorithm=algorithm).encode() for algorithm in KEYS),
    ),
    (4, "log entry", LogEntry.from_bytes, LogEntry.of_task(_CASE.signed).to_bytes()),
    (4, "signed checkpoint", _signed_at, Log([b"entry"]).head().to_bytes()),
)
"""Shares, names, readers, and bytes that they read."""

PARSERS: Final = (
    Parser(
        name="task",
        read=_prepared,
        seeds=tuple(task.to_bytes() for task in _TASKS),
        form="canonical",
        share=32,
    ),
    *(
        Parser(name=name, read=read, seeds=tuple(seeds), share=share)
        for share, name, read, *seeds in _BYTES
    ),
    *map(_of_mechanism, EXAMPLES),
)
