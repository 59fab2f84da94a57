from common.messages.submission import Outcome
from shuffler.storage.group import BatchKey, Group, form_group
from shuffler.storage.submissions import Deduplication

_KEY = BatchKey(bytes(32))


def _with_tags(number: int, *tags: bytes) -> Group:
    return Group(number=number, tags=b"".join(tags), sealed=b"")


def test_half_a_tag_decides_nothing() -> None:
    """Two ids whose tags begin alike are two submissions, stored or in one call."""
    deduplication = Deduplication()
    one, other = (bytes(8) + rest * 8 + b"c" * 16 for rest in (b"1", b"2"))
    stored = _with_tags(7, one)
    deduplication.remember(stored)

    outcomes = deduplication.judge([_with_tags(8, other)], [True], {7: stored.tags}.__getitem__)
    assert [[Outcome.STORED]] == outcomes
    again = deduplication.judge([_with_tags(9, one, other)], [True], {7: stored.tags}.__getitem__)
    assert [[Outcome.REPEATED, Outcome.STORED]] == again
    together = Deduplication().judge([_with_tags(1, one, other)], [True], lambda _: b"")
    assert [[Outcome.STORED, Outcome.STORED]] == together


def test_only_groups_that_may_hold_a_repeat_are_read() -> None:
    """What is new costs no look at the disk."""
    deduplication = Deduplication()
    groups = [form_group([bytes([n, m]) * 38 for m in range(50)], _KEY)[0] for n in range(20)]
    read: list[int] = []

    def tags(number: int) -> bytes:
        read.append(number)
        return next(group.tags for group in groups if group.number == number)

    for group in groups:
        assert [[Outcome.STORED] * 50] == deduplication.judge([group], [True], tags)
        deduplication.remember(group)
    assert [] == read
    repeat = form_group([bytes([3, 4]) * 38], _KEY)[0]
    assert [[Outcome.REPEATED]] == deduplication.judge([repeat], [True], tags)
    assert [groups[3].number] == read
