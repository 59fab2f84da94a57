import json
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from shuffledp.common.crypto.signing import envelope_hash
from shuffledp.common.errors import SettingsError
from shuffledp.common.messages.inclusion_proof import split
from shuffledp.common.task_digest import TaskDigest
from shuffledp.deploy.sentinels.sentinel_file import PlantedSentinel, SentinelFile, SentinelState
from tests.support.leaves import some_leaves

_DIGEST = TaskDigest(b"t" * 32)
_RECEIPT = b"r" * 64


def _answers(count: int) -> list[PlantedSentinel]:
    leaves = some_leaves(2 * count)
    return [
        PlantedSentinel(bytes([number]) * 9, b"".join(leaves[2 * number : 2 * number + 2]))
        for number in range(count)
    ]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the path of a sentinel file that does not exist yet."""
    return tmp_path / "sentinels.jsonl"


def test_sentinels_are_read_as_they_were_written(path: Path) -> None:
    """A file closed to others keeps bytes to send, hashes for evidence and last states."""
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
    assert [(answer.envelope, answer.leaves) for answer in _answers(3)] == [
        (one.envelope, one.leaves) for one in again
    ]
    assert 0o600 == path.stat().st_mode & 0o777
    assert [envelope_hash(one.envelope).hex() for one in again] == [
        line["envelope_hash"] for line in lines[1:4]
    ]


def test_the_keys_of_each_line_are_fixed(path: Path) -> None:
    """Files outlive a version of the program, and are evidence for others to read."""
    with SentinelFile.opened(path, _DIGEST, 1) as kept:
        kept.plan(_answers(1))
        kept.record(0, SentinelState.STORED, receipt=_RECEIPT)
        kept.record(0, SentinelState.REFUSED, reason="closed")
    [answer] = _answers(1)

    assert [
        {"task_digest": _DIGEST.hex(), "sentinels": 1},
        {
            "sentinel": 0,
            "envelope_hash": envelope_hash(answer.envelope).hex(),
            "leaves": [leaf.hex() for leaf in split(answer.leaves)],
            "envelope": answer.envelope.hex(),
        },
        {"sentinel": 0, "state": "stored", "receipt": _RECEIPT.hex()},
        {"sentinel": 0, "state": "refused", "reason": "closed"},
    ] == [json.loads(line) for line in path.read_bytes().splitlines()]


def test_a_file_is_read_whatever_number_it_has(path: Path) -> None:
    """With the leaves of layers; one that does not exist, or is empty, stays so."""
    with pytest.raises(SettingsError, match="No such file"), SentinelFile.opened(path, _DIGEST):
        pass
    path.touch()
    with pytest.raises(SettingsError, match="not a sentinel"), SentinelFile.opened(path, _DIGEST):
        pass
    assert b"" == path.read_bytes()
    planned = replace(_answers(1)[0], layers=bytes(64))
    with SentinelFile.opened(path, _DIGEST, 2) as kept:
        kept.plan([planned])
    with SentinelFile.opened(path, _DIGEST) as kept:
        assert [planned] == kept.sentinels


def test_a_file_cut_off_anywhere_is_continued(path: Path) -> None:
    """Whole lines are read, and a partial line is removed."""
    with SentinelFile.opened(path, _DIGEST, 3) as kept:
        kept.plan(_answers(3))
        kept.record(0, SentinelState.STORED, receipt=_RECEIPT)
    written = path.read_bytes()
    for end in range(0, len(written), 7):  # which meets every field of a line, and its end
        path.write_bytes(written[:end])
        with SentinelFile.opened(path, _DIGEST, 3) as kept:
            found = len(kept.sentinels)
            kept.plan(_answers(3)[found:])
            kept.record(0, SentinelState.STORED, receipt=_RECEIPT)
        lines = max(1, written[:end].count(b"\n"))

        assert min(3, lines - 1) == found
        assert path.read_bytes() == written


_HEADER: Final = b'{"task_digest": "%s", "sentinels": 3}\n' % _DIGEST.hex().encode()
_PLANNED: Final = b'{"sentinel": %d, "envelope_hash": "", "leaves": [%s], "envelope": "00"}\n'
_LEAF: Final = b'"%s"' % (b"00" * 32)
_THREE: Final = _HEADER + b"".join(_PLANNED % (number, _LEAF) for number in range(3))


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (_HEADER.replace(b"74", b"00"), "holds sentinels of another task"),
        (_HEADER.replace(b"3}", b"4}"), r"has 4 sentinels, not 3"),
        *((each, "exists and is not a sentinel file") for each in (b"notes", b"notes\nmore")),
        *((each, "exists and is not a sentinel file") for each in (b"[]\n", b"{}\n", b"\n")),
        (b'{"task_digest": "00"}\n', "exists and is not a sentinel file"),
        *(
            (_HEADER + line, r"^line 2 of \S+sentinels\.jsonl is damaged$")
            for line in (
                b"nonsense\n",
                b"[" * 100_000 + b"\n",
                b'{"sentinel": 0, "state": "stored"}\n',
                _PLANNED % (0, b""),
                _PLANNED % (1, _LEAF),
            )
        ),
        *(
            (_THREE + line, r"^line 5 of \S+sentinels\.jsonl is damaged$")
            for line in (
                b'{"sentinel": 0, "state": "elsewhere"}\n',
                b'{"sentinel": 0, "state": "stored", "receipt": "00"}\n',
                _PLANNED % (3, _LEAF),
            )
        ),
    ],
)
def test_a_file_of_something_else_is_left_alone(path: Path, content: bytes, sentence: str) -> None:
    """A mistyped name destroys no other file; a damaged line is named, and not repeated."""
    path.write_bytes(content)
    path.chmod(0o644)
    with pytest.raises(SettingsError, match=sentence), SentinelFile.opened(path, _DIGEST, 3):
        pass

    assert content == path.read_bytes()
    assert 0o644 == path.stat().st_mode & 0o777


def test_two_commands_do_not_share_a_file(path: Path) -> None:
    """The second command would send what the first is about to send."""
    with (
        SentinelFile.opened(path, _DIGEST, 3),
        pytest.raises(SettingsError, match="in use by another process"),
        SentinelFile.opened(path, _DIGEST, 3),
    ):
        pass
