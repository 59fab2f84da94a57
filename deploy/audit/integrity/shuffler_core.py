"""A shuffler without its server: the deployed classes over files of their own."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import numpy as np

from common.crypto.hpke import HpkePublicKey, envelope_context, report_context
from common.crypto.key_ring import DAY, Schedule
from common.crypto.signing import PublicIdentity, SignedTask, SigningIdentity
from common.crypto.tokens import TokenIdentity
from common.messages.submission import Submission, pack
from common.runtime.key_store import KeyStore, load_identity
from common.runtime.process_metrics import ProcessMetrics as Vitals
from common.runtime.state_directory import StateDirectory
from common.task.composition import MAX_SHUFFLER_DUMMIES
from common.task.task import Task
from deploy.audit.stand_ins.in_place import InPlace
from deploy.audit.stand_ins.still_clock import StillClock
from shuffler.active_batches import Rounds
from shuffler.admission import ConnectionCount, TokenCheck
from shuffler.analyzer_client import Analyzer
from shuffler.collection import Collection
from shuffler.delivery import Deliveries
from shuffler.inclusion import Inclusions
from shuffler.metrics import BatchMetrics
from shuffler.refusals import Refusals
from shuffler.servicer import Receipts, ShufflerServicer
from shuffler.storage.spool import Spool

SPOOL_FILE: Final = "spool.sqlite"
_SCHEDULE: Final = Schedule(lifetime=90 * DAY, overlap=2 * DAY, keep=30 * DAY)


class _TwoInPlace(InPlace):
    """As if there were two workers, each of whom forms a group of its half of a bulk call."""

    processes: int = 2


@dataclass(frozen=True, kw_only=True)
class ShufflerCore:
    """A shuffler's core, in front of an analyzer's."""

    keys: KeyStore
    identity: SigningIdentity
    """What it signs receipts with."""
    collection: Collection
    deliveries: Deliveries
    rounds: Rounds
    """What it collects for."""
    spool: Spool
    servicer: ShufflerServicer
    """What answers its clients' calls."""

    @classmethod
    @asynccontextmanager
    async def started(
        cls,
        path: Path,
        analyzer: Analyzer,
        pinned: PublicIdentity,
        clock: StillClock,
        rng: np.random.Generator,
        *,
        tokens: TokenIdentity | None = None,
        minimum_batch: int = 1,
        most_dummies: int = MAX_SHUFFLER_DUMMIES,
        most_of_a_connection: int = 0,
    ) -> AsyncIterator[Self]:
        """
        Start one on its files, those of an earlier run or none, and close them at the end.

        Args:
            path: Its state directory.
            analyzer: Where it finds tasks, and delivers.
            pinned: The analyzer's identity.
            clock: Tells when batches end.
            rng: Draws their orders and ids.
            tokens: Whose tokens it asks for, if it does.
            minimum_batch: The least users of a batch, whatever its task says.
            most_dummies: What a task may ask it to add, on average.
            most_of_a_connection: Submissions that it takes of one; 0 is no limit.
        """
        state, metrics = StateDirectory.open(path), BatchMetrics(Vitals("shuffler", clock))
        keys = KeyStore(state, _SCHEDULE, former="envelope.key")
        keys.rotate(clock.now())
        spool, identity = Spool(path / SPOOL_FILE, metrics), load_identity(state)
        rounds = Rounds(
            spool=spool,
            state=state,
            analyzer=analyzer,
            identity=pinned,
            keys=keys,
            minimum_batch=minimum_batch,
            most_dummies=most_dummies,
            rng=rng,
        )
        refusals = Refusals(spool)
        inclusions = Inclusions(
            directory=path / "inclusion", identity=pinned, keep_seconds=DAY, clock=clock
        )
        collection = Collection(
            rounds=rounds,
            spool=spool,
            keys=keys,
            pool=_TwoInPlace(),
            clock=clock,
            refusals=refusals,
            tokens=None if tokens is None else TokenCheck(tokens),
        )
        connections = ConnectionCount(most_of_a_connection)
        try:
            await rounds.resume()
            yield cls(
                keys=keys,
                identity=identity,
                collection=collection,
                deliveries=Deliveries(
                    rounds=rounds,
                    spool=spool,
                    analyzer=analyzer,
                    pool=InPlace(),
                    clock=clock,
                    rng=rng,
                    inclusions=inclusions,
                    metrics=metrics,
                    refusals=refusals,
                ),
                rounds=rounds,
                spool=spool,
                servicer=ShufflerServicer(collection, connections, Receipts(identity), inclusions),
            )
        finally:
            spool.close()


def sealed_reports(signed: SignedTask, reports: Sequence[bytes]) -> list[bytes]:
    """Seal plaintexts as a device seals reports."""
    task = Task.from_bytes(signed.task_bytes)
    seal = HpkePublicKey(task.suite, task.analyzer_key).sealer(report_context(signed.digest()))
    return [seal(report) for report in reports]


def envelope(signed: SignedTask, submission_id: bytes, sealed: Sequence[bytes]) -> bytes:
    """Put any number of sealed reports into an envelope, which a device would not."""
    task = Task.from_bytes(signed.task_bytes)
    packed = pack(Submission(submission_id=submission_id, sealed_reports=b"".join(sealed)))
    key = HpkePublicKey(task.suite, task.shuffler_key)
    return key.seal(packed, envelope_context(signed.digest()))
