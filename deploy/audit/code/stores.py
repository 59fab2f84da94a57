"""
What the shuffler's stores give back: every entry, beside what belongs to it.

An index is held against a table of Python's, groups against hashes that are taken here one by one,
and a saved order against what the system was told to flush before the order got its name.
"""

import os
import secrets
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from common.crypto.hpke_pool import Opened
from common.sorted_index import SortedIndex
from common.task.task import SUBMISSION_ID_BYTES
from deploy.audit.audited import Audited
from deploy.audit.checks import Checks
from deploy.audit.finding import Outcome
from shuffler.storage.batch_files import BatchFiles
from shuffler.storage.batch_key import BatchKey
from shuffler.storage.group import (
    TAGS,
    Group,
    form_from_opened,
    form_group,
    merge_small,
    open_group,
)

_RUNS: Final = ((300, 100, 30, 10), (10, 30, 100, 300), (7, 7, 1, 50, 20))
"""Entries that are added together: runs that stay apart, and such that are merged."""
_STRANGERS: Final = 50
"""Keys that are looked up and were never added."""
_LARGEST: Final = 2**64 - 1
_NUMBERS: Final = 2_000
_NUMBER_BITS: Final = 63
"""Of a group's number: all that SQLite holds without a sign."""
_REPORT_BYTES: Final = 8
_TOGETHER: Final = 40
_CHUNKS: Final = (b"one chunk", b"another", b"and the last")

_Words = NDArray[np.uint64]


def play_stores(audited: Audited, rng: np.random.Generator) -> Outcome:
    """Check them all; little is drawn."""
    del audited
    checks = Checks()
    _check_stores(checks, rng)
    finding = checks.finding(
        scenario="stores",
        title="What the shuffler stores",
        heading="correctness",
        sentence="Submissions were found again however long ago they came; what came together was "
        "stored in the order of its hashes, each beside its own reports; and an order of a batch "
        "was on the disk, whole, before it got its name.",
        advice="Do not collect with this version.",
    )
    return Outcome(findings=(finding,))


def _check_stores(checks: Checks, rng: np.random.Generator) -> None:
    """Check all of them; keys and numbers of groups come from the operating system."""
    for sizes in _RUNS:
        _check_index(checks, sizes, rng)
    _check_numbers(checks)
    _check_groups(checks)
    _check_parts(checks)
    _check_unreadable(checks)
    _check_saved(checks)


