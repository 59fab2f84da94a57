"""
Make tests/vectors/hpke.json: seals that must open, and changed ones that must not.

Run as `python -m tests.vectors.make_hpke_vectors`. The keys are fixed; sealing draws an ephemeral
key, so every run gives other ciphertexts of the same meaning.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

from common.hpke import SUITE_NAME, HpkePrivateKey, SealContext, envelope_context, report_context
from common.task_digest import TaskDigest

FILE = Path(__file__).with_name("hpke.json")


def _key(name: str) -> HpkePrivateKey:
    return HpkePrivateKey(hashlib.sha256(b"shuffledp test key " + name.encode()).digest())


def _case(
    name: str, key: HpkePrivateKey, context: SealContext, sealed: bytes, plaintext: bytes | None
) -> dict[str, Any]:
    return {
        "name": name,
        "private_key": key.private_bytes().hex(),
        "sender": int(context.sender),
        "recipient": int(context.recipient),
        "task_digest": context.task_digest.hex(),
        "sealed": sealed.hex(),
        "plaintext": None if plaintext is None else plaintext.hex(),
    }


def main() -> None:
    """Write the vectors."""
    analyzer, shuffler, digest = _key("analyzer"), _key("shuffler"), TaskDigest(bytes(range(32)))
    other_digest = TaskDigest(bytes(range(1, 33)))
    report, envelope = report_context(digest), envelope_context(digest)
    text = b"twelve bytes"
    sealed = analyzer.public_key().seal(text, report)
    in_envelope = shuffler.public_key().seal(b"id" + sealed, envelope)
    cases = [
        _case("a report opens", analyzer, report, sealed, text),
        _case("an envelope opens", shuffler, envelope, in_envelope, b"id" + sealed),
        _case(
            "an empty plaintext opens",
            analyzer,
            report,
            analyzer.public_key().seal(b"", report),
            b"",
        ),
        _case("wrong key", shuffler, report, sealed, None),
        _case("wrong digest", analyzer, report_context(other_digest), sealed, None),
        _case("wrong role", analyzer, envelope, sealed, None),
        _case("empty", analyzer, report, b"", None),
        *(
            _case(f"truncated to {length} bytes", analyzer, report, sealed[:length], None)
            for length in (1, 31, 32, 47, 48, len(sealed) - 1)
        ),
        _case("one byte too many", analyzer, report, sealed + b"\0", None),
        *(
            _case(
                f"bit {bit} flipped",
                analyzer,
                report,
                _flipped(sealed, bit),
                None,
            )
            for bit in range(8 * len(sealed))
        ),
    ]
    vectors = {"suite": SUITE_NAME, "cases": cases}
    FILE.write_text(json.dumps(vectors, indent=1) + "\n", encoding="utf-8")


def _flipped(sealed: bytes, bit: int) -> bytes:
    changed = bytearray(sealed)
    changed[bit // 8] ^= 1 << (bit % 8)
    return bytes(changed)


if __name__ == "__main__":
    main()
