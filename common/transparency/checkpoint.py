"""
Checkpoints of a log, with the signatures of the log and of its witnesses. Pure.

A checkpoint is a text of three lines: the log's origin, the size of its tree, and the root in
base64 [C2SP, tlog-checkpoint]. After an empty line follow signatures, one a line [C2SP,
signed-note]. The log signs the text with Ed25519; a witness signs the text and a time [C2SP,
tlog-cosignature]. Unlike the specification, this module refuses extension lines, which no monitor
could audit, and needs an origin that is the name of the log's key.

The log signs the bare text, so its label is empty. The signature is valid for no other kind of
message all the same: the text starts with the origin, which has no spaces, and the first line of
every label has one; a cosignature's second line is no size.
"""

import base64
import hashlib
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final, Self

from shuffledp.common.crypto.signing import IDENTITY_BYTES, PublicIdentity, SigningIdentity
from shuffledp.common.errors import ProofError, WireError
from shuffledp.common.transparency.merkle import EMPTY_ROOT, HASH_BYTES, MAX_SIZE

MAX_NOTE_BYTES: Final = 1 << 17
"""Maximum length of a note: enough for 16 post-quantum signatures, which are ignored."""
MAX_SECONDS: Final = (1 << 63) - 1

_KEY_ID_BYTES: Final = 4
_TIME_BYTES: Final = 8
_NO_LABEL: Final = b""
_COSIGNATURE_LABEL: Final = b"cosignature/v1\n"
_NAME: Final = re.compile(r"[^\s+\x00-\x1f\ud800-\udfff]+")


class SignatureType(IntEnum):
    """The types of keys that this project uses, by their byte in notes."""

    CHECKPOINT = 1
    """A log's Ed25519 signature."""
    COSIGNATURE = 4
    """A witness's timestamped Ed25519 signature."""


@dataclass(frozen=True, slots=True)
class NoteKey:
    """A public key of a log or a witness, with its name: what the parties pin."""

    name: str
    type: SignatureType
    identity: PublicIdentity

    def __post_init__(self) -> None:
        _check_name(self.name)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a verifier key, `<name>+<key ID in hexadecimal>+<base64>`, or raise WireError."""
        name, _, rest = text.partition("+")
        key_id, _, encoded = rest.partition("+")
        raw = _base64(encoded)
        if len(raw) != 1 + IDENTITY_BYTES or raw[0] not in set(SignatureType):
            raise WireError(
                "a verifier key must be an Ed25519 key of a log or a witness, as in witness.pub"
            )
        key = cls(name, SignatureType(raw[0]), PublicIdentity(raw[1:]))
        if key_id != key.key_id().hex():
            raise WireError("a verifier key must have the key ID of its name and key")
        return key

    def to_text(self) -> str:
        """Return the verifier key."""
        return f"{self.name}+{self.key_id().hex()}+{_to_base64(self._typed())}"

    def key_id(self) -> bytes:
        """Return the first bytes of a hash of the name and the key, which signatures repeat."""
        return hashlib.sha256(self.name.encode() + b"\n" + self._typed()).digest()[:_KEY_ID_BYTES]

    def _typed(self) -> bytes:
        return self.type.to_bytes() + self.identity.raw


def log_key(analyzer: PublicIdentity) -> NoteKey:
    """Return the key of an analyzer's log: its identity, with an origin that follows from it."""
    return NoteKey(f"shuffledp/{analyzer.raw.hex()}", SignatureType.CHECKPOINT, analyzer)


