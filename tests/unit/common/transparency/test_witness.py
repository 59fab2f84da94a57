from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shuffledp.common.errors import ProofError, SettingsError
from shuffledp.common.transparency.checkpoint import Checkpoint, SignedCheckpoint
from shuffledp.common.transparency.merkle import verify_consistency
from shuffledp.common.transparency.witness import Witness
from tests.support.transparency import (
    KEYS,
    LOG,
    LOG_IDENTITY,
    NOW,
    WITNESSES,
    Log,
    empty,
    with_lines,
    with_root,
)

_WITNESS = WITNESSES[0]
_LOG = Log([bytes([i]) for i in range(12)])
_FORK = Log([bytes([i % 5]) for i in range(12)])
"""Agrees with the log in the first five entries."""


def _at(size: int) -> Checkpoint:
    return _LOG.head(size).checkpoint


def _cosign(last: Checkpoint, signed: SignedCheckpoint, path: tuple[bytes, ...]) -> Checkpoint:
    line = _WITNESS.cosign(
        last, signed, old_size=last.size, proof=partial(verify_consistency, path=path), seconds=NOW
    )
    assert line is not None
    assert NOW == with_lines(signed, line).signed_at(KEYS[0])
    return signed.checkpoint


def test_a_witness_follows_a_growing_log() -> None:
    """From nothing, to larger heads, and again to the same head for a newer time."""
    last = empty()
    for size in (0, 3, 3, 8, 12):
        last = _cosign(last, _LOG.head(size), _LOG.consistency(last.size, size))


@pytest.mark.parametrize(
    ("last", "signed", "path"),
    [
        (_at(8), _FORK.head(8), ()),
        (_at(8), _FORK.head(12), _FORK.consistency(8)),
        (_at(8), _FORK.head(12), _LOG.consistency(8)),
        (_at(8), _LOG.head(7), ()),
        (_at(8), _LOG.head(7), _LOG.consistency(7, 8)),
        (_at(8), _LOG.head(0), ()),
        (_at(8), _LOG.head(8), _LOG.consistency(8, 12)),
        (_at(8), _LOG.head(12), ()),
        (_at(8), _LOG.head(12), _LOG.consistency(8)[:-1]),
        (empty(), _LOG.head(8), _LOG.consistency(3, 8)),
    ],
)
def test_a_head_that_does_not_continue_the_last_one_is_refused(
    last: Checkpoint, signed: SignedCheckpoint, path: tuple[bytes, ...]
) -> None:
    """Another root of the size, a fork, a smaller size, or a wrong proof."""
    with pytest.raises(ProofError):
        _cosign(last, signed, path)


@pytest.mark.parametrize("size", [7, 8, 12])
def test_a_log_restored_from_an_old_copy_is_named_at_every_size(size: int) -> None:
    """It may have published as many other tasks since, or more: the operator reads one sentence."""
    path = _FORK.consistency(8, size) if size > 8 else ()
    with pytest.raises(ProofError, match=f"of size {size} follows .*its database is an old copy"):
        _cosign(_at(8), _FORK.head(size), path)


def test_a_proof_from_another_size_is_not_cosigned() -> None:
    """As after a lost answer: the log proves consistency from the last size."""
    for old_size in (0, 7, 9):
        path = _LOG.consistency(old_size)
        assert None is _WITNESS.cosign(
            _at(8),
            _LOG.head(12),
            old_size=old_size,
            proof=partial(verify_consistency, path=path),
            seconds=NOW,
        )
    _cosign(_at(8), _LOG.head(12), _LOG.consistency(8))


def test_only_the_log_s_own_heads_are_cosigned() -> None:
    """Its key and its origin must both match."""
    other = empty("other.example").sign(LOG_IDENTITY)
    forged = _LOG.head(3).checkpoint.sign(WITNESSES[1].identity)
    renamed = SignedCheckpoint(other.checkpoint, _LOG.head(0).signatures)

    line = replace(other.signatures[0], name=LOG.name, key_id=LOG.key_id())
    foreign = replace(other, signatures=(line,))
    assert 0 == foreign.signed_at(LOG)

    for signed in (other, forged, renamed, foreign):
        with pytest.raises(ProofError):
            _cosign(empty(), signed, ())


def test_a_witness_has_a_key_of_its_own() -> None:
    """Else its cosignatures could not testify against the log."""
    with pytest.raises(SettingsError):
        Witness(name="w", identity=LOG_IDENTITY, log=LOG)


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(
    st.lists(
        st.tuples(st.booleans(), st.integers(0, 12), st.booleans(), st.binary(max_size=1)),
        max_size=30,
    )
)
def test_no_sequence_of_requests_yields_two_histories(
    requests: list[tuple[bool, int, bool, bytes]],
) -> None:
    """Sizes never shrink, and every cosigned head is of one log, whatever is asked."""
    last, cosigned = empty(), [empty()]
    for forked, size, right, root in requests:
        log = _FORK if forked else _LOG
        signed = with_root(log.head(size), root * 32) if root and size else log.head(size)
        path = log.consistency(min(last.size, size), size) if right else ()
        try:
            last = _cosign(last, signed, path)
        except ProofError:
            continue
        cosigned.append(last)

    sizes = [one.size for one in cosigned]
    assert sorted(sizes) == sizes
    assert len(set(sizes)) == len(set(cosigned))
