"""A staged batch that the disk does not give back as it was: the operator is told, no result is."""

import sqlite3
from contextlib import closing
from unittest.mock import patch

import pytest

from analyzer.release import Releases
from common.errors import ConflictError, UnusableBatchError
from deploy.audit.harness.analyzer_core import chunks_of
from tests.support.analyzer_core import AnalyzerCore

_USERS = 50


async def _stage_and_damage(analyzer: AnalyzerCore, damage: str) -> None:
    """Stage a batch of 50 chunks, stop before it is released, damage it, and start again."""
    with patch.object(Releases, "_start_release"):
        await analyzer.releases.deliver(
            analyzer.manifest(_USERS), chunks_of(analyzer.sealed(_USERS), size=2)
        )
    # Staged in one group, so each chunk is a row.
    analyzer.store.close()
    with closing(sqlite3.connect(analyzer.path / "analyzer.sqlite")) as connection:
        connection.executescript(damage)
    await analyzer.start()
    await analyzer.releases.resume()
    await analyzer.settle()


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ("DELETE FROM chunks WHERE position = 49", "98 are on the disk"),
        ("DELETE FROM chunks WHERE position = 40", "80 are on the disk"),
        (
            "UPDATE chunks SET sealed_reports = zeroblob(120) WHERE position = 40",
            "damaged on the disk",
        ),
        (
            """
            UPDATE chunks SET position = 99 WHERE position = 0;
            UPDATE chunks SET position = 0 WHERE position = 1;
            UPDATE chunks SET position = 1 WHERE position = 99;
            """,
            "damaged on the disk",
        ),
    ],
    ids=["last chunk lost", "chunk lost", "chunk changed", "chunks exchanged"],
)
async def test_what_the_disk_lost_or_changed_is_not_estimated(
    analyzer: AnalyzerCore, damage: str, said: str
) -> None:
    """Not as fewer reports, and not as reports that do not open."""
    await _stage_and_damage(analyzer, damage)

    with pytest.raises(UnusableBatchError, match=said):
        await analyzer.releases.result(analyzer.signed.digest())


async def test_of_what_a_former_version_staged_the_number_is_checked(
    analyzer: AnalyzerCore,
) -> None:
    """It kept no hash."""
    await _stage_and_damage(analyzer, "DELETE FROM staged_hashes")

    assert _USERS == (await analyzer.releases.result(analyzer.signed.digest())).n_users


async def test_a_batch_id_is_one_tasks(analyzer: AnalyzerCore) -> None:
    """A shuffler that uses it for another is refused for good, and does not try again."""
    first, second = analyzer.signed, await analyzer.publish()
    await analyzer.releases.deliver(
        analyzer.manifest(_USERS, signed=first), chunks_of(analyzer.sealed(_USERS, first))
    )
    with pytest.raises(ConflictError, match="for another task"):
        await analyzer.releases.deliver(
            analyzer.manifest(_USERS, signed=second), chunks_of(analyzer.sealed(_USERS, second))
        )
    await analyzer.settle()
