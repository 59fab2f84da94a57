"""What a batch did not take is counted, by cause, and outlives a restart."""

from collections import Counter
from pathlib import Path

import pytest

from common.batch import BatchId
from common.errors import StorageError
from common.submission import REFUSALS, Outcome
from shuffler.refusals import Refusals
from shuffler.spool import Spool
from tests.support.tasks import published

_BATCH = BatchId(b"b" * 16)


async def _spool(path: Path) -> Spool:
    spool = Spool(path / "spool.sqlite")
    await spool.open_batch(_BATCH, published().signed)
    return spool


def test_whatever_is_neither_stored_nor_a_repeat_is_a_refusal() -> None:
    """An outcome that is added later is not forgotten."""
    assert set(Outcome) == {*REFUSALS, Outcome.STORED, Outcome.REPEATED}


async def test_counts_add_up_and_outlive_a_restart(tmp_path: Path) -> None:
    """Stored submissions are not among them: those are the batch's users."""
    spool = await _spool(tmp_path)
    refusals = Refusals(spool)
    refusals.count(_BATCH, [Outcome.MALFORMED, Outcome.STORED, Outcome.REPEATED])
    refusals.count(_BATCH, [Outcome.STORED])
    await refusals.save()
    refusals.count(_BATCH, [Outcome.MALFORMED])
    await refusals.save()
    spool.close()
    again = Spool(tmp_path / "spool.sqlite")
    found = await Refusals(again).of(_BATCH)
    again.close()

    assert Counter({Outcome.MALFORMED: 2, Outcome.REPEATED: 1}) == found


class _FullDisk(Spool):
    """A spool whose disk is full until it is told otherwise."""

    full = True

    async def add_refusals(self, refused: dict[BatchId, Counter[Outcome]]) -> None:  # type: ignore[override]  # narrower is enough
        if self.full:
            raise StorageError("the disk is full")
        await super().add_refusals(refused)


async def test_a_full_disk_forgets_no_count(tmp_path: Path) -> None:
    """What could not be written is written the next time, with what came meanwhile."""
    spool = _FullDisk(tmp_path / "spool.sqlite")
    await spool.open_batch(_BATCH, published().signed)
    refusals = Refusals(spool)
    refusals.count(_BATCH, [Outcome.CONFLICT])
    with pytest.raises(StorageError):
        await refusals.save()
    refusals.count(_BATCH, [Outcome.CONFLICT])
    spool.full = False
    found = await refusals.of(_BATCH)
    spool.close()

    assert Counter({Outcome.CONFLICT: 2}) == found
