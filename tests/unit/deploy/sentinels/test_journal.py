import json
from pathlib import Path

import pytest

from common.crypto.signing import envelope_hash
from common.errors import SettingsError
from common.task_digest import TaskDigest
from deploy.sentinels.journal import SentinelFile, SentinelState
from tests.support.leaves import some_leaves
from user_agent.contribution import PreparedSubmission

_DIGEST = TaskDigest(b"t" * 32)
_RECEIPT = b"r" * 64


def _answers(count: int) -> list[PreparedSubmission]:
    leaves = some_leaves(2 * count)
    return [
        PreparedSubmission(
            envelope=bytes([number]) * 9,
            leaves=tuple(leaves[2 * number : 2 * number + 2]),
            deadline=0,
            sampled=False,
        )
        for number in range(count)
    ]


def _begin(path: Path, count: int = 3) -> bytes:
    """Begin a file of so many sentinels, of which the first is stored; give what is in it."""
    with SentinelFile.opened(path, _DIGEST, count) as kept:
        kept.plan(_answers(count))
        kept.record(0, SentinelState.STORED, receipt=_RECEIPT)
    return path.read_bytes()


def test_sentinels_are_read_as_they_were_written(tmp_path: Path) -> None:
    """Bytes to send, hashes for evidence and last states, in a file closed to others."""
    path = tmp_path / "sentinels.jsonl"
    with SentinelFile.opened(path, _DIGEST, 3) as kept:
        kept.plan(_answers(2))
        kept.plan(_answers(3)[2:])
        kept.record(0, SentinelState.STORED, receipt=_RECEIPT)
        kept.record(0, SentinelState.ACKNOWLEDGED)
        kept.record(1, SentinelState.REFUSED, reason="closed")
        before = kept.sentinels
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    path.chmod(0o644)
    with SentinelFile.opened(path, _DIGEST, 3) as kept:
        again = kept.sentinels

    assert before == again
    assert [SentinelState.ACKNOWLEDGED, SentinelState.REFUSED, SentinelState.PLANNED] == [
        one.state for one in again
    ]
    assert [_RECEIPT, b"", b""] == [one.receipt for one in again]
    assert [(answer.envelope, b"".join(answer.leaves)) for answer in _answers(3)] == [
        (one.envelope, one.leaves) for one in again
    ]
    assert 0o600 == path.stat().st_mode & 0o777
    [first, *_] = _answers(3)
    assert {
        "sentinel": 0,
        "envelope_hash": envelope_hash(first.envelope).hex(),
        "leaves": [leaf.hex() for leaf in first.leaves],
        "envelope": first.envelope.hex(),
    } == lines[1]
    assert {"sentinel": 0, "state": "stored", "receipt": _RECEIPT.hex()} == lines[4]


def test_a_file_cut_off_anywhere_is_continued(tmp_path: Path) -> None:
    """Whole lines count, and a part of one is removed."""
    path = tmp_path / "sentinels.jsonl"
    written = _begin(path)
    for end in range(len(written)):
        path.write_bytes(written[:end])
        with SentinelFile.opened(path, _DIGEST, 3) as kept:
            found = len(kept.sentinels)
            kept.plan(_answers(3)[found:])
            kept.record(0, SentinelState.STORED, receipt=_RECEIPT)
        lines = max(1, written[:end].count(b"\n"))

        assert min(3, lines - 1) == found
        assert path.read_bytes() == written


@pytest.mark.parametrize(
    ("digest", "count", "sentence"),
    [
        (TaskDigest(bytes(32)), 3, "holds sentinels of another task"),
        (_DIGEST, 4, r"is of 3 sentinels, and 4 were asked for"),
    ],
)
def test_a_file_of_another_planting_is_left_alone(
    tmp_path: Path, digest: TaskDigest, count: int, sentence: str
) -> None:
    """Of another task, or of another number."""
    path = tmp_path / "sentinels.jsonl"
    written = _begin(path)
    with pytest.raises(SettingsError, match=sentence), SentinelFile.opened(path, digest, count):
        pass

    assert path.read_bytes() == written


@pytest.mark.parametrize(
    "content", [b"notes", b"notes\nmore", b"[]\n", b"{}\n", b"\n", b'{"task_digest": "00"}\n']
)
def test_a_file_of_something_else_is_left_alone(tmp_path: Path, content: bytes) -> None:
    """A mistyped name destroys no other file."""
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    path.chmod(0o644)
    with (
        pytest.raises(SettingsError, match=r"notes\.txt exists already, and holds no sentinels"),
        SentinelFile.opened(path, _DIGEST, 3),
    ):
        pass

    assert content == path.read_bytes()
    assert 0o644 == path.stat().st_mode & 0o777


@pytest.mark.parametrize(
    "line",
    [
        b"nonsense",
        b"[" * 100_000,
        b'{"sentinel": 3, "state": "stored"}',
        b'{"sentinel": 0, "state": "elsewhere"}',
        b'{"sentinel": 0, "state": "stored", "receipt": "00"}',
        b'{"sentinel": 0, "leaves": [], "envelope": "00"}',
        b'{"sentinel": 3, "leaves": ["' + b"00" * 32 + b'"], "envelope": "00"}',
    ],
)
def test_a_damaged_line_is_named(tmp_path: Path, line: bytes) -> None:
    """And not repeated; the file stays as it is."""
    path = tmp_path / "sentinels.jsonl"
    written = _begin(path) + line + b"\n"
    path.write_bytes(written)
    with (
        pytest.raises(SettingsError, match=r"^line 6 of \S+sentinels\.jsonl is damaged$"),
        SentinelFile.opened(path, _DIGEST, 3),
    ):
        pass

    assert path.read_bytes() == written


def test_two_commands_do_not_share_a_file(tmp_path: Path) -> None:
    """The second would send what the first is about to send."""
    path = tmp_path / "sentinels.jsonl"
    with (
        SentinelFile.opened(path, _DIGEST, 3),
        pytest.raises(SettingsError, match="in use by another process"),
        SentinelFile.opened(path, _DIGEST, 3),
    ):
        pass
