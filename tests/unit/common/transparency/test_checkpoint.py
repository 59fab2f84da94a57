import base64
from dataclasses import replace

import pytest

from shuffledp.common.crypto.signing import SigningIdentity
from shuffledp.common.errors import ProofError, WireError
from shuffledp.common.transparency.checkpoint import (
    Checkpoint,
    NoteKey,
    NoteSignature,
    SignatureType,
    SignedCheckpoint,
)
from shuffledp.common.transparency.merkle import EMPTY_ROOT, MAX_SIZE
from tests.support.tables import table
from tests.support.transparency import KEYS, LOG, LOG_IDENTITY, NOW, ORIGIN, SPECIFIED_KEY, Log

_PUBLISHED = """arche2025h1.staging.ct.transparency.dev
1432088532
U7WM79jrzyhGZ5/GUBTpM7NzwdyfFx61t3RovgcC4Ro=

— arche2025h1.staging.ct.transparency.dev ui8GwCF1+kWqZrxGdhj4aX3gcw7XUlXQQabg/27lefwhUkzbC3Ny\
gNI75MdhL1bfTW9g8Ei59RA23oHP7Ry1k3ZFWwQ=
— transparency.dev/DEV:witness-little-garden 2AQqhwAAAABqEiEgzgFIqqhbUoDwjMWE6UP8nd8/KYTzwZ2rhIg\
cqoXHAwVkjZr4AscylP3v7sEodkRAErumC2q44vdgJY096st5BQ==
— remora.n621.de 2net5wAAAABqEiEgPlfF3V06o0Y+fHM+J5J9s27wgxxcOVSpZ/2g/KSiXCg9DEZI+aVCIobWX9sXTynk5X\
eU/zZ0WBxtqB0DrAWfBw==
"""
"""A head of a public log, with two of its cosignatures (florolf/tlog-scales, tests)."""
_PUBLIC_LOG = NoteKey.parse(
    "arche2025h1.staging.ct.transparency.dev+ba2f06c0+AU0vHmlGCS/PdN8b2OaGmKprLI8HKM+dJ472xgFYh15f"
)
_PUBLIC_WITNESS = NoteKey.parse(
    "remora.n621.de+da77ade7+BOvN63jn/bLvkieywe8R6UYAtVtNbZpXh34x7onlmtw2"
)
_SOFA = Checkpoint(
    origin="example.com/behind-the-sofa",
    size=20852163,
    root=base64.b64decode("CsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I="),
)
"""The example in [C2SP, tlog-checkpoint]."""
_GOOD = Log([b"entry"]).head().to_bytes()


def test_a_published_head_and_cosignature_verify() -> None:
    """A public log's signature and a public witness's, at the witness's time, and after a trip."""
    signed = SignedCheckpoint.parse(_PUBLISHED.encode())

    assert 0 == signed.signed_at(_PUBLIC_LOG)
    assert 0x6A122120 == signed.signed_at(_PUBLIC_WITNESS)
    assert None is signed.signed_at(LOG)
    assert _PUBLISHED.encode() == signed.to_bytes()
    for key in (_PUBLIC_LOG, _PUBLIC_WITNESS):
        with pytest.raises(ProofError):
            replace(signed, checkpoint=replace(signed.checkpoint, size=42)).signed_at(key)


def test_a_key_and_its_signature_are_those_of_the_specification() -> None:
    """The example in [C2SP, signed-note], whose text is no checkpoint."""
    key = NoteKey.parse(SPECIFIED_KEY)
    line = NoteSignature.parse(
        "— example.com/foo Uw2QOkn8srV1yJGh2VYRlL1Tnagv1YEq6TfXppzi2ONncAlTgK7Ztg1ERYNZXsYjOBH3mFXm"
        "RKuwHjG1Yu72IneyaQM="
    )

    assert SPECIFIED_KEY == key.to_text()
    assert key.key_id() == line.key_id
    assert key.identity.is_valid_signature(b"", b"This is an example message.\n", line.signature)