@dataclass(frozen=True, slots=True)
class NoteSignature:
    """A signature line of a note; it may be any key's, and is not yet verified."""

    name: str
    key_id: bytes
    signature: bytes

    @classmethod
    def parse(cls, line: str) -> Self:
        """Parse a line without its newline, or raise WireError."""
        dash, _, rest = line.partition(" ")
        name, _, encoded = rest.partition(" ")
        raw = _base64(encoded)
        _check_name(name)
        if dash != "—" or len(raw) <= _KEY_ID_BYTES:
            raise WireError("a signature line must be a dash, a name, and a key ID and signature")
        return cls(name, raw[:_KEY_ID_BYTES], raw[_KEY_ID_BYTES:])

    def line(self) -> str:
        """Return the line with its newline."""
        return f"— {self.name} {_to_base64(self.key_id + self.signature)}\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """The head of a log's tree at one size."""

    origin: str
    """Name of the log."""
    size: int
    root: bytes

    def __post_init__(self) -> None:
        _check_name(self.origin)
        if not 0 <= self.size <= MAX_SIZE or len(self.root) != HASH_BYTES:
            raise WireError(f"a checkpoint has size {self.size}; it must be 0 to {MAX_SIZE}")
        if self.size == 0 and self.root != EMPTY_ROOT:
            raise WireError("a checkpoint of size 0 must have the root of the empty tree")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a note's text, or raise WireError."""
        lines = text.split("\n")
        if len(lines) != 4 or lines[3] or not re.fullmatch("0|[1-9][0-9]{0,18}", lines[1]):  # noqa: PLR2004  # three lines, each with its newline
            raise WireError("a checkpoint must have three lines: origin, size and root")
        return cls(origin=lines[0], size=int(lines[1]), root=_base64(lines[2]))

    def text(self) -> bytes:
        """Return the text that the log and its witnesses sign."""
        return f"{self.origin}\n{self.size}\n{_to_base64(self.root)}\n".encode()

    def sign(self, identity: SigningIdentity) -> "SignedCheckpoint":
        """Sign the checkpoint. Run by the log, only if it extends all that the log signed."""
        key = NoteKey(self.origin, SignatureType.CHECKPOINT, identity.public_identity())
        signature = identity.sign_message(_NO_LABEL, self.text())
        return SignedCheckpoint(self, (NoteSignature(key.name, key.key_id(), signature),))

    def cosign(self, name: str, identity: SigningIdentity, seconds: int) -> NoteSignature:
        """Sign the checkpoint and the time since 1970. Run by a witness, in `witness.cosign`."""
        key = NoteKey(name, SignatureType.COSIGNATURE, identity.public_identity())
        signature = identity.sign_message(_COSIGNATURE_LABEL, self._timed(seconds))
        return NoteSignature(name, key.key_id(), seconds.to_bytes(_TIME_BYTES) + signature)

    def check_signature(self, key: NoteKey, signature: bytes) -> int:
        """
        Verify a key's signature, or raise ProofError. Cost: about 100 µs.

        Returns the cosignature's time in seconds since 1970, or 0 for a log's signature.
        """
        label, message, seconds = _NO_LABEL, self.text(), 0
        if key.type == SignatureType.COSIGNATURE:
            seconds, signature = int.from_bytes(signature[:_TIME_BYTES]), signature[_TIME_BYTES:]
            label, message = _COSIGNATURE_LABEL, self._timed(seconds)
        valid = key.identity.is_valid_signature(label, message, signature)
        if not valid or seconds > MAX_SECONDS:
            raise ProofError(f"the signature of {key.name} at size {self.size} is not valid")
        return seconds

    def _timed(self, seconds: int) -> bytes:
        return f"time {seconds}\n".encode() + self.text()


@dataclass(frozen=True, slots=True)
class SignedCheckpoint:
    """A checkpoint and its signature lines, which may include unknown keys' and invalid ones."""

    checkpoint: Checkpoint
    signatures: tuple[NoteSignature, ...]

    @classmethod
    def parse(cls, raw: bytes) -> Self:
        """Parse a signed note, or raise WireError. It verifies no signature."""
        if len(raw) > MAX_NOTE_BYTES:
            raise WireError(f"a note has {len(raw)} bytes; it must have at most {MAX_NOTE_BYTES}")
        try:
            note = raw.decode()
        except UnicodeDecodeError as error:
            raise WireError("a note must be UTF-8") from error
        text, blank, lines = note.rpartition("\n\n")
        if not blank or not lines.endswith("\n"):
            raise WireError("a note must be a text, an empty line and signature lines")
        signatures = tuple(map(NoteSignature.parse, lines[:-1].split("\n")))
        return cls(Checkpoint.parse(text + "\n"), signatures)

    def to_bytes(self) -> bytes:
        """Return the signed note."""
        return self.checkpoint.text() + b"\n" + "".join(s.line() for s in self.signatures).encode()

    def only(self, keys: Iterable[NoteKey]) -> Self:
        """Keep the valid signature of each of these keys, so that no other line is stored."""
        kept = []
        for key in keys:
            with suppress(ProofError):
                if self.signed_at(key) is not None:
                    wanted = key.name, key.key_id()
                    kept.append(next(s for s in self.signatures if (s.name, s.key_id) == wanted))
        return replace(self, signatures=tuple(kept))

    def check_log(self, log: NoteKey) -> None:
        """Raise ProofError unless the checkpoint is this log's, signed by it."""
        if self.checkpoint.origin != log.name or self.signed_at(log) is None:
            raise ProofError(f"the checkpoint is not signed by the log {log.name}")

    def signed_at(self, key: NoteKey) -> int | None:
        """
        Return the time of a key's signature as `check_signature` does, or None if it has none.

        Lines of other keys are ignored; of a key's lines, the first one counts.

        Raises ProofError if the key's signature is not valid.
        """
        wanted = key.name, key.key_id()
        for one in self.signatures:
            if (one.name, one.key_id) == wanted:
                return self.checkpoint.check_signature(key, one.signature)
        return None


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise WireError("a name in a note must not be empty or have a space or a plus sign")


def _to_base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def _base64(text: str) -> bytes:
    """Decode canonical base64, or raise WireError."""
    try:
        raw = base64.b64decode(text, validate=True)
    except ValueError as error:
        raise WireError("a note has a field that is not base64") from error
    if _to_base64(raw) != text:
        raise WireError("a note has a field that is not canonical base64")
    return raw
