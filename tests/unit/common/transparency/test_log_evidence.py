"""The search for forks in what devices saw."""

from dataclasses import replace

from shuffledp.common.transparency.checkpoint import SignedCheckpoint
from shuffledp.common.transparency.log import LogEvidence, find_fork
from tests.support.transparency import KEYS, LOG, WITNESSES, Log, task_entry, with_root

_COMMON = [task_entry(number) for number in range(3)]
_FIRST = Log([*_COMMON, task_entry(3), task_entry(4)])
_SECOND = Log([*_COMMON, task_entry(9), task_entry(4), task_entry(5)])


def _piece(log: Log, index: int, size: int) -> LogEvidence:
    signed = log.cosigned(size, witnesses=WITNESSES[:2])
    return log.proof(index, size, signed)


def test_heads_of_one_size_or_entries_at_one_index_convict_those_who_signed_both() -> None:
    """The log and two witnesses; the third signed neither head."""
    same_size = [_piece(_FIRST, 1, 5), _piece(_SECOND, 2, 5)]
    same_index = [_piece(_FIRST, 3, 4), _piece(_SECOND, 3, 6)]
    for pair in (same_size, same_index):
        assert [(*pair,)] * 3 == [find_fork(pair, key) for key in (LOG, *KEYS[:2])]
        assert find_fork(pair, KEYS[2]) is None


def test_one_history_convicts_nobody() -> None:
    """However many heads and entries; nor do two histories whose difference nobody shows."""
    history = [_piece(_FIRST, index, size) for size in range(1, 6) for index in range(size)]
    unclear = [_piece(_FIRST, 4, 5), _piece(_SECOND, 3, 6)]
    for evidence in (history, history[::-1], unclear, []):
        assert find_fork(evidence, LOG) is None


def test_invented_pieces_neither_convict_nor_hide() -> None:
    """A head without a valid signature, and an entry that is not under its head, before others."""
    real = [_piece(_FIRST, 3, 4), _piece(_SECOND, 3, 6)]
    unsigned = replace(real[0], checkpoint=replace(real[0].checkpoint, signatures=()))
    forged = with_root(real[0].checkpoint, bytes(32))
    forged = replace(forged, checkpoint=real[1].checkpoint.checkpoint)
    elsewhere = replace(_SECOND.proof(3, 6), checkpoint=real[0].checkpoint)
    invented = [unsigned, replace(real[0], checkpoint=forged), elsewhere]

    assert find_fork([*invented, real[0]], LOG) is None
    assert (*real,) == find_fork([*invented, *real], LOG)


def test_two_logs_of_one_witness_do_not_fork() -> None:
    """A witness cosigns many logs; heads of different origins do not conflict."""
    first = _piece(_FIRST, 3, 4)
    head = replace(first.checkpoint.checkpoint, origin="other.example", root=bytes(32))
    line = head.cosign(WITNESSES[0].name, WITNESSES[0].identity, 1)
    second = replace(first, checkpoint=SignedCheckpoint(head, (line,)))

    assert find_fork([first, second], KEYS[0]) is None
