import sqlite3
from contextlib import closing

import pytest

from analyzer.storage.former_chunks import convert_former_chunks
from common.errors import UnusableBatchError
from common.messages.batch import BatchId, BatchManifest
from deploy.audit.harness.analyzer_core import parts_of
from tests.support.analyzer_core import BATCH, AnalyzerCore
from tests.support.former_chunks import make_former, stage_formerly

_USERS = 50
_STAGED_TABLES = "SELECT name FROM sqlite_schema WHERE name IN ('chunks', 'staged_hashes')"


async def _start_on_former(
    analyzer: AnalyzerCore, sealed: list[bytes], damage: str = "", *, staged: bool = True
) -> BatchManifest:
    """Stage a batch with the first version, damage it, and start this version on its database."""
    manifest = analyzer.manifest(_USERS)
    chunks = [b"".join(part) for part in parts_of(sealed, 10)]
    await analyzer.stop()
    database = analyzer.path / "analyzer.sqlite"
    make_former(database)
    stage_formerly(database, manifest, chunks, staged=staged)
    with closing(sqlite3.connect(database)) as connection:
        connection.executescript(damage)
    await analyzer.start()
    await convert_former_chunks(analyzer.store, analyzer.blocks)
    return manifest


async def _assert_erased(analyzer: AnalyzerCore, sealed: list[bytes]) -> None:
    """No report is left in the database's files, and starting again converts nothing."""
    found = await analyzer.store.run(lambda c: c.execute(_STAGED_TABLES).fetchall())
    files = b"".join(path.read_bytes() for path in analyzer.path.glob("analyzer.sqlite*"))
    assert [] == found
    assert not [report for report in sealed if report[:32] in files]
    await convert_former_chunks(analyzer.store, analyzer.blocks)


@pytest.mark.parametrize("part_bytes", [10 * 60, 25 * 60, 2**24])
async def test_a_batch_staged_by_the_first_version_is_released(
    analyzer: AnalyzerCore, monkeypatch: pytest.MonkeyPatch, part_bytes: int
) -> None:
    """In parts of whole chunks, with its own result; it has no commitment with a salt."""
    monkeypatch.setattr("analyzer.storage.former_chunks._PART_BYTES", part_bytes)
    sealed = analyzer.sealed(_USERS)
    manifest = await _start_on_former(analyzer, sealed)
    await _assert_erased(analyzer, sealed)
    arrived, staged = await analyzer.releases.begin_delivery(manifest, 3)
    whole = b"".join(analyzer.blocks.open(BATCH).get(f"arrived/{part}") for part in arrived)
    commitment = await analyzer.releases.finish_delivery(manifest.task_digest)
    await analyzer.settle()
    result = await analyzer.result()

    assert staged
    assert commitment is None
    assert b"".join(sealed) == whole
    assert {600: 10, 1500: 5, 2**24: 1}[part_bytes] == len(arrived)
    assert (_USERS, 100, 0) == (result.n_users, result.n_reports, sum(result.refused.values()))


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM chunks WHERE position = 9",
        "DELETE FROM chunks WHERE position = 4",
        "DELETE FROM chunks",
        "UPDATE chunks SET sealed_reports = zeroblob(600) WHERE position = 4",
        """
        UPDATE chunks SET position = 99 WHERE position = 0;
        UPDATE chunks SET position = 0 WHERE position = 1;
        UPDATE chunks SET position = 1 WHERE position = 99;
        """,
        "DELETE FROM staged_hashes",
    ],
    ids=["last lost", "one lost", "all lost", "one changed", "two exchanged", "hash lost"],
)
async def test_a_batch_that_was_damaged_before_is_not_estimated(
    analyzer: AnalyzerCore, damage: str
) -> None:
    """The first version's hash is checked when its chunks are converted."""
    sealed = analyzer.sealed(_USERS)
    await _start_on_former(analyzer, sealed, damage)
    await _assert_erased(analyzer, sealed)
    await analyzer.releases.resume()
    await analyzer.settle()

    with pytest.raises(UnusableBatchError, match="or the hash stored with them, are damaged"):
        await analyzer.result()


async def test_half_a_delivery_to_the_first_version_begins_again(analyzer: AnalyzerCore) -> None:
    """Also as another batch; its chunks are erased."""
    sealed = analyzer.sealed(_USERS)
    await _start_on_former(analyzer, sealed[:40], staged=False)
    await _assert_erased(analyzer, sealed)
    other = analyzer.manifest(_USERS, batch=BatchId(b"o" * 16))
    await analyzer.deliver_parts(other, sealed)
    await analyzer.settle()

    assert _USERS == (await analyzer.result()).n_users
