import unicodedata

import pytest

from common.task.text import MOST_CHARACTERS, MOST_WRITTEN, normalised


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("", ""),
        ("Ohio", "Ohio"),
        (" é ", " é "),
        ("e\u0301", "é"),
        ("\u1112\u1161\u11ab", "한"),
        ("\u212b", "Å"),
        ("a\u0301\u0323", "ạ\u0301"),
        ("ﬁ", "ﬁ"),
        ("\ud800", "\ud800"),
    ],
)
def test_what_looks_the_same_is_written_the_same(text: str, written: str) -> None:
    """And nothing else changes: neither blanks, nor ligatures, nor what is no text."""
    assert written == normalised(text)
    assert written == normalised(written)


def test_no_character_is_written_with_more_than_four() -> None:
    """Of all of Unicode: so that a text with more characters is too long, however written."""
    assert MOST_WRITTEN == max(
        len(unicodedata.normalize("NFD", chr(point))) for point in range(0x110000)
    )


def test_a_text_that_no_task_takes_stays_as_it_is() -> None:
    """A run of a million accents would take minutes."""
    text = "a" + "\u0301\u0323" * (MOST_CHARACTERS // 2)

    assert text == normalised(text)
    assert text[:-1] != normalised(text[:-1])
