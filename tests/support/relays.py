"""A relay's core for a task of the tests, and layers and reports of it."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from audit.harness.relay_core import InProcessRelay
from common.crypto.hpke import HpkePrivateKey, report_context, split_every
from common.messages.batch import BatchState
from common.messages.submission import PLAIN_REPORT, plain_reports
from common.task.sealing import report_sealer
from common.task_digest import TaskDigest
from tests.support.chains import RELAY, chain
from tests.support.tasks import PublishedTask, published

RELAY_KEY = HpkePrivateKey.generate()
CHAIN = published(**chain(relay_key=RELAY_KEY), domain_size=20, n_min=3, target_size=5)
SEALED = CHAIN.task.sealed_report_bytes


class Relay(InProcessRelay):
    """A relay's core with one task."""

    def __init__(self, path: Path, case: PublishedTask = CHAIN, **limits: Any) -> None:
        super().__init__(
            path,
            signed=case.signed,
            publisher=case.identity,
            identity=RELAY,
            key=RELAY_KEY,
            **limits,
        )
        self.case = case

    async def state_of(self, digest: TaskDigest | None = None) -> BatchState:
        """Return the state of a task's batch."""
        return (await self.store.get(digest or self.case.signed.digest())).state


def sealed_layers(items: Iterable[int], case: PublishedTask = CHAIN, hop: int = 1) -> list[bytes]:
    """Seal reports of these items, with a layer as for the relay."""
    seal = report_sealer(case.task, case.signed.digest(), hop)
    return [seal(report.tobytes()) for report in plain_reports(np.array([*items], np.int64))]


def items_of(blob: bytes, case: PublishedTask = CHAIN) -> list[int]:
    """Open concatenated reports as the analyzer does, and return their items in order."""
    context, sealed = report_context(case.signed.digest()), split_every(blob, SEALED)
    opened = [case.analyzer_key.open(report, context) for report in sealed]
    items: list[int] = np.frombuffer(b"".join(opened), PLAIN_REPORT)["item"].tolist()
    return items
