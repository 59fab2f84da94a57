import numpy as np
import pytest

from common.crypto.hpke_pool import Opened
from common.errors import DamagedStorageError
from shuffler.storage.group import (
    BatchKey,
    form_from_opened,
    form_group,
    merge_small,
    open_group,
    open_tags,
)

_KEY = BatchKey(bytes(range(32)))
_SUBMISSIONS = [bytes([number]) * 76 for number in range(20)]


def test_a_group_holds_what_opened_and_knows_whence() -> None:
    """Submission by submission in the order of their tags; what did not open is left out."""
    readable = bytes(number % 3 != 0 for number in range(20))
    opened = Opened(plaintexts=b"".join(_SUBMISSIONS), readable=readable)
    group, places = form_from_opened(opened, _KEY.private_bytes())
    reports = open_group(group.number, group.sealed, _KEY)

    assert [number for number in range(20) if number % 3] == sorted(places)
    assert b"".join(bytes([place]) * 60 for place in places) == reports
    tags = [group.tags[at : at + 16] for at in range(0, len(group.tags), 32)]
    assert [_KEY.tag(bytes([place]) * 16) for place in places] == tags == sorted(tags)


def test_no_submission_at_all_is_an_empty_group() -> None:
    """A call of none, or of none that opens."""
    assert 0 == len(form_group([], _KEY)[0])
    assert 0 == len(form_from_opened(Opened(plaintexts=b"", readable=b""), bytes(32))[0])
    assert 0 == len(form_from_opened(Opened(plaintexts=bytes(76), readable=b"\0"), bytes(32))[0])


def test_a_part_of_a_group_is_a_group() -> None:
    """Tags and reports of those that are kept, under the same number."""
    group, places = form_group(_SUBMISSIONS, _KEY)
    kept = np.array([place < 5 for place in places])
    part = group.only(kept, _KEY)

    assert (5, group.number) == (len(part), part.number)
    wanted = b"".join(bytes([place]) * 60 for place in places if place < 5)
    assert wanted == open_group(part.number, part.sealed, _KEY)
    assert part.tags == open_tags(part.number, part.sealed_tags(_KEY), _KEY)


def test_small_groups_are_laid_together_and_large_ones_left() -> None:
    """The same submissions, tags beside their reports, ascending in their tags."""
    alone = [form_group([one], _KEY)[0] for one in _SUBMISSIONS]
    large, _ = form_group([bytes([100 + n]) * 76 for n in range(100)], _KEY)
    merged, left = merge_small([*alone, large], _KEY)
    whole, _ = form_group(_SUBMISSIONS, _KEY)

    assert left is large
    assert (whole.tags, 20) == (merged.tags, len(merged))
    assert open_group(whole.number, whole.sealed, _KEY) == open_group(
        merged.number, merged.sealed, _KEY
    )
    assert [large] == merge_small([large], _KEY)
    assert alone[:1] == merge_small(alone[:1], _KEY)
    assert [] == merge_small([], _KEY)


def test_tags_and_reports_do_not_pass_for_each_other() -> None:
    """Nor for those of another group: what is stored is bound to its place."""
    group, _ = form_group(_SUBMISSIONS, _KEY)
    with pytest.raises(DamagedStorageError):
        open_group(group.number + 1, group.sealed, _KEY)
    with pytest.raises(DamagedStorageError):
        open_tags(group.number, group.sealed, _KEY)
