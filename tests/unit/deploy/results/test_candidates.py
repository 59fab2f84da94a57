from pathlib import Path

import pytest

from shuffledp.common.errors import SettingsError
from shuffledp.deploy.results.decoder import MAX_CANDIDATES, read_candidates
from tests.support.tables import table


def _read(tmp_path: Path, raw: bytes) -> tuple[str, ...]:
    (tmp_path / "candidates.txt").write_bytes(raw)
    return read_candidates(tmp_path / "candidates.txt")


@table(
    ("raw", "texts"),
    [
        (b"Ohio\nUtah\n", ("Ohio", "Utah")),
        (b"Ohio\nUtah", ("Ohio", "Utah")),
        (b"Ohio\n\nUtah\n", ("Ohio", "", "Utah")),
        (b"Ohio\n\n", ("Ohio", "")),
        (b"Ohio\r\n\r\nUtah\r\n", ("Ohio", "", "Utah")),
        (b"Ohio\rUtah\r", ("Ohio", "Utah")),
        (b"Ohio\n  \n", ("Ohio", "")),
        (b" Ohio \nUtah\n", ("Ohio", "Utah")),
        ("Köln\n東京\n".encode(), ("Köln", "東京")),
        ("Ko\u0308ln\n".encode(), ("Köln",)),
        (b"\xef\xbb\xbfOhio\nUtah\n", ("Ohio", "Utah")),
        ("a\u2028b\x0bc\n".encode(), ("a\u2028b\x0bc",)),
    ],
)
def test_a_candidate_is_a_line(tmp_path: Path, raw: bytes, texts: tuple[str, ...]) -> None:
    """A blank one is the empty text; a byte order mark is none; texts are normalized."""
    assert texts == _read(tmp_path, raw)


@table(
    ("raw", "rule"),
    [
        (b"", "has 0 candidates"),
        (b"\n\r\n\n", "repeats 2 candidates"),
        (b"Ohio\n\n\n", "repeats 1 candidates"),
        (b"Ohio\nUtah\nOhio\nOhio\n", "repeats 2 candidates"),
        (b" Ohio \nOhio\n", "repeats 1 candidates"),
        (b"Ohio\r\nOhio\n", "repeats 1 candidates"),
        ("Köln\nKo\u0308ln\n".encode(), "repeats 1 candidates"),
        (b"Ohio\n\xff\xfe\n", "is not UTF-8 text"),
        (b"\n".join(b"%d" % number for number in range(MAX_CANDIDATES + 1)), "has 100001"),
        (b"x" * (16 * 1024 * 1024 + 1), "at most 16777216 bytes are read"),
    ],
)
def test_a_file_that_breaks_a_rule_is_refused(tmp_path: Path, raw: bytes, rule: str) -> None:
    """The message names the file and the rule."""
    with pytest.raises(SettingsError, match=f"candidates.txt.*{rule}"):
        _read(tmp_path, raw)
    with pytest.raises(SettingsError, match=r"none.txt cannot be read: No such file"):
        read_candidates(tmp_path / "none.txt")
