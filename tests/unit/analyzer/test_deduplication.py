import numpy as np

from analyzer.intake import RepeatFilter


def test_it_drops_what_a_set_would_drop() -> None:
    """3000 reports of which many are alike, in chunks of many sizes."""
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
        assert b"".join(expected) == repeats.without(b"".join(sent))


def test_reports_that_begin_alike_are_different() -> None:
    """One bit at the very end tells them apart."""
    repeats = RepeatFilter(60)
    chunk = bytes(60) + bytes(59) + b"\1"

    assert chunk == repeats.without(chunk)
    assert b"" == repeats.without(chunk)
    assert b"" == repeats.without(b"")
