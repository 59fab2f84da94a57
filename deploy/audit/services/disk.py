"""What lies on the disks of a running collection, read beside the services."""

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from common.crypto.merkle import HASH_BYTES
from common.messages.batch import BatchId
from common.runtime.state_directory import StateDirectory
from common.task_digest import DIGEST_BYTES
from shuffler.storage.batch_files import BatchFiles
from shuffler.storage.batch_key import KEY_BYTES, BatchKey
from shuffler.storage.group import TAGS, open_group, open_tags

EXPIRED: Final = f"inclusion/{bytes(DIGEST_BYTES).hex()}"
"""How the names of the files begin that an earlier run has left; no task has this digest."""
_NONCE_BYTES: Final = 12
_LENGTH_BYTES: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchDisk:
    """What the shuffler holds of one batch, opened with its key."""

    batch_id: BatchId
    key: bytes
    groups: tuple[bytes, ...]
    """Sealed reports of the stored submissions, group by group, in the order in which they lie
    there."""
    tags: tuple[bytes, ...]
    """Keyed hashes of each group's submissions, as they lie there."""
    permuted: tuple[bytes, ...]
    """The permuted batch, chunk by chunk; nothing before it is permuted."""
    nonces: tuple[bytes, ...]
    """Of every row that lies sealed under the key, in the table and in the file."""

    @property
    def spooled(self) -> bytes:
        """All of these reports, one after the other."""
        return b"".join(self.groups)


def leave_expired(state: Path) -> None:
    """Lay out what a shuffler that stopped long ago has left: hashes to be kept until 1970."""
    (state / EXPIRED).parent.mkdir(mode=0o700, parents=True)
    state.chmod(0o700)
    for kind in ("leaves", "commitment"):
        path = (state / EXPIRED).with_suffix(f".{kind}")
        path.touch(mode=0o600)
        path.write_bytes(bytes(HASH_BYTES))


def shuffler_batch(state: Path, digest: bytes) -> BatchDisk | None:
    """Read what the shuffler with this state directory holds of a task's batch; None if nothing."""
    with closing(sqlite3.connect(state / "spool.sqlite")) as connection:
        query = "SELECT batch_id FROM batches WHERE task_digest = ?"
        row = connection.execute(query, (digest,)).fetchone()
        if row is None:
            return None
        batch_id = BatchId(row[0])
        groups = connection.execute(
            "SELECT number, sealed, sealed_tags FROM submission_groups WHERE batch_id = ? "
            "ORDER BY number",
            (batch_id,),
        ).fetchall()
    name = f"batch-{batch_id.hex()}.key"
    if not (state / name).exists():
        return None
    raw = StateDirectory.open(state).secret(name, lambda: bytes(KEY_BYTES))
    key, folder = BatchKey(raw), state / "batches" / batch_id.hex()
    order = folder / "permuted"
    rows = [row for _, *sealed in groups for row in sealed]
    rows += _records(order.read_bytes()) if order.exists() else []
    return BatchDisk(
        batch_id=batch_id,
        key=raw,
        groups=tuple(open_group(number, sealed, key) for number, sealed, _ in groups),
        tags=tuple(open_tags(number, tags, key) for number, _, tags in groups),
        permuted=tuple(BatchFiles(folder, key).saved()) if order.exists() else (),
        nonces=tuple(bytes(row[:_NONCE_BYTES]) for row in rows),
    )


def ascending(tags: bytes) -> bool:
    """Say whether a group's keyed hashes stand in the order of their bytes, each once."""
    width = TAGS.itemsize
    each = [tags[start : start + width] for start in range(0, len(tags), width)]
    return each == sorted(set(each))


def _records(content: bytes) -> list[bytes]:
    """Take the sealed records of a batch's file apart: before each stands its length."""
    found, start = [], 0
    while start < len(content):
        end = start + _LENGTH_BYTES + int.from_bytes(content[start : start + _LENGTH_BYTES])
        found.append(content[start + _LENGTH_BYTES : end])
        start = end
    return found


def staged_chunks(state: Path, digest: bytes) -> tuple[bytes, ...]:
    """Read what the analyzer with this state directory has staged of a task's batch."""
    query = (
        "SELECT sealed_reports FROM chunks JOIN batches USING (batch_id) "
        "WHERE task_digest = ? ORDER BY position"
    )
    with closing(sqlite3.connect(state / "analyzer.sqlite")) as connection:
        return tuple(bytes(row[0]) for row in connection.execute(query, (digest,)))


def counted_cells(state: Path, digest: bytes) -> bytes:
    """Read the counts by cell that a result was made from; nothing if there is none."""
    with closing(sqlite3.connect(state / "analyzer.sqlite")) as connection:
        query = "SELECT cells FROM results WHERE task_digest = ?"
        row = connection.execute(query, (digest,)).fetchone()
    return b"" if row is None else bytes(row[0])


def batch_states(state: Path) -> dict[bytes, str]:
    """Read the state of every batch of the shuffler, by its task's digest."""
    with closing(sqlite3.connect(state / "spool.sqlite")) as connection:
        rows = connection.execute("SELECT task_digest, state FROM batches").fetchall()
    return {bytes(digest): state for digest, state in rows}


def batch_ids(state: Path) -> list[BatchId]:
    """List the ids of all batches of the shuffler."""
    with closing(sqlite3.connect(state / "spool.sqlite")) as connection:
        rows = connection.execute("SELECT batch_id FROM batches").fetchall()
    return [BatchId(batch_id) for (batch_id,) in rows]


def stored_groups(state: Path) -> int:
    """Count groups of submissions that the shuffler holds, of whatever batch."""
    with closing(sqlite3.connect(state / "spool.sqlite")) as connection:
        [number] = connection.execute("SELECT count(*) FROM submission_groups").fetchone()
    return int(number)
