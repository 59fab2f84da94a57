"""The shuffler's stores, with small submissions."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from shuffledp.audit.harness.clock import ManualClock
from shuffledp.common.crypto.batch_key import BatchKey
from shuffledp.common.messages.batch import BatchId
from shuffledp.common.messages.submission import Outcome
from shuffledp.common.runtime.clock import Clock, SystemClock
from shuffledp.common.runtime.metrics import ProcessMetrics
from shuffledp.shuffler.metrics import METRICS, StoreMetrics
from shuffledp.shuffler.storage.group import NUMBER_BITS, Arrival, form_group, open_group
from shuffledp.shuffler.storage.postgres_store import PostgresStore
from shuffledp.shuffler.storage.sqlite_store import SqliteStore
from shuffledp.shuffler.storage.submission_store import SubmissionStore
from tests.support.tasks import published

BATCH: Final = BatchId(b"b" * 16)
SIGNED: Final = published().signed
KEY: Final = BatchKey(bytes(32))
PAST: Final = int(ManualClock().now())
"""A deadline that is over by every store's clock."""
DEADLINE: Final = 2**40


def sqlite_store(path: Path) -> SqliteStore:
    """Open a store in a SQLite file."""
    return SqliteStore(path, ManualClock())


def postgres_store(
    uri: str, *, coordinator: bool = True, clock: Clock | None = None
) -> PostgresStore:
    """Open a store in a PostgreSQL database, by default by the system's clock."""
    clock = clock or SystemClock()
    metrics = StoreMetrics(ProcessMetrics("shuffler", METRICS, clock))
    return PostgresStore(uri, clock, metrics, coordinator=coordinator)


def submission(number: int, content: bytes = b"c") -> bytes:
    """Return an envelope's plaintext with one sealed report of 60 bytes."""
    return number.to_bytes(16, "big") + content * 60


async def append(
    store: SubmissionStore,
    *submissions: bytes,
    batch_id: BatchId = BATCH,
    deadline: int = DEADLINE,
    tokens: Sequence[bytes] = (),
) -> list[Outcome]:
    """Store submissions in one call, with their tokens if given; return the outcomes in order."""
    group, places = form_group(submissions, KEY.private_bytes())
    arrival = Arrival(
        batch_id=batch_id,
        key=KEY,
        groups=[group],
        deadline=deadline,
        token_tags=[[KEY.tag(tokens[place]) for place in places]] if tokens else (),
    )
    [outcomes] = await store.append(arrival)
    return [outcomes[places.index(place)] for place in range(len(submissions))]


async def users(store: SubmissionStore) -> int:
    """Return the batch's number of users."""
    return (await store.get(SIGNED.digest())).n_users


def stored(store: SubmissionStore, batch_id: BatchId = BATCH) -> list[bytes]:
    """Return the sealed reports of every submission, group by group."""
    found = store.group_source().read(batch_id, 0, 1 << NUMBER_BITS)
    return [open_group(number, sealed, KEY).reports for number, sealed in found]
