import pickle

import numpy as np
import pytest

from shuffledp.common.crypto.batch_key import BatchKey
from shuffledp.common.crypto.hpke import split_every
from shuffledp.common.errors import DamagedStorageError
from shuffledp.common.messages.submission import Outcome
from shuffledp.shuffler.storage.group import Group, form_group, merge_small, open_group, open_tags
from shuffledp.shuffler.storage.submissions import Deduplication

_KEY = BatchKey(bytes(range(32)))
_SUBMISSIONS = [bytes([number]) * (76 + 60 * (number % 3)) for number in range(20)]
"""Of several lengths."""


def test_a_group_holds_the_opened_submissions_sorted_by_tag() -> None:
    """Submissions that did not open are left out."""
    opened = [each if number % 3 else None for number, each in enumerate(_SUBMISSIONS)]
    group, places = form_group(opened, _KEY.private_bytes())
    reports = open_group(group.number, group.sealed, _KEY).submissions()

    assert [number for number in range(20) if number % 3] == sorted(places)
    assert [_SUBMISSIONS[place][16:] for place in places] == reports
    tags = [entry[:16] for entry in split_every(group.tags, 32)]
    assert [_KEY.tag(bytes([place]) * 16) for place in places] == tags == sorted(tags)


def test_small_groups_are_merged_and_large_ones_left() -> None:
    """The merged group is sorted by its tags."""
    alone = [form_group([one], _KEY.private_bytes())[0] for one in _SUBMISSIONS]
    large, _ = form_group([bytes([100 + n]) * 76 for n in range(100)], _KEY.private_bytes())
    merged, left = merge_small([*alone, large], _KEY)
    whole, _ = form_group(_SUBMISSIONS, _KEY.private_bytes())

    assert left is large
    assert (whole.tags, 20) == (merged.tags, len(merged))
    groups = [open_group(each.number, each.sealed, _KEY) for each in (whole, merged)]
    assert groups[0].submissions() == groups[1].submissions()
    np.testing.assert_array_equal(groups[0].sizes, groups[1].sizes)
    chosen = np.arange(20) % 2 == 0
    half = merged.stored([Outcome.STORED, Outcome.TOKEN_USED] * 10, _KEY)
    kept = open_group(half.number, half.sealed, _KEY).submissions()
    assert groups[0].submissions()[::2] == kept
    assert [entry.tobytes() for entry in merged.entries()[chosen]] == split_every(half.tags, 32)
    assert [large] == merge_small([large], _KEY)
    assert alone[:1] == merge_small(alone[:1], _KEY)
    assert [] == merge_small([], _KEY)


def test_rows_open_only_under_their_key_at_their_place() -> None:
    """Another key or place, or a changed byte, is detected; a group opens only as itself."""
    key, other = BatchKey(BatchKey.generate()), BatchKey(BatchKey.generate())
    sealed = key.seal(b"row", b"place 1")

    assert b"row" == key.open(sealed, b"place 1")
    changed = sealed[:-1] + bytes([sealed[-1] ^ 1])
    for opener, row, place in (
        (other, sealed, b"place 1"),
        (key, sealed, b"place 2"),
        (key, changed, b"place 1"),
        (key, b"", b"place 1"),
    ):
        with pytest.raises(DamagedStorageError):
            opener.open(row, place)
    group, _ = form_group(_SUBMISSIONS, _KEY.private_bytes())
    for reader, number in ((open_group, group.number + 1), (open_tags, group.number)):
        with pytest.raises(DamagedStorageError):
            reader(number, group.sealed, _KEY)


def test_rows_have_fresh_nonces_and_tags_are_keyed_hashes() -> None:
    """Equal rows differ; equal ids have equal tags under one key only."""
    key, other = BatchKey(BatchKey.generate()), BatchKey(BatchKey.generate())

    assert key.seal(b"row") != key.seal(b"row")
    assert key.tag(b"id") == key.tag(b"id")
    assert key.tag(b"id") != other.tag(b"id")


def test_a_batch_key_cannot_be_printed_or_pickled() -> None:
    """The raw bytes stay in the key's file."""
    raw = BatchKey.generate()

    assert raw.hex() not in repr(BatchKey(raw))
    with pytest.raises(TypeError):
        pickle.dumps(BatchKey(raw))


def _with_tags(number: int, *tags: bytes) -> Group:
    return Group(number=number, tags=b"".join(tags), sealed=b"")


def test_submissions_whose_tags_begin_alike_are_different() -> None:
    """The other is stored before, or comes in the same call."""
    deduplication = Deduplication()
    one, other = (bytes(8) + rest * 8 + b"c" * 16 for rest in (b"1", b"2"))
    stored = _with_tags(7, one)
    deduplication.remember(stored.tags, np.full(len(stored), stored.number, np.uint64))
    read = {7: stored.tags}.__getitem__

    outcomes = deduplication.classify([_with_tags(8, other)], read, new=True)
    assert [[Outcome.STORED]] == outcomes
    again = deduplication.classify([_with_tags(9, one, other)], read, new=True)
    assert [[Outcome.REPEATED, Outcome.STORED]] == again
    together = Deduplication().classify([_with_tags(1, one, other)], lambda _: b"", new=True)
    assert [[Outcome.STORED, Outcome.STORED]] == together
