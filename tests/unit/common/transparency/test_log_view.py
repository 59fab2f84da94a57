from dataclasses import replace
from typing import Any

import pytest

from common.errors import ProofError, SettingsError
from common.transparency.checkpoint import NoteKey, SignatureType, SignedCheckpoint
from common.transparency.fork import Fork, ForkError
from common.transparency.log_view import LogView
from common.transparency.witness_policy import CLOCK_SKEW_SECONDS, WEEK_SECONDS
from tests.support.transparency import (
    KEYS,
    LOG,
    NOW,
    POLICY,
    WITNESSES,
    Log,
    task_entry,
    with_root,
)

_LOG = Log([task_entry(i) for i in range(12)])
_FORK = Log([task_entry(i if i < 5 else i + 100) for i in range(12)])
"""Agrees with the log in the first five entries."""
_AT_8 = LogView(POLICY, _LOG.cosigned(8))


def test_a_device_follows_a_growing_log() -> None:
    """It accepts an entry of the first head, of a larger one, and again of the same one."""
    view = LogView(POLICY)
    for old_size, size in ((0, 8), (8, 12), (12, 12)):
        signed = _LOG.cosigned(size)
        view = view.accept(_LOG.proof(7, size), signed, _LOG.consistency(old_size, size), NOW)
        assert LogView(POLICY, signed) == view


def test_an_entry_that_the_log_lacks_is_refused() -> None:
    """The path of another entry does not help."""
    proof = replace(_LOG.proof(7, 8), entry=task_entry(99))

    with pytest.raises(ProofError, match="index 7 does not lead to the root"):
        LogView(POLICY).accept(proof, _LOG.cosigned(8), (), NOW)


def test_a_rollback_is_refused() -> None:
    """However well cosigned the old head is."""
    with pytest.raises(ProofError, match="size 7 follows one of size 8"):
        _AT_8.advance(_LOG.cosigned(7), _LOG.consistency(7, 8), NOW)


def test_a_second_root_of_a_size_leaves_a_proof() -> None:
    """Of the log and of each witness that signed both heads; no cosignature is needed."""
    forged = SignedCheckpoint(_FORK.head(8).checkpoint, _LOG.head(8).signatures)
    with pytest.raises(ProofError, match="signature of log") as nothing:
        _AT_8.advance(forged, (), NOW)
    with pytest.raises(ForkError) as alone:
        _AT_8.advance(_FORK.head(8), (), NOW)
    with pytest.raises(ForkError) as joined:
        _AT_8.advance(_FORK.cosigned(8, WITNESSES[:1]), (), NOW)

    assert not isinstance(nothing.value, ForkError)
    alone.value.fork.verify(LOG)
    joined.value.fork.verify(LOG)
    joined.value.fork.verify(KEYS[0])
    for fork, key in ((alone.value.fork, KEYS[0]), (joined.value.fork, KEYS[1])):
        with pytest.raises(ProofError, match="did not sign both"):
            fork.verify(key)


def test_a_larger_fork_leaves_a_proof_once_its_entries_are_known() -> None:
    """The heads alone may be of one history; different entries at one index may not."""
    with pytest.raises(ForkError) as caught:
        _AT_8.advance(_FORK.cosigned(12), _FORK.consistency(8), NOW)
    fork = caught.value.fork
    with pytest.raises(ProofError, match="may be of one history"):
        fork.verify(LOG)

    proven = replace(fork, entries=(_LOG.proof(6, 8), _FORK.proof(6)))
    for key in (LOG, *KEYS):
        proven.verify(key)


@pytest.mark.parametrize(
    "fork",
    [
        Fork(_LOG.cosigned(8), _LOG.cosigned(8)),
        Fork(_LOG.cosigned(8), _LOG.cosigned(12)),
        Fork(_LOG.cosigned(8), _LOG.cosigned(12), (_LOG.proof(6, 8), _LOG.proof(6))),
        Fork(_LOG.cosigned(8), _LOG.cosigned(12), (_LOG.proof(6, 8), _LOG.proof(7))),
        Fork(_LOG.cosigned(8), _LOG.cosigned(12), (_LOG.proof(6, 8), _FORK.proof(6))),
        Fork(_LOG.cosigned(8), _LOG.cosigned(12), (_FORK.proof(6, 8), _LOG.proof(6))),
        Fork(_LOG.cosigned(8), SignedCheckpoint(_FORK.head(8).checkpoint, _LOG.head(8).signatures)),
        Fork(SignedCheckpoint(_FORK.head(8).checkpoint, _LOG.head(8).signatures), _LOG.cosigned(8)),
    ],
)
def test_an_honest_log_cannot_be_accused(fork: Fork) -> None:
    """Neither by heads of one history, nor by entries or heads that it did not sign."""
    for key in (LOG, *KEYS):
        with pytest.raises(ProofError):
            fork.verify(key)


