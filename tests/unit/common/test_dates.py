"""Dates in messages."""

import pytest

from shuffledp.common.dates import utc


@pytest.mark.parametrize(
    ("date", "seconds"),
    [
        ("2030-01-31 12:00:00 UTC", 1_896_091_200),
        ("1970-01-01 00:00:00 UTC", 0),
        ("1,152,921,504,606,846,976 seconds after 1970", 2**60),
    ],
)
def test_a_date_is_printed_as_drafts_write_it(date: str, seconds: float) -> None:
    """One outside the calendar, which a hostile task may have, is printed as seconds."""
    assert date == utc(seconds)
