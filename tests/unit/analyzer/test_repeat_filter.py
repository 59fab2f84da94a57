import numpy as np

from analyzer.repeat_filter import RepeatFilter


def test_repeats_are_dropped_as_by_a_set() -> None:
    """3000 reports, many of them equal, in chunks of many sizes."""
    rng = np.random.default_rng(1)
    reports = [bytes(59) + bytes([n]) for n in range(200)] + [rng.bytes(60) for _ in range(800)]
    repeats, seen = RepeatFilter(60), set[bytes]()
    for size in (1, 2, 5, 100, 1000, 1892):
        sent = [reports[int(n)] for n in rng.integers(0, 1000, size)]
        expected = []
        for report in sent:
            if report not in seen:
                seen.add(report)
                expected.append(report)
        assert b"".join(expected) == repeats.filter(b"".join(sent))


def test_reports_that_differ_in_the_last_bit_are_kept() -> None:
    """A second copy of either is dropped."""
    repeats = RepeatFilter(60)
    chunk = bytes(60) + bytes(59) + b"\1"

    assert chunk == repeats.filter(chunk)
    assert b"" == repeats.filter(chunk)
    assert b"" == repeats.filter(b"")