def test_two_logs_of_one_key_do_not_fork() -> None:
    """A witness cosigns many logs; heads of different origins do not conflict."""
    head = _LOG.cosigned(8).checkpoint
    other = replace(head, origin="other.example", root=bytes(32))
    first, second = (
        SignedCheckpoint(one, (one.cosign("w", WITNESSES[0].identity, NOW),))
        for one in (head, other)
    )
    key = NoteKey("w", SignatureType.COSIGNATURE, KEYS[0].identity)

    with pytest.raises(ProofError, match="two logs"):
        Fork(first, second).verify(key)


def test_too_few_cosignatures_are_refused() -> None:
    """One pinned witness twice, a strange witness, or none."""
    one = _LOG.cosigned(8, WITNESSES[:1])
    stranger = one.checkpoint.cosign("stranger.example", WITNESSES[2].identity, NOW)

    for signed in (_LOG.head(8), one, one.add(one.signatures[1]), one.add(stranger)):
        with pytest.raises(ProofError, match=r"[01] of 3 pinned witnesses"):
            LogView(POLICY).advance(signed, (), NOW)
    LogView(POLICY).advance(_LOG.cosigned(8, WITNESSES[1:]), (), NOW)


def test_a_wrong_signature_of_a_pinned_witness_is_refused() -> None:
    """Even if enough others are right [C2SP, signed-note]."""
    good, bad = _LOG.cosigned(8), _FORK.cosigned(8)
    mixed = replace(good, signatures=(*good.signatures[:3], bad.signatures[3]))

    with pytest.raises(ProofError, match="not valid"):
        LogView(POLICY).advance(mixed, (), NOW)


@pytest.mark.parametrize(
    ("age", "accepted"),
    [
        (0, True),
        (WEEK_SECONDS, True),
        (WEEK_SECONDS + 1, False),
        (-CLOCK_SKEW_SECONDS, True),
        (-CLOCK_SKEW_SECONDS - 1, False),
    ],
)
def test_a_cosignature_counts_for_a_week(age: int, accepted: bool) -> None:  # noqa: FBT001  # a column
    """A device is not held in the past, and trusts no time in the future."""
    signed = _LOG.cosigned(8, seconds=NOW - age)
    if accepted:
        LogView(POLICY).advance(signed, (), NOW)
        return
    with pytest.raises(ProofError, match="0 of 3 pinned witnesses"):
        LogView(POLICY).advance(signed, (), NOW)


def test_another_log_s_head_is_refused() -> None:
    """Witnesses cosign many logs; the device pins one."""
    other = replace(_LOG.cosigned(8).checkpoint, origin="other.example")

    for signed in (other.sign(WITNESSES[0].identity), replace(_LOG.head(8), signatures=())):
        with pytest.raises(ProofError, match="not signed by the log"):
            LogView(POLICY).advance(signed, (), NOW)
        with pytest.raises(ProofError, match="not signed by the log"):
            POLICY.check(signed, NOW)


@pytest.mark.parametrize(
    "changes",
    [
        {"quorum": 0},
        {"quorum": 4},
        {"witnesses": (), "quorum": 1},
        {"witnesses": (*KEYS, KEYS[0])},
        {"witnesses": (*KEYS, replace(KEYS[0], name="again.example"))},
        {"witnesses": (replace(KEYS[0], type=SignatureType.CHECKPOINT),), "quorum": 1},
        {"witnesses": (replace(KEYS[0], identity=LOG.identity),), "quorum": 1},
        {"log": replace(LOG, type=SignatureType.COSIGNATURE)},
    ],
)
def test_a_policy_has_a_possible_quorum_of_distinct_keys(changes: dict[str, Any]) -> None:
    """No witness counts twice, under any name, and the log does not witness itself."""
    with pytest.raises(SettingsError):
        replace(POLICY, **changes)


def test_a_fork_never_verifies_against_the_wrong_root() -> None:
    """A head that the log signed with any root conflicts with the true one."""
    Fork(_LOG.head(8), with_root(_LOG.head(8), bytes(32))).verify(LOG)
