from dataclasses import replace
from typing import Any

import pytest

from shuffledp.common.errors import ProofError, SettingsError
from shuffledp.common.transparency.checkpoint import SignatureType, SignedCheckpoint
from shuffledp.common.transparency.witness_policy import CLOCK_SKEW_SECONDS, WEEK_SECONDS, ForkError
from tests.support.transparency import (
    KEYS,
    LOG,
    NOW,
    POLICY,
    WITNESSES,
    Log,
    task_entry,
    with_lines,
)

_LOG = Log([task_entry(i) for i in range(12)])
_FORK = Log([task_entry(i if i < 5 else i + 100) for i in range(12)])
"""Agrees with the log in the first five entries."""
_AT_8 = _LOG.cosigned(8)


def test_a_device_follows_a_growing_log() -> None:
    """It accepts the first head, a larger one, and again the same one."""
    last = None
    for old_size, size in ((0, 8), (8, 12), (12, 12)):
        signed = _LOG.cosigned(size)
        POLICY.check(signed, NOW, last, _LOG.consistency(old_size, size))
        last = signed


def test_a_rollback_is_refused() -> None:
    """However well cosigned the old head is."""
    with pytest.raises(ProofError, match="size 7 follows one of size 8"):
        POLICY.check(_LOG.cosigned(7), NOW, _AT_8, _LOG.consistency(7, 8))


def test_a_fork_is_told_from_what_the_log_never_signed() -> None:
    """A second root of a size, or a larger head without a proof; no cosignature is needed."""
    forged = SignedCheckpoint(_FORK.head(8).checkpoint, _LOG.head(8).signatures)
    with pytest.raises(ProofError, match="signature of log") as nothing:
        POLICY.check(forged, NOW, _AT_8)
    assert not isinstance(nothing.value, ForkError)
    for signed in (_FORK.head(8), _FORK.cosigned(12)):
        with pytest.raises(ForkError):
            POLICY.check(signed, NOW, _AT_8, _FORK.consistency(8, signed.checkpoint.size))


def test_too_few_cosignatures_are_refused() -> None:
    """One pinned witness twice, a strange witness, or none."""
    one = _LOG.cosigned(8, WITNESSES[:1])
    stranger = one.checkpoint.cosign("stranger.example", WITNESSES[2].identity, NOW)

    twice, strange = (with_lines(one, line) for line in (one.signatures[1], stranger))
    for signed in (_LOG.head(8), one, twice, strange):
        with pytest.raises(ProofError, match=r"[01] of 3 pinned witnesses"):
            POLICY.check(signed, NOW)
    POLICY.check(_LOG.cosigned(8, WITNESSES[1:]), NOW)


def test_a_wrong_signature_of_a_pinned_witness_is_refused() -> None:
    """Even if enough others are right [C2SP, signed-note]."""
    good, bad = _LOG.cosigned(8), _FORK.cosigned(8)
    mixed = replace(good, signatures=(*good.signatures[:3], bad.signatures[3]))

    with pytest.raises(ProofError, match="not valid"):
        POLICY.check(mixed, NOW)


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
        POLICY.check(signed, NOW)
        return
    with pytest.raises(ProofError, match="0 of 3 pinned witnesses"):
        POLICY.check(signed, NOW)


def test_another_log_s_head_is_refused() -> None:
    """Witnesses cosign many logs; the device pins one."""
    other = replace(_LOG.cosigned(8).checkpoint, origin="other.example")

    for signed in (other.sign(WITNESSES[0].identity), replace(_LOG.head(8), signatures=())):
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
