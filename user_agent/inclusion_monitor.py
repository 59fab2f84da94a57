"""Check that each answer was counted, from the analyzer's signed commitments."""

import asyncio
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from common.crypto.key_ring import DAY
from common.crypto.merkle import split
from common.crypto.signing import PublicIdentity
from common.errors import PeerError, PeerRefusalError, ProofError, WireError
from common.messages.inclusion_proof import PROOF_DAYS, BatchCommitment
from common.runtime import logs
from common.runtime.clock import Clock
from common.task_digest import TaskDigest
from user_agent.agent import Shuffler
from user_agent.budget import Budget, Evidence, InclusionState

MOST_ASKED: Final = 64
"""Reports of one answer that are asked for; of more, so many drawn at random. A lost submission is
found by any of them, and one report lost of k by 64/k of all devices that it happens to."""


def to_ask(leaves: bytes, rng: np.random.Generator) -> list[bytes]:
    """Choose the leaves to ask for, in an order drawn at random."""
    own = split(leaves)
    return [own[place] for place in rng.permutation(len(own))[:MOST_ASKED]]


_PATIENCE_SECONDS: Final = PROOF_DAYS * DAY
"""After the deadline."""
_TICK: Final = 5.0
"""Seconds between looks at the clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InclusionMonitor:
    """Checks on every answer that arrived."""

    shuffler: Shuffler
    budget: Budget
    identity: PublicIdentity
    """The pinned analyzer's, which must have signed."""
    clock: Clock
    rng: np.random.Generator
    """Draws when to ask, and in which order."""
    pause: float
    """Seconds between two questions about an answer, on average."""
    _not_before: dict[tuple[str, TaskDigest], float] = field(default_factory=dict, init=False)

    async def keep_checking(self) -> None:
        """Ask about what is due, again and again, for as long as the service runs."""
        while True:
            try:
                await self.check_due()
            except Exception as error:  # noqa: BLE001  # the next try may do better
                logs.event("checking failed", {"error": type(error).__name__}, level="ERROR")
            await asyncio.sleep(min(_TICK, self.pause))

    async def check_due(self) -> None:
        """Ask about every answer that is due, at times drawn for each answer apart."""
        for evidence in await self.budget.unchecked():
            key = (evidence.person, evidence.task_digest)
            now = self.clock.elapsed()
            if key not in self._not_before:
                self._not_before[key] = now + self.pause * self.rng.random()
            if now < self._not_before[key]:
                continue
            self._not_before[key] = now + self.pause * (0.5 + self.rng.random())
            found = await self._ask(evidence)
            if found is not InclusionState.UNCHECKED:
                self._not_before.pop(key)
                await self.budget.conclude(evidence, found)
                logs.event(
                    "answer checked",
                    {"task_digest": evidence.task_digest.hex(), "state": found.value},
                    level="INFO" if found is InclusionState.COUNTED else "ERROR",
                )

    async def _ask(self, evidence: Evidence) -> InclusionState:
        """Ask for the signed root, then for the bucket of each leaf; one is held at a time."""
        digest = evidence.task_digest
        try:
            # Checked before any prefix is sent: its length and salt are the commitment's.
            commitment = (await self.shuffler.inclusion(digest, None)).commitment
            commitment.check(self.identity, digest)
            asked = to_ask(evidence.leaves, self.rng)
            counted = [await self._counted(leaf, commitment) for leaf in asked]
            return InclusionState.COUNTED if all(counted) else InclusionState.MISSING
        except (PeerError, PeerRefusalError, ProofError, WireError) as error:
            # Not delivered yet, as a rule. Nothing is concluded from what proves nothing.
            if isinstance(error, ProofError):
                fields: dict[logs.Field, str | int] = {"task_digest": digest.hex()}
                logs.event("proof does not hold", fields, level="WARNING")
            late = self.clock.now() > evidence.deadline + _PATIENCE_SECONDS
            return InclusionState.UNPROVEN if late else InclusionState.UNCHECKED

    async def _counted(self, leaf: bytes, commitment: BatchCommitment) -> bool:
        """Ask for the bucket of a leaf, and return whether the leaf is in it."""
        digest = commitment.task_digest
        proof = await self.shuffler.inclusion(digest, commitment.prefix_of(leaf))
        if proof.commitment != commitment:
            raise ProofError("two commitments are shown for one task")
        return proof.holds(leaf, self.identity, digest)
