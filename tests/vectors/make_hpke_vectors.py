"""
Make tests/vectors/hpke*.json, one file for each suite: seals that must open, and changed ones that
must not.

Run as `python -m tests.vectors.make_hpke_vectors`. The keys are fixed; sealing draws an ephemeral
key, so every run gives other ciphertexts of the same meaning. For the default suite every single
flipped bit is a case; for the others, whose ciphertexts would fill megabytes, the first and last
bits of each part are, and the tests flip the rest.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

from shuffledp.common.crypto import hpke
from shuffledp.common.task_digest import DIGEST_BYTES, TaskDigest

FOLDER = Path(__file__).parent

_TAG_BYTES = 16


def _key(suite: str, name: str) -> hpke.HpkePrivateKey:
    seed = hashlib.sha256(b"shuffledp test key " + name.encode()).digest()
    return hpke.HpkePrivateKey(suite, seed)


def _case(
    name: str,
    key: hpke.HpkePrivateKey,
    context: hpke.SealContext,
    sealed: bytes,
    plaintext: bytes | None,
) -> dict[str, Any]:
    sender, recipient = context[-DIGEST_BYTES - 2 : -DIGEST_BYTES]
    return {
        "name": name,
        "private_key": key.private_bytes().hex(),
        "sender": sender,
        "recipient": recipient,
        "task_digest": context[-DIGEST_BYTES:].hex(),
        "sealed": sealed.hex(),
        "plaintext": None if plaintext is None else plaintext.hex(),
    }


def _cases(suite: str) -> list[dict[str, Any]]:
    analyzer, shuffler = _key(suite, "analyzer"), _key(suite, "shuffler")
    digest, other_digest = TaskDigest(bytes(range(32))), TaskDigest(bytes(range(1, 33)))
    report, envelope = hpke.report_context(digest), hpke.envelope_context(digest)
    text = b"twelve bytes"
    sealed = analyzer.public_key().sealer(report)(text)
    in_envelope = shuffler.public_key().sealer(envelope)(b"id" + sealed)
    empty = analyzer.public_key().sealer(report)(b"")
    enc, overhead = (
        hpke.suite_named(suite).overhead_bytes - _TAG_BYTES,
        hpke.suite_named(suite).overhead_bytes,
    )
    lengths = (1, enc - 1, enc, overhead - 1, overhead, len(sealed) - 1)
    return [
        _case("a report opens", analyzer, report, sealed, text),
        _case("an envelope opens", shuffler, envelope, in_envelope, b"id" + sealed),
        _case("an empty plaintext opens", analyzer, report, empty, b""),
        _case("wrong key", shuffler, report, sealed, None),
        _case("wrong digest", analyzer, hpke.report_context(other_digest), sealed, None),
        _case("wrong role", analyzer, envelope, sealed, None),
        _case("empty", analyzer, report, b"", None),
        *(
            _case(f"truncated to {length} bytes", analyzer, report, sealed[:length], None)
            for length in lengths
        ),
        _case("one byte too many", analyzer, report, sealed + b"\0", None),
        *(
            _case(f"bit {bit} flipped", analyzer, report, _flipped(sealed, bit), None)
            for bit in _bits(suite, enc, len(sealed))
        ),
    ]


def _bits(suite: str, enc: int, length: int) -> list[int]:
    if suite == hpke.DEFAULT_SUITE:
        return list(range(8 * length))
    starts = {
        0,
        enc - 32,
        enc,
        length - _TAG_BYTES,
    }  # of ML-KEM's part, X25519's, the text, the tag
    return sorted(
        {8 * start for start in starts} | {8 * end - 1 for end in (*starts - {0}, length)}
    )


def _flipped(sealed: bytes, bit: int) -> bytes:
    changed = bytearray(sealed)
    changed[bit // 8] ^= 1 << (bit % 8)
    return bytes(changed)


def main() -> None:
    """Write the vectors."""
    for suite in hpke.SUITES:
        name = "hpke.json" if suite == hpke.DEFAULT_SUITE else f"hpke-{suite}.json"
        vectors = {"suite": suite, "cases": _cases(suite)}
        (FOLDER / name).write_text(json.dumps(vectors, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