def _check_index(checks: Checks, sizes: tuple[int, ...], rng: np.random.Generator) -> None:
    """Look all keys up after each addition: earlier ones, such as came twice, and strangers."""
    index, held = SortedIndex(), defaultdict[int, list[int]](list)
    for size in sizes:
        keys, values = _words(size, rng), _words(size, rng)
        keys[-1] = keys[0]
        if held:
            keys[size // 2] = next(iter(held))
        index.add(keys, values)
        for key, value in zip(keys.tolist(), values.tolist(), strict=True):
            held[key].append(value)
        known = np.array([*held, 0, _LARGEST], dtype=np.uint64)
        asked = rng.permutation(np.concatenate([known, _words(_STRANGERS, rng)]))
        places, found = index.find(asked)
        expected = Counter(
            (place, value)
            for place, key in enumerate(asked.tolist())
            for value in held.get(key, ())
        )
        checks.must(
            "an index finds every entry of a key, however long ago it was added, and no other",
            Counter(zip(places.tolist(), found.tolist(), strict=True)) == expected
            and len(index) == expected.total(),
        )


def _words(count: int, rng: np.random.Generator) -> _Words:
    return rng.integers(0, _LARGEST, size=count, dtype=np.uint64, endpoint=True)


def _submissions(count: int) -> list[bytes]:
    return [secrets.token_bytes(SUBMISSION_ID_BYTES + _REPORT_BYTES) for _ in range(count)]


def _check_numbers(checks: Checks) -> None:
    """Numbers of groups, formed and laid together, use every bit that there is."""
    key = BatchKey(BatchKey.generate())
    formed = [form_group([one], key)[0] for one in _submissions(_NUMBERS)]
    merged = [merge_small(formed[at : at + 2], key)[0] for at in range(0, _NUMBERS, 2)]
    for groups in (formed, merged):
        numbers = [group.number for group in groups]
        ever, always = 0, _LARGEST
        for number in numbers:
            ever, always = ever | number, always & number
        checks.must(
            "a group's number is drawn from all that there are",
            len(set(numbers)) == len(numbers) and (ever, always) == (2**_NUMBER_BITS - 1, 0),
        )


def _rows(group: Group, key: BatchKey) -> Iterator[tuple[bytes, bytes]]:
    """Give the tags and the reports that stand in one place, place by place."""
    reports = open_group(group.number, group.sealed, key)
    for place in range(len(group)):
        at, start = place * TAGS.itemsize, place * _REPORT_BYTES
        yield group.tags[at : at + TAGS.itemsize], reports[start : start + _REPORT_BYTES]


def _row(submission: bytes, key: BatchKey) -> tuple[bytes, bytes]:
    """Give what stands in a group of one submission."""
    own_id, report = submission[:SUBMISSION_ID_BYTES], submission[SUBMISSION_ID_BYTES:]
    return key.tag(own_id) + key.tag(report), report


def _check_parts(checks: Checks) -> None:
    """Leave some of a group out: the reports of the others stay, beside their own hashes."""
    key, sent = BatchKey(BatchKey.generate()), _submissions(_TOGETHER)
    group, _ = form_group(sent, key)
    whole, places = list(_rows(group, key)), np.arange(_TOGETHER)
    for kept in (places < _TOGETHER // 3, places == _TOGETHER - 1, places % 5 == 1, places >= 0):
        checks.must(
            "of a group of which a part is new that part is stored",
            list(_rows(group.only(kept, key), key)) == [whole[at] for at in np.flatnonzero(kept)],
        )


def _check_unreadable(checks: Checks) -> None:
    """Let envelopes not open at the beginning, in the middle and at the end."""
    raw = BatchKey.generate()
    key, sent = BatchKey(raw), _submissions(_TOGETHER)
    unread = bytes(len(sent[0]))
    for shut in ((0,), (0, 1, 7), (_TOGETHER // 2,), (_TOGETHER - 1,), ()):
        readable = bytes(place not in shut for place in range(_TOGETHER))
        texts = [one if good else unread for one, good in zip(sent, readable, strict=True)]
        group, places = form_from_opened(Opened(plaintexts=b"".join(texts), readable=readable), raw)
        checks.must(
            "each of a group is known by its own envelope, where others do not open",
            len(places) == sum(readable)
            and list(_rows(group, key)) == [_row(texts[place], key) for place in places],
        )


def _check_saved(checks: Checks) -> None:
    """Save an order, and see what was on the disk when it got its name."""
    with TemporaryDirectory(prefix="shuffledp-audit-") as place:
        folder = Path(place) / "batch"
        files = BatchFiles(folder, BatchKey(BatchKey.generate()))
        files.begin()
        with _disk_heard() as (renamed, flushed):
            files.save(iter(_CHUNKS))
        after = [path.stat().st_ino for path in (folder, folder.parent)]
        checks.must(
            "an order is on the disk, whole, before it gets its name",
            len(renamed) == 1 and all(renamed),
        )
        checks.must("and then its name is", set(after) <= set(flushed))
        checks.must("an order is read as it was saved", list(files.saved()) == list(_CHUNKS))


@contextmanager
def _disk_heard() -> Iterator[tuple[list[bool], list[int]]]:
    """Hear of each rename whether all of the file was flushed, and what is flushed after it."""
    renamed, flushed, sizes = list[bool](), list[int](), dict[int, int]()

    def flushing(original: Callable[[int], None]) -> Callable[[int], None]:
        def other(descriptor: int) -> None:
            original(descriptor)
            status = os.fstat(descriptor)
            sizes[status.st_ino] = status.st_size
            flushed.append(status.st_ino)

        return other

    def renaming(original: Callable[..., None]) -> Callable[..., None]:
        def other(source: Any, target: Any, **fields: Any) -> None:  # noqa: ANN401  # as the original's
            status = Path(source).stat()
            renamed.append(sizes.get(status.st_ino) == status.st_size)
            flushed.clear()
            original(source, target, **fields)

        return other

    with ExitStack() as stack:
        for name, heard in (
            ("fsync", flushing),
            ("fdatasync", flushing),
            ("replace", renaming),
            ("rename", renaming),
        ):
            stack.enter_context(patch.object(os, name, heard(getattr(os, name))))
        yield renamed, flushed


def _check_groups(checks: Checks) -> None:
    """Submissions that came together are stored in the order of their hashes, which are keyed."""
    raw = BatchKey.generate()
    key = BatchKey(raw)
    sent = _submissions(_TOGETHER)
    parts = [(one[:SUBMISSION_ID_BYTES], one[SUBMISSION_ID_BYTES:]) for one in sent]
    expected = sorted((key.tag(name) + key.tag(report), report) for name, report in parts)
    alone = [form_group([one], key)[0] for one in sent]
    opened = Opened(plaintexts=b"".join(sent), readable=bytes([1]) * len(sent))
    groups = {
        "of one call": form_group(sent, key)[0],
        "of one bulk call": form_from_opened(opened, raw)[0],
        "laid together": merge_small(alone, key)[0],
    }
    for words, group in groups.items():
        starts = range(0, len(group.tags), TAGS.itemsize)
        tags = [group.tags[at : at + TAGS.itemsize] for at in starts]
        reports = open_group(group.number, group.sealed, key)
        checks.must(
            f"submissions {words} stand in the order of their hashes",
            tags == [tag for tag, _ in expected]
            and reports == b"".join(report for _, report in expected),
        )
