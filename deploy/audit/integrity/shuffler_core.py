"""A shuffler without its server: the deployed classes over files of their own."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import numpy as np

from common.hpke import HpkePublicKey, envelope_context, report_context
from common.key_ring import DAY, Schedule
from common.runtime.key_store import KeyStore
from common.runtime.state import StateDirectory
from common.runtime.vitals import Vitals
from common.signing import SignedTask
from common.submission import Submission, pack
from common.task import MAX_SHUFFLER_DUMMIES, Task
from common.user_token import TokenIdentity
from deploy.audit.integrity.analyzer_core import AnalyzerCore
from deploy.audit.integrity.in_place import InPlace
from deploy.audit.integrity.still_clock import StillClock
from shuffler.collection import Collection
from shuffler.delivery import Deliveries
from shuffler.inclusion import Inclusions
from shuffler.metrics import BatchMetrics
from shuffler.refusals import Refusals
from shuffler.rounds import Rounds
from shuffler.spool import Spool
from shuffler.token_check import TokenCheck

_SCHEDULE: Final = Schedule(lifetime=90 * DAY, overlap=2 * DAY, keep=30 * DAY)


@dataclass(frozen=True, kw_only=True)
class ShufflerCore:
    """A shuffler's core, in front of an analyzer's."""

    keys: KeyStore
    collection: Collection
    deliveries: Deliveries

    @classmethod
    @asynccontextmanager
    async def started(
        cls,
        path: Path,
        analyzer: AnalyzerCore,
        clock: StillClock,
        rng: np.random.Generator,
        *,
        tokens: TokenIdentity | None = None,
    ) -> AsyncIterator[Self]:
        """Start one on empty files, and close them at the end."""
        state, metrics = StateDirectory.open(path), BatchMetrics(Vitals("shuffler", clock))
        keys = KeyStore(state, _SCHEDULE, former="envelope.key")
        keys.rotate(clock.now())
        spool, identity = Spool(path / "spool.sqlite", metrics), analyzer.keys.identity
        rounds = Rounds(
            spool=spool,
            state=state,
            analyzer=analyzer,
            identity=identity.public_identity(),
            keys=keys,
            minimum_batch=1,
            most_dummies=MAX_SHUFFLER_DUMMIES,
            rng=rng,
        )
        refusals = Refusals(spool)
        try:
            yield cls(
                keys=keys,
                collection=Collection(
                    rounds=rounds,
                    spool=spool,
                    keys=keys,
                    pool=InPlace(),
                    clock=clock,
                    refusals=refusals,
                    tokens=None if tokens is None else TokenCheck(tokens),
                ),
                deliveries=Deliveries(
                    rounds=rounds,
                    spool=spool,
                    analyzer=analyzer,
                    pool=InPlace(),
                    clock=clock,
                    rng=rng,
                    inclusions=Inclusions(
                        directory=path / "inclusion",
                        identity=identity.public_identity(),
                        keep_seconds=DAY,
                        clock=clock,
                    ),
                    metrics=metrics,
                    refusals=refusals,
                ),
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
