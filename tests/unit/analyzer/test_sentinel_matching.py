import numpy as np

from analyzer.intake import SentinelMatches, drop_sentinels, match_sentinels
from analyzer.storage.task_table import Sentinel
from common.crypto.merkle import leaf

_SIZE = 60
_REPORTS = [bytes([number]) * _SIZE for number in range(40)]


def _sentinel(*numbers: int, acknowledged: bool = True) -> Sentinel:
    return Sentinel(
        leaves=tuple(leaf(_REPORTS[number]) for number in numbers), acknowledged=acknowledged
    )


def _look(reports: list[bytes], *sentinels: Sentinel) -> tuple[SentinelMatches, list[bytes]]:
    chunks = [b"".join(reports[start : start + 7]) for start in range(0, len(reports), 7)]
    matches = match_sentinels(chunks, _SIZE, sentinels)
    left = b"".join(drop_sentinels(chunks, _SIZE, matches))
    return matches, [left[start : start + _SIZE] for start in range(0, len(left), _SIZE)]


def test_sentinels_are_taken_out_exactly() -> None:
    """Of thirty reports the four of two sentinels; all others stay, in their order."""
    matches, left = _look(_REPORTS[:30], _sentinel(3, 17), _sentinel(8, 29))

    gone = {3, 8, 17, 29}
    assert [report for place, report in enumerate(_REPORTS[:30]) if place not in gone] == left
    assert (2, 0, 0) == (matches.n_acknowledged, matches.n_missing, matches.n_repeated)
    assert (4, 4) == matches.reports()
    assert [3, 8] == matches.order()


def test_a_batch_without_sentinels_is_not_even_read() -> None:
    """Nothing is hashed where nothing is looked for, and every chunk goes through as it came."""
    matches = match_sentinels(iter([b"never hashed"]), _SIZE, [])

    assert (0, 0) == (matches.n_users(sampled=False), matches.n_users(sampled=True))
    assert [b"any bytes"] == list(drop_sentinels([b"any bytes"], _SIZE, matches))


def test_a_sentinel_of_which_one_report_is_gone_is_missing() -> None:
    """Its other report is taken out all the same."""
    matches, left = _look(_REPORTS[:10], _sentinel(3, 35))

    assert (1, (2, 1)) == (matches.n_missing, matches.reports())
    assert 9 == len(left)


def test_one_that_was_only_planned_is_not_missed() -> None:
    """It may never have been sent; if it is there, it is a sentinel and no user."""
    gone, there = _sentinel(35, acknowledged=False), _sentinel(2, acknowledged=False)
    matches, left = _look(_REPORTS[:10], gone, there)

    assert (0, 0) == (matches.n_acknowledged, matches.n_missing)
    assert 1 == matches.n_users(sampled=False)
    assert _REPORTS[2] not in left


def test_where_reports_are_sampled_a_planned_one_is_taken_for_there() -> None:
    """Too few honest users are claimed rather than one too many."""
    matches, _ = _look(_REPORTS[:10], _sentinel(35, acknowledged=False), _sentinel(36))

    assert (2, 1) == (matches.n_users(sampled=True), matches.n_users(sampled=False))


def test_further_copies_are_counted_and_taken_out() -> None:
    """Three places hold one report: two of them are copies."""
    matches, left = _look([*_REPORTS[:10], _REPORTS[4], _REPORTS[4]], _sentinel(4))

    assert (0, 2, 9) == (matches.n_missing, matches.n_repeated, len(left))


def test_a_sentinels_place_is_the_first_of_its_reports() -> None:
    """In the order of sending, those that are gone left out."""
    mixed = [_REPORTS[place] for place in np.random.default_rng(1).permutation(30)]
    matches, _ = _look(mixed, _sentinel(5, 6), _sentinel(38), _sentinel(7))

    first = min(mixed.index(_REPORTS[5]), mixed.index(_REPORTS[6]))
    assert [first, mixed.index(_REPORTS[7])] == matches.order()
