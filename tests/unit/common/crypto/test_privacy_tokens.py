import hashlib
import math
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_der_public_key,
)

from shuffledp.common.crypto.privacy_tokens import (
    TOKEN_BYTES,
    PendingToken,
    TokenKey,
    nonce_of,
    token_challenge,
)
from shuffledp.common.crypto.token_signing import TokenSigningKey
from shuffledp.common.errors import ProofError, WireError
from shuffledp.common.task_digest import TaskDigest
from tests.support.vectors import vectors

_GROUPS: list[dict[str, Any]] = vectors("privacy_tokens")
_CASES = [{**group, **case} for group in _GROUPS for case in group["cases"]]
_SIGNER, _OTHER = (TokenSigningKey(bytes.fromhex(group["private_key"])) for group in _GROUPS)
_KEY = _SIGNER.token_key()
_DIGEST = TaskDigest(bytes(range(32)))
_CHALLENGE = token_challenge(_DIGEST, "issuer.example")


def _pending(seed: int) -> PendingToken:
    return PendingToken.draw(_KEY, _CHALLENGE, np.random.default_rng(seed).bytes)


@pytest.mark.parametrize("case", _CASES, ids=lambda case: case["nonce"][:8])
def test_every_message_is_that_of_the_published_vectors(case: dict[str, Any]) -> None:
    """[RFC9578, Appendix B.2], and a vector of another implementation."""
    part = {n: bytes.fromhex(v) for n, v in case.items() if n not in {"source", "cases"}}
    signer, key = TokenSigningKey(part["private_key"]), TokenKey(part["public_key"])
    secrets = part["nonce"] + part["salt"] + part["blind"]
    pending = PendingToken.from_bytes(secrets, key, part["token_challenge"])

    assert key == signer.token_key()
    assert part["token_request"] == b"\0\2" + key.key_id[-1:] + pending.blinded()
    assert part["token_response"] == signer.blind_sign(pending.blinded())
    assert part["token"] == pending.finalize(part["token_response"])
    assert key.is_valid_token(part["token"], part["token_challenge"])
    assert (TOKEN_BYTES, part["nonce"]) == (len(part["token"]), nonce_of(part["token"]))


def test_a_challenge_is_encoded_as_published() -> None:
    """The fourth vector of [RFC9577, Appendix A.1]: a context, and no origin."""
    context = "476ac2c935f458e9b2d7af32dacfbd22dd6023ef5887a789f1abe004e79bb5bb"
    challenge = token_challenge(TaskDigest(bytes.fromhex(context)), "issuer.example")

    published = "b85fb5bc06edeb0e8e8bdb5b3bea8c4fa40837c82e8bcaf5882c81e14817ea18"
    assert published == hashlib.sha256(challenge).hexdigest()
    for name in ("", "A.example", "a b", "é", ".a", "a-", "a\n", "a" * 254):
        with pytest.raises(WireError, match="issuer's name"):
            token_challenge(_DIGEST, name)
    with pytest.raises(WireError, match="has 31 bytes"):
        token_challenge(TaskDigest(bytes(31)), "a")


def test_a_token_is_valid_for_one_key_task_and_issuer_name_only() -> None:
    """Any changed byte, another length, task, name or key makes it invalid."""
    pending = _pending(1)
    token = pending.finalize(_SIGNER.blind_sign(pending.blinded()))
    other_task, other_name = TaskDigest(bytes(32)), "issuer.examples"

    assert _KEY.is_valid_token(token, _CHALLENGE)
    assert not _OTHER.token_key().is_valid_token(token, _CHALLENGE)
    assert not _KEY.is_valid_token(token, token_challenge(other_task, "issuer.example"))
    assert not _KEY.is_valid_token(token, token_challenge(_DIGEST, other_name))
    for place in range(TOKEN_BYTES):
        changed = token[:place] + bytes([token[place] ^ 1]) + token[place + 1 :]
        assert not _KEY.is_valid_token(changed, _CHALLENGE)
    for wrong in (b"", token[:20], token[:-256], token[:-1], token + b"\0", token[:-256] * 2):
        assert not _KEY.is_valid_token(wrong, _CHALLENGE)