def test_a_signature_over_a_bare_text_is_that_of_go() -> None:
    """The fixed key and text of golang.org/x/mod/sumdb/note (BSD-3-Clause)."""
    seed = base64.b64decode("AYEKFALVFGyNhPJEMzD1QIDr+Y7hfZx09iUvxdXHKDFz")[1:]
    identity = SigningIdentity(seed)
    text = (
        b"If you think cryptography is the answer to your problem,\n"
        b"then you don't know what your problem is.\n"
    )
    key = NoteKey("PeterNeumann", SignatureType.CHECKPOINT, identity.public_identity())
    signature = NoteSignature(key.name, key.key_id(), identity.sign_message(b"", text))

    assert "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW" == key.to_text()
    assert (
        "— PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngot"
        "pRZb6KE6RyyBwJnAM=\n"
    ) == signature.line()


def test_texts_and_times_are_those_of_the_specification() -> None:
    """The example in [C2SP, tlog-cosignature], for which no key is published."""
    line = NoteSignature.parse(
        "— witness.example.com/w1 jWbPPwAAAABkGFDLEZMHwSRaJNiIDoe9DYn/zXcrtPHeolMI5OWXEhZCB9dlrDJs"
        "X3b2oyin1nPZqhf5nNo0xUe+mbIUBkBIfZ+qnA=="
    )
    cosignature = _SOFA.cosign("witness.example.com/w1", LOG_IDENTITY, 1679315147)
    message = (
        b"time 1679315147\nexample.com/behind-the-sofa\n20852163\n"
        b"CsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=\n"
    )

    assert cosignature.signature[:8] == line.signature[:8]
    assert len(cosignature.signature) == len(line.signature)
    assert LOG.identity.is_valid_signature(b"cosignature/v1\n", message, cosignature.signature[8:])


def test_every_bit_of_a_signature_counts() -> None:
    """A log's and a witness's signature fail with any bit changed; so does any other text."""
    signed = Log([b"entry"]).cosigned()
    for key, line in zip((LOG, KEYS[0]), signed.signatures, strict=False):
        signature = line.signature
        for bit in range(8 * len(signature)):
            changed = (int.from_bytes(signature) ^ 1 << bit).to_bytes(len(signature))
            with pytest.raises(ProofError):
                signed.checkpoint.check_signature(key, changed)
        for short in (b"", signature[:-1], signature + b"\0"):
            with pytest.raises(ProofError):
                signed.checkpoint.check_signature(key, short)


def test_a_log_and_a_witness_never_sign_the_same_bytes() -> None:
    """One key in both roles has two key IDs, and neither signature is valid as the other."""
    checkpoint = Log([b"entry"]).head().checkpoint
    log = checkpoint.sign(LOG_IDENTITY).signatures[0]
    witness = checkpoint.cosign(ORIGIN, LOG_IDENTITY, NOW)
    as_witness = NoteKey(ORIGIN, SignatureType.COSIGNATURE, LOG.identity)

    assert log.key_id != witness.key_id
    for key, signature in ((as_witness, bytes(8) + log.signature), (LOG, witness.signature[8:])):
        with pytest.raises(ProofError):
            checkpoint.check_signature(key, signature)


def test_lines_of_unknown_keys_are_ignored_and_a_wrong_line_of_a_known_key_is_not() -> None:
    """A shared name or a shared key ID alone makes no key known."""
    signed = Log([b"entry"]).head()
    own = signed.signatures[0]
    other_id = NoteSignature(own.name, bytes(4), bytes(64))
    other_name = NoteSignature("other.example", own.key_id, bytes(64))
    wrong = NoteSignature(own.name, own.key_id, bytes(64))

    assert 0 == replace(signed, signatures=(other_id, other_name, own)).signed_at(LOG)
    assert None is replace(signed, signatures=(other_id, other_name)).signed_at(LOG)
    with pytest.raises(ProofError):
        replace(signed, signatures=(wrong, own)).signed_at(LOG)


