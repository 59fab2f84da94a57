import unicodedata

import pytest

from shuffledp.common.task.labels import MAX_COMPOSED_CHARACTERS, MAX_TYPED_CHARACTERS, normalize


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("", ""),
        ("Ohio", "Ohio"),
        (" é ", "é"),
        ("\u00a0\t", ""),
        ("e\u0301", "é"),
        ("\u1112\u1161\u11ab", "한"),
        ("\u212b", "Å"),
        ("a\u0301\u0323", "ạ\u0301"),
        ("ﬁ", "ﬁ"),
        ("\ud800", "\ud800"),
        *[("a" + "\u0301\u0323" * (MAX_TYPED_CHARACTERS // 2),) * 2],
    ],
)
def test_texts_are_stripped_and_normalized_to_nfc(text: str, written: str) -> None:
    """Ligatures, invalid texts and texts over the limit are unchanged."""
    assert written == normalize(text)
    assert written == normalize(written)


def test_no_character_is_written_with_more_than_four() -> None:
    """MAX_TYPED_CHARACTERS relies on this bound, which holds for all of Unicode."""
    assert MAX_COMPOSED_CHARACTERS == max(
        len(unicodedata.normalize("NFD", chr(point))) for point in range(0x110000)
    )