def test_every_request_explains_every_token() -> None:
    """
    For each blinded message and token, one r leads from one to the other, so all are as likely.

    Hence the issuer, even with its private key, learns nothing about whose token it sees.
    """
    pendings, n = [_pending(seed) for seed in range(3)], _KEY.modulus
    blinded = [pending.blinded() for pending in pendings]
    signed = [_SIGNER.blind_sign(each) for each in blinded]
    tokens = [each.finalize(signature) for each, signature in zip(pendings, signed, strict=True)]

    explanations = set()
    for pending, token in zip(pendings, tokens, strict=True):
        for request, answer in zip(blinded, signed, strict=True):
            r = int.from_bytes(answer) * pow(int.from_bytes(token[-256:]), -1, n) % n
            other = PendingToken(
                key=_KEY, challenge=_CHALLENGE, nonce=pending.nonce, salt=pending.salt, r=r
            )
            assert (request, token) == (other.blinded(), other.finalize(answer))
            explanations.add(r)
    assert 9 == len(explanations)
    assert {pending.r for pending in pendings} < explanations


def test_a_stored_pending_token_asks_for_the_same_token() -> None:
    """After a crash the device sends the same blinded message; a damaged state is refused."""
    pending = _pending(1)
    raw = pending.to_bytes()
    again = PendingToken.from_bytes(raw, TokenKey(_KEY.der), _CHALLENGE)

    assert (336, pending) == (len(raw), again)
    assert pending.blinded() == again.blinded() != _pending(2).blinded()
    too_large = raw[:80] + _KEY.modulus.to_bytes(256)
    for wrong in (b"", raw[:-1], raw + b"\0", raw[:80] + bytes(256), too_large):
        with pytest.raises(WireError):
            PendingToken.from_bytes(wrong, _KEY, _CHALLENGE)
    with pytest.raises(ProofError):
        pending.finalize(_OTHER.blind_sign(bytes(256)))


def test_only_one_encoding_of_one_kind_of_key_is_accepted() -> None:
    """Another size, exponent or algorithm, an even modulus, or any changed byte around it."""
    der, n = _KEY.der, _KEY.modulus
    parsed = load_der_public_key(der)
    assert isinstance(parsed, rsa.RSAPublicKey)
    assert _KEY == TokenKey.of(parsed)

    form = Encoding.DER, PublicFormat.SubjectPublicKeyInfo
    wrong = [b"", der[:-1], der + b"\0", bytes(342), parsed.public_bytes(*form)[24:]]
    wrong += [rsa.RSAPublicNumbers(65537, n).public_key().public_bytes(*form)]
    wrong += [der.replace(n.to_bytes(256), bad.to_bytes(256)) for bad in (n - 1, n >> 1 | 1, 0)]
    wrong += [
        der[:place] + bytes([der[place] ^ 1]) + der[place + 1 :]
        for place in (*range(81), *range(337, 342))
    ]
    for bad in wrong:
        with pytest.raises(WireError, match="must be an RSA key of 2048 bits"):
            TokenKey(bad)
    larger = math.prod((n, n))
    for e, modulus in ((3, n), (65537, n >> 1 | 1), (65537, larger)):
        with pytest.raises(WireError, match="token key"):
            TokenKey.of(rsa.RSAPublicNumbers(e, modulus).public_key())


def test_a_signing_key_is_an_rsa_key_of_2048_bits() -> None:
    """A generated key is read back and signs; other keys and bytes are refused."""
    raw = TokenSigningKey.generate()
    signer = TokenSigningKey(raw)
    pending = PendingToken.draw(signer.token_key(), _CHALLENGE, np.random.default_rng(1).bytes)

    assert TOKEN_BYTES == len(pending.finalize(signer.blind_sign(pending.blinded())))
    form = Encoding.DER, PrivateFormat.PKCS8, NoEncryption()
    small = rsa.generate_private_key(65537, 1024).private_bytes(*form)  # noqa: S505  # refused
    for wrong in (b"", raw[:-1], small, ed25519.Ed25519PrivateKey.generate().private_bytes(*form)):
        with pytest.raises(WireError):
            TokenSigningKey(wrong)