@table(
    ("old", "new"),
    [
        (b"\n1\n", b"\n01\n"),
        (b"\n1\n", b"\n+1\n"),
        (b"\n1\n", b"\n\xd9\xa1\n"),  # an Arabic one
        (b"\n1\n", b"\n9223372036854775808\n"),
        (b"\n1\n", b"\n0\n"),
        (b"\n1\n", b"\n"),
        (b"\n1\n", b"\n\n1\n"),
        (b"=\n\n", b"=\nextension\n\n"),
        (b"=\n\n", b"=\n"),
        (b"=\n\n", b"\n\n"),
        (b"=\n\n", b"A==\n\n"),
        (b"=\n\n", b"=\r\n\n"),
        (ORIGIN.encode() + b"\n", b"\n"),
        (ORIGIN.encode() + b"\n", b"go.sum database tree\n"),
        (ORIGIN.encode() + b"\n", b"a+b\n"),
        (ORIGIN.encode() + b"\n", b"a\xc2\xa0b\n"),  # a space that does not break
        (ORIGIN.encode() + b"\n", b"a\x00b\n"),
        (ORIGIN.encode() + b"\n", b"\xff\n"),
        (b"\xe2\x80\x94 ", b"- "),
        (b"\xe2\x80\x94 ", b"\xe2\x80\x94"),
        (b"\xe2\x80\x94 ", b"\xe2\x80\x94  "),
        (_GOOD.splitlines()[-1], b"\xe2\x80\x94 name AAAAAA=="),
        (_GOOD.splitlines()[-1] + b"\n", _GOOD.splitlines()[-1]),
        (_GOOD.splitlines()[-1] + b"\n", b""),
        (_GOOD.splitlines()[-1] + b"\n", _GOOD.splitlines()[-1] + b"x"),
        (b"\n\xe2\x80\x94", (b"\n" + _GOOD.splitlines()[-1]) * 1200 + b"\n\xe2\x80\x94"),
    ],
)
def test_a_malformed_note_is_refused(old: bytes, new: bytes) -> None:
    """Each breaks one rule of the format."""
    assert 1 == _GOOD.count(old)
    with pytest.raises(WireError):
        SignedCheckpoint.parse(_GOOD.replace(old, new))
    SignedCheckpoint.parse(_GOOD)


def test_base64_has_one_form() -> None:
    """Bits that decoding drops must be 0, so that no note has two spellings."""
    root = _SOFA.text().decode().split("\n")[2]
    text = _SOFA.text().decode()

    assert _SOFA == Checkpoint.parse(text)
    with pytest.raises(WireError):
        Checkpoint.parse(text.replace(root, root[:-2] + "J="))
    with pytest.raises(WireError):
        Checkpoint.parse(text + "x")


@table(
    "text",
    [
        "",
        SPECIFIED_KEY.replace("530d903a", "530d903b"),
        SPECIFIED_KEY.replace("530d903a", "530D903A"),
        SPECIFIED_KEY.replace("+Aek", "+Auk"),
        SPECIFIED_KEY.replace("foo", "fo o"),
        SPECIFIED_KEY.replace("foo", "fo\udcff"),
        SPECIFIED_KEY + "AAAA",
        SPECIFIED_KEY[:-4],
    ],
)
def test_a_malformed_verifier_key_is_refused(text: str) -> None:
    """The key ID must fit the name and the key, and the key must have a known type."""
    with pytest.raises(WireError):
        NoteKey.parse(text)


def test_a_name_separates_nothing() -> None:
    """It has no space, plus sign or control character, since notes are split at those."""
    for name in ("", "a b", "a+b", "a\nb", "a\x01b", "a\u2003b"):
        with pytest.raises(WireError):
            NoteKey(name, SignatureType.CHECKPOINT, LOG.identity)


def test_a_head_has_a_possible_size_and_root() -> None:
    """At most 2^63 - 1 leaves, a root of 32 bytes, and at size 0 the empty tree's."""
    Checkpoint(origin="a", size=MAX_SIZE, root=bytes(32))
    Checkpoint(origin="a", size=0, root=EMPTY_ROOT)

    for size, root in ((MAX_SIZE + 1, bytes(32)), (-1, bytes(32)), (1, bytes(31)), (0, bytes(32))):
        with pytest.raises(WireError):
            Checkpoint(origin="a", size=size, root=root)


def test_a_time_that_no_clock_shows_is_refused() -> None:
    """A cosignature's time is below 2^63."""
    checkpoint = Log([b"entry"]).head().checkpoint
    key = NoteKey("w", SignatureType.COSIGNATURE, LOG.identity)
    last, late = (checkpoint.cosign("w", LOG_IDENTITY, t) for t in ((1 << 63) - 1, 1 << 63))

    assert (1 << 63) - 1 == checkpoint.check_signature(key, last.signature)
    with pytest.raises(ProofError):
        checkpoint.check_signature(key, late.signature)
