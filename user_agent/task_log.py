"""Accept a task only if it is in the analyzer's log, under a checkpoint that witnesses cosigned."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from common.crypto.signing import SignedTask
from common.errors import ProofError
from common.runtime import logs
from common.runtime.clock import Clock
from common.task_digest import TaskDigest
from common.transparency.log_copy import LogProof
from common.transparency.log_entry import LogEntry
from common.transparency.log_evidence import LogEvidence
from common.transparency.witness_policy import ForkError, WitnessPolicy
from user_agent import log_table
from user_agent.device_store import DeviceStore

FetchLoggedTask = Callable[[TaskDigest, int], Awaitable[tuple[SignedTask, LogProof]]]
"""Fetches a task, and its proof for a device whose last checkpoint has this size."""


@dataclass(frozen=True, slots=True)
class DeviceLog:
    """The device's view of the log."""

    fetch_logged: FetchLoggedTask
    store: DeviceStore
    policy: WitnessPolicy
    clock: Clock

    async def fetch(self, digest: TaskDigest) -> SignedTask:
        """
        Fetch a task that is in the log, and store the new last checkpoint and the proof.

        If another device was shown another entry at the same index, both proofs convict the log.

        Raises:
            ProofError: As in `WitnessPolicy.check`, the task is not in the log, or another arrived.
            WitnessQuorumError: Too few witnesses cosigned the checkpoint so far.
            ForkError: As in `WitnessPolicy.check`. What was shown is stored as refused evidence.
            PeerError, PeerRefusalError, WireError: The shuffler has no proof, or is away.
        """
        while True:
            last = await self.store.run(log_table.last_checkpoint, self.policy.log.name)
            size = last.checkpoint.size if last else 0
            signed, shown = await self.fetch_logged(digest, size)
            entry = await asyncio.to_thread(LogEntry.of_task, signed)
            if not entry.content.startswith(digest):
                raise ProofError("the shuffler returned another task")
            evidence = LogEvidence(
                checkpoint=shown.checkpoint.only((self.policy.log, *self.policy.witnesses)),
                entry=entry,
                index=shown.index,
                path=shown.path,
            )
            now = self.clock.now()
            try:
                self.policy.check(shown.checkpoint, now, last, shown.consistency)
                evidence.verify()
            except ForkError:
                refused = replace(evidence, refused=True)
                await self.store.run(log_table.refuse, digest, refused)
                logs.event(
                    "log of tasks may be forked", {"task_digest": digest.hex()}, level="ERROR"
                )
                raise
            if await self.store.run(log_table.keep, digest, evidence, size):
                return signed
