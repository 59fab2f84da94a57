from dataclasses import replace

import pytest

from shuffledp.common.crypto.signing import SigningIdentity
from shuffledp.common.errors import ProofError, WireError
from shuffledp.common.transparency.log import EntryKind, LogEntry
from tests.support.transparency import Log, task_entry

_LABEL = b"shuffledp v1 log entry"
_IDENTITY = SigningIdentity(bytes(32))


def test_the_bytes_of_an_entry_are_fixed() -> None:
    """The label, the kind and the content, which from_bytes reads back."""
    signed = _IDENTITY.sign(b"task")
    entries = {
        1: (LogEntry.of_task(signed), signed.digest() + signed.signature),
        **{
            kind: (
                LogEntry(EntryKind(kind), _IDENTITY.public_identity().raw),
                _IDENTITY.public_identity().raw,
            )
            for kind in (2, 3, 4, 5)
        },
    }

    for byte, (entry, content) in entries.items():
        assert _LABEL + bytes([byte]) + content == entry.to_bytes()
        assert entry == LogEntry.from_bytes(entry.to_bytes())


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        _LABEL,
        _LABEL + b"\0" + bytes(32),
        _LABEL + b"\6" + bytes(32),
        _LABEL + b"\1" + bytes(32),
        _LABEL + b"\2" + bytes(96),
        _LABEL + b"\2" + bytes(33),
        _LABEL.upper() + b"\2" + bytes(32),
    ],
)
def test_other_bytes_are_refused(raw: bytes) -> None:
    """A wrong label, an unknown kind, or the length of another kind."""
    with pytest.raises(WireError):
        LogEntry.from_bytes(raw)


def test_a_proof_holds_for_its_entry_under_its_head_only() -> None:
    """Not under a larger head, nor for another entry's index."""
    log = Log([task_entry(i) for i in range(5)])
    log.proof(2).verify()

    for proof, size in ((log.proof(2), 4), (log.proof(2, 4), 5), (log.proof(4), 4)):
        with pytest.raises(ProofError):
            replace(proof, checkpoint=log.head(size)).verify()
