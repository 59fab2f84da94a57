"""
A third reader of a transcript, which shares no code with the devices: docs/wire.md in short.

It takes one answer apart, from the task's bytes to the proof that its report was counted.
"""

import hmac
import json
from base64 import b64decode, b64encode
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import pytest
from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

_FILE: Final = Path(__file__).parents[2] / "vectors" / "transcript-mixdump.json"


def _verify(pin: str, label: bytes, message: bytes, signature: bytes) -> None:
    """Check an Ed25519 signature under a label."""
    key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(pin))
    key.verify(signature, label + message)


def _open(private: str, recipient: int, digest: bytes, sealed: bytes) -> bytes:
    """Open HPKE's base mode: X25519, HKDF-SHA256, ChaCha20-Poly1305."""
    key = X25519PrivateKey.from_private_bytes(bytes.fromhex(private))
    kem, suite = b"HPKE-v1KEM\0\x20", b"HPKE-v1HPKE\0\x20\0\x01\0\x03"
    info = b"shuffledp v1 seal\x01" + bytes([recipient]) + digest
    enc, own = sealed[:32], key.public_key().public_bytes_raw()

    def extract(salt: bytes, content: bytes) -> bytes:
        return hmac.digest(salt, content, "sha256")

    def expand(secret: bytes, size: int, label: bytes) -> bytes:
        return extract(secret, size.to_bytes(2) + label + b"\1")[:size]

    agreed = key.exchange(X25519PublicKey.from_public_bytes(enc))
    secret = extract(bytes(32), kem + b"eae_prk" + agreed)
    shared = expand(secret, 32, kem + b"shared_secret" + enc + own)
    context = b"\0" + extract(bytes(32), suite + b"psk_id_hash")
    context += extract(bytes(32), suite + b"info_hash" + info)
    secret = extract(shared, suite + b"secret")
    nonce = expand(secret, 12, suite + b"base_nonce" + context)
    aead = ChaCha20Poly1305(expand(secret, 32, suite + b"key" + context))
    return aead.decrypt(nonce, sealed[32:], b"")


def _read(shown: dict[str, Any]) -> list[str]:
    """Return the first answer's reports, after every check."""
    pins, private, [answer, *_] = shown["pins"], shown["private_keys"], shown["answers"]
    text, signature = (b64decode(shown["fetch"]["task"][name]) for name in ("task", "signature"))
    task, digest = json.loads(text), sha256(text).digest()
    assert digest.hex() == shown["digest"]
    _verify(pins["analyzer"], b"shuffledp v1 task", text, signature)
    [shuffler] = task["shufflers"]
    key, proof = bytes.fromhex(shuffler["key"]), bytes.fromhex(shuffler["proof"])
    scope = sha256(task["suite"].encode()).digest() + sha256(key).digest()
    _verify(pins["shuffler"], b"shuffledp v1 envelope key", scope + proof[:8], proof[8:])

    envelope, receipt = bytes.fromhex(answer["envelope"]), bytes.fromhex(answer["receipt"])
    _verify(pins["shuffler"], b"shuffledp v1 receipt", digest + sha256(envelope).digest(), receipt)
    content = _open(private["shuffler"], 2, digest, envelope)[16:]
    size = task["mechanism"]["report_bytes"] + 48
    sealed = [content[at : at + size] for at in range(0, len(content), size)]

    proof = shown["inclusion"]
    n_leaves, bits = int(proof["commitment"]["nLeaves"]), proof["commitment"]["bits"]
    task_digest, batch_id, salt, root, signature = (
        b64decode(proof["commitment"][name])
        for name in ("taskDigest", "batchId", "salt", "root", "signature")
    )
    message = task_digest + batch_id + n_leaves.to_bytes(8) + bits.to_bytes(1) + salt + root
    _verify(pins["analyzer"], b"shuffledp v1 batch commitment", message, signature)
    salted = sha256(b"\3" + salt + sha256(b"\0" + sealed[0]).digest()).digest()
    bucket, path = b64decode(proof["bucket"]), b64decode(proof["path"])
    leaves = bucket[4 : 4 + 32 * int.from_bytes(bucket[:4])]
    place, found = int.from_bytes(salted[:4]) >> 32 - bits, sha256(b"\1" + leaves).digest()
    for at in range(bits):
        sibling = path[32 * at : 32 * at + 32]
        pair = sibling + found if place >> at & 1 else found + sibling
        found = sha256(b"\2" + pair).digest()
    assert (task_digest, root) == (digest, found)
    assert salted in [leaves[at : at + 32] for at in range(0, len(leaves), 32)]
    return [_open(private["analyzer"], 3, digest, report).hex() for report in sealed]


def test_a_reader_of_the_page_alone_reads_the_reports() -> None:
    """They are those of the transcript."""
    shown = json.loads(_FILE.read_text(encoding="utf-8"))

    assert shown["answers"][0]["reports"] == _read(shown)


@pytest.mark.parametrize(
    "path",
    [
        *("digest", "pins analyzer", "pins shuffler", "fetch task task", "fetch task signature"),
        *("private_keys analyzer", "private_keys shuffler"),
        *("answers 0 envelope", "answers 0 receipt", "inclusion bucket", "inclusion path"),
        *(f"inclusion commitment {name}" for name in ("taskDigest", "batchId", "salt", "root")),
        "inclusion commitment signature",
    ],
)
def test_a_changed_byte_is_noticed(path: str) -> None:
    """Wherever it stands: the byte in the middle of a field."""
    shown = json.loads(_FILE.read_text(encoding="utf-8"))
    *parents, name = path.split()
    fields: Any = shown
    for parent in parents:
        fields = fields[int(parent) if parent.isdecimal() else parent]
    is_base64 = parents[:1] in (["fetch"], ["inclusion"])
    raw = bytearray(b64decode(fields[name]) if is_base64 else bytes.fromhex(fields[name]))
    raw[len(raw) // 2] ^= 1
    fields[name] = b64encode(raw).decode() if is_base64 else raw.hex()

    with pytest.raises((AssertionError, InvalidSignature, InvalidTag)):
        _read(shown)
