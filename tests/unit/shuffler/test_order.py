"""The order in which a batch leaves tells nothing of the order in which it lies on the disk."""

from pathlib import Path

from common.messages.batch import BatchState
from shuffler.storage.group import open_group
from tests.support.order import neighbours, rank_correlation
from tests.support.shuffler_core import Shuffler
from tests.support.tasks import published

_USERS = 300


async def test_the_delivered_order_is_independent_of_the_stored_one(tmp_path: Path) -> None:
    """
    Whoever has the disk of the collecting shuffler, and its key, learns no place in what is sent;
    nor does the order of commits, which the write-ahead log keeps for a while.

    The generator has seed 1, and tags come from a key of the operating system: six standard
    deviations fail by chance with probability below 2e-9, 20 neighbours where one is expected
    below 1e-18.
    """
    case = published(n_min=_USERS, target_size=_USERS)
    shuffler = Shuffler(tmp_path, case=case)
    await shuffler.start()
    size = case.task.sealed_report_bytes
    for _ in range(_USERS // 50):
        await shuffler.submit(50)
    [found] = shuffler.rounds.unfinished()
    groups = await shuffler.spool.groups(found.batch_id, -1, _USERS)
    rows = [open_group(number, sealed, found.key) for number, sealed in groups]
    await shuffler.deliveries.advance()
    assert await shuffler.state() is BatchState.ERASED
    stored = [row[start : start + size] for row in rows for start in range(0, len(row), size)]
    [(_, together)] = shuffler.analyzer.delivered
    delivered = [together[start : start + size] for start in range(0, len(together), size)]
    owner = {report: place // case.task.reports_per_user for place, report in enumerate(stored)}

    assert 2 * _USERS == len(stored)
    assert abs(rank_correlation(stored, delivered)) < 6
    assert neighbours(delivered, owner) < 20
    assert neighbours(stored, owner) >= _USERS
