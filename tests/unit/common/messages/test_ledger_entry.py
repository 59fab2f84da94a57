import dataclasses
import hashlib
import math
from typing import Any

import pytest

from common.errors import LedgerError
from common.messages.batch import BatchId
from common.messages.ledger_entry import FIRST_PREVIOUS_HASH, ChainHead, LedgerEntry, verify
from common.task_digest import TaskDigest


def _fields(entry: int) -> dict[str, Any]:
    return {
        "entry": entry,
        "task_digest": TaskDigest(bytes([entry]) * 32),
        "batch_id": BatchId(bytes([entry]) * 16),
        "population": "staff",
        "n_users": 100,
        "n_refused": 2,
        "coalition": "analyzer",
        "epsilon": 0.25,
        "delta": 1e-6,
        "theorem": "formula 1, e^ε",
        "composed_epsilon": 0.5,
    }


def _chain(length: int = 4) -> list[LedgerEntry]:
    entries: list[LedgerEntry] = []
    previous = FIRST_PREVIOUS_HASH
    for entry in range(1, length + 1):
        entries.append(LedgerEntry.chained(previous, **_fields(entry)))
        previous = entries[-1].entry_hash
    return entries


def test_a_hash_is_sha_256_of_label_previous_hash_and_canonical_json() -> None:
    """Spelled out, so that anybody can compute it."""
    text = (
        '{"batch_id":"01010101010101010101010101010101","coalition":"analyzer",'
        '"composed_epsilon":0.5,"delta":1e-06,"entry":1,"epsilon":0.25,"n_refused":2,'
        '"n_users":100,"population":"staff",'
        f'"task_digest":"{"01" * 32}","theorem":"formula 1, e^\\u03b5"}}'
    )
    expected = hashlib.sha256(b"shuffledp v1 ledger" + bytes(32) + text.encode()).digest()

    assert expected == _chain(1)[0].entry_hash


def test_a_chain_that_nobody_touched_holds() -> None:
    """Whole, or page by page; an empty one too."""
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
    """Whichever of its fields it was."""
    chain = _chain()
    chain[1] = dataclasses.replace(chain[1], **change)
    with pytest.raises(LedgerError, match="broken at entry 2: it is not what its hash says"):
        verify(chain)


def test_an_entry_that_was_changed_and_hashed_again_breaks_the_next() -> None:
    """Its own hash is right; what follows was chained to another."""
    chain = _chain()
    chain[1] = LedgerEntry.chained(chain[0].entry_hash, **_fields(2) | {"epsilon": 0.1})
    with pytest.raises(LedgerError, match="broken at entry 3: it does not follow the one before"):
        verify(chain)


def test_a_removed_entry_is_noticed() -> None:
    """From the beginning, from the middle; renumbered or not."""
    chain = _chain()
    with pytest.raises(LedgerError, match="entry 3 follows entry 1"):
        verify([chain[0], *chain[2:]])
    with pytest.raises(LedgerError, match="entry 2 follows entry 0"):
        verify(chain[1:])
    renumbered = [dataclasses.replace(entry, entry=entry.entry - 1) for entry in chain[2:]]
    with pytest.raises(LedgerError, match="broken at entry 2"):
        verify([chain[0], *renumbered])


def test_an_infinite_epsilon_has_a_hash() -> None:
    """Where nothing is certified for a release alone."""
    entry = LedgerEntry.chained(FIRST_PREVIOUS_HASH, **_fields(1) | {"epsilon": math.inf})

    assert "inf" == entry.fields()["epsilon"]
    assert 1 == verify([entry]).entry


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
def test_what_is_no_entry_cannot_exist(change: dict[str, Any]) -> None:
    """Whatever a damaged file holds."""
    with pytest.raises(LedgerError, match="entry 1"):
        dataclasses.replace(_chain(1)[0], **change)
