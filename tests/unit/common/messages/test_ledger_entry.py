import dataclasses
import hashlib
import math
from typing import Any

import pytest

from shuffledp.common.crypto.signing import SigningIdentity
from shuffledp.common.errors import LedgerError, ProofError
from shuffledp.common.messages.batch import BatchId
from shuffledp.common.messages.ledger_entry import ChainedEntry, ChainHead, LedgerEntry, verify
from shuffledp.common.task_digest import TaskDigest
from tests.support.ledger_entries import decision_entry, first_entry, next_entry

_IDENTITY = SigningIdentity(bytes(range(32)))


def _chain() -> list[LedgerEntry]:
    entries = [first_entry()]
    while len(entries) < 4:
        entries.append(next_entry(entries[-1]))
    return entries


def test_a_hash_is_sha_256_of_label_previous_hash_and_canonical_json() -> None:
    """The text is the documented one; an infinite epsilon has a hash too."""
    text = (
        '{"batch_id":"62626262626262626262626262626262","coalition":"analyzer",'
        '"composed_epsilon":0.51234,"delta":1e-06,"entry":1,"epsilon":0.25,"n_refused":2,'
        '"n_users":100,"population":"staff",'
        f'"task_digest":"{"d1" * 32}","theorem":"formula 1, e^\\u03b5"}}'
    )
    expected = hashlib.sha256(b"shuffledp v1 ledger" + bytes(32) + text.encode()).digest()

    assert expected == first_entry(epsilon=0.25, theorem="formula 1, e^ε").entry_hash
    infinite = first_entry(epsilon=math.inf)
    assert "inf" == infinite.fields()["epsilon"]
    assert 1 == verify([infinite]).entry


def test_an_unchanged_chain_holds() -> None:
    """The chain holds as a whole, page by page, and when it is empty."""
    chain = _chain()
    head = ChainHead(entry=4, entry_hash=chain[-1].entry_hash)

    assert head == verify(chain)
    assert head == verify(chain[2:], verify(chain[:2]))
    assert ChainHead() == verify([])


@pytest.mark.parametrize(
    "change",
    [
        {"epsilon": 0.2},
        {"composed_epsilon": 0.4},
        {"delta": 1e-7},
        {"n_users": 101},
        {"n_refused": 0},
        {"population": "others"},
        {"coalition": "analyzer+users"},
        {"theorem": "another"},
        {"task_digest": TaskDigest(bytes(32))},
        {"batch_id": BatchId(bytes(16))},
        {"entry_hash": bytes(32)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_changed_entry_is_named(change: dict[str, Any]) -> None:
    """A change of any field is detected."""
    chain = _chain()
    chain[1] = dataclasses.replace(chain[1], **change)
    with pytest.raises(LedgerError, match="broken at entry 2: it does not match its hash"):
        verify(chain)


def test_a_rehashed_or_removed_entry_breaks_the_chain() -> None:
    """The break shows at the beginning and in the middle, renumbered or not."""
    chain = _chain()
    rehashed = next_entry(chain[0], epsilon=0.1)
    renumbered = [dataclasses.replace(entry, entry=entry.entry - 1) for entry in chain[2:]]
    for broken, message in (
        ([chain[0], rehashed, *chain[2:]], "broken at entry 3: it does not follow the one before"),
        ([chain[0], *chain[2:]], "entry 3 follows entry 1"),
        (chain[1:], "entry 2 follows entry 0"),
        ([chain[0], *renumbered], "broken at entry 2"),
    ):
        with pytest.raises(LedgerError, match=message):
            verify(broken)


@pytest.mark.parametrize(
    "change",
    [
        {"task_digest": b"short"},
        {"previous_hash": b""},
        {"entry_hash": "text"},
        {"epsilon": math.nan},
        {"delta": "1"},
        {"coalition": "everybody"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_malformed_entry_is_refused(change: dict[str, Any]) -> None:
    """A damaged file may have wrong lengths, types or ranges."""
    with pytest.raises(LedgerError, match="entry 1"):
        dataclasses.replace(first_entry(), **change)


def test_a_decision_is_chained_among_releases() -> None:
    """A change of any field of it is detected, be it rehashed or not."""
    first = first_entry()
    decision = decision_entry(_IDENTITY, first)
    last = next_entry(decision)
    assert 3 == verify([first, decision, last]).entry
    for name, value in _CHANGES.items():
        changed = dataclasses.replace(decision, **{name: value})
        rehashed = dataclasses.replace(changed, entry_hash=changed.expected_hash())
        for false, message in ((changed, "at entry 2: it does not match"), (rehashed, "entry 3")):
            chain: list[ChainedEntry] = [first, false, last]
            with pytest.raises(LedgerError, match=message):
                verify(chain)


_CHANGES: dict[str, Any] = {
    "task_digest": TaskDigest(bytes(32)),
    "batch_id": BatchId(bytes(16)),
    "decision": "drop",
    "reason": "another check",
    "note": "another note",
    "decided": 1,
}


@pytest.mark.parametrize("name", _CHANGES)
def test_a_decision_is_signed_by_the_analyzer(name: str) -> None:
    """A rehashed entry whose signed field was changed does not verify, nor does another's."""
    decision = decision_entry(_IDENTITY, first_entry())
    decision.verify(_IDENTITY.public_identity())

    with pytest.raises(ProofError, match="entry 2 is not signed by the pinned analyzer"):
        dataclasses.replace(decision, **{name: _CHANGES[name]}).verify(_IDENTITY.public_identity())
    with pytest.raises(ProofError):
        decision.verify(SigningIdentity.generate().public_identity())


@pytest.mark.parametrize(
    "change",
    [
        {"decision": "forget"},
        {"note": ""},
        {"note": "n" * 501},
        {"reason": "r" * 1001},
        {"reason": 5},
        {"decided": -1},
        {"decided": 2.5},
        {"signature": b""},
    ],
    ids=str,
)
def test_a_malformed_decision_is_refused(change: dict[str, Any]) -> None:
    """A damaged file may have wrong lengths, types or ranges."""
    with pytest.raises(LedgerError, match="entry 2"):
        dataclasses.replace(decision_entry(_IDENTITY, first_entry()), **change)
