"""Check that each answer was counted, from commitments of the party after the shuffler."""

import asyncio
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from shuffledp.common.crypto.key_ring import DAY
from shuffledp.common.crypto.signing import PublicIdentity
from shuffledp.common.errors import PeerError, PeerRefusalError, ProofError, WireError
from shuffledp.common.messages.inclusion_proof import PROOF_DAYS, BatchCommitment, split
from shuffledp.common.runtime import logs
from shuffledp.common.runtime.clock import Clock, repeat, wait_for_change
from shuffledp.common.task_digest import TaskDigest
from shuffledp.user_agent.clients import Shuffler
from shuffledp.user_agent.device_store import DeviceStore, InclusionState, SavedSubmission

MAX_CHECKED: Final = 64
"""Maximum number of an answer's reports to check, drawn at random once: with new draws at each
attempt, a shuffler could refuse a lost report's bucket until a draw misses it. If one of k reports
is lost, the device notices with probability 64/k, or 1 if k is at most 64."""
_PATIENCE_SECONDS: Final = PROOF_DAYS * DAY
"""Time after the deadline until an answer without proof counts as unproven."""
_MIN_TICK_SECONDS: Final = 1.0
"""Minimum seconds between two searches for due answers."""
_LONGEST_WAIT: Final = 60.0
"""Maximum seconds between them: a device that sleeps does not count these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InclusionMonitor:
    """Checks whether the answers that arrived were counted."""

    shuffler: Shuffler
    store: DeviceStore
    identity: PublicIdentity
    """The pinned identity of the analyzer."""
    relay_identity: PublicIdentity | None
    """That of the second shuffler, which signs for the layers of tasks with two."""
    clock: Clock
    rng: np.random.Generator
    """Draws which reports to check, and the times and order of requests."""
    pause: float
    """Average number of seconds between two checks of an answer."""
    _not_before: dict[tuple[str, TaskDigest], float] = field(default_factory=dict, init=False)

    async def keep_checking(self) -> None:
        """Check due answers for as long as the service runs."""
        tick = min(_MIN_TICK_SECONDS, self.pause)
        await repeat(self._check_and_wait, tick, "checking failed")

    async def _check_and_wait(self) -> None:
        """Check what is due, and wait until the next answer is due, or a further one arrives."""
        try:
            await self.check_due()
        except Exception:
            await asyncio.sleep(_LONGEST_WAIT)  # a store that fails is not asked again at once
            raise
        left = min(self._not_before.values(), default=math.inf) - self.clock.elapsed()
        await wait_for_change(self.store.arrived, min(left, _LONGEST_WAIT))

    async def check_due(self) -> None:
        """Check the answers that are due, each on its own random schedule; record the outcomes."""
        for answer in await self.store.list_unchecked():
            key = (answer.person, answer.task_digest)
            now = self.clock.elapsed()
            if key not in self._not_before:
                self._not_before[key] = now + self.pause * self.rng.random()
            if now < self._not_before[key]:
                continue
            self._not_before[key] = now + self.pause * (0.5 + self.rng.random())
            drawn = await self._draw(answer)
            found = await self._ask(drawn)
            if found is not InclusionState.UNCHECKED:
                self._not_before.pop(key)
                await self.store.record_inclusion(drawn, found)
                logs.event(
                    "answer checked",
                    {"task_digest": answer.task_digest.hex(), "state": found.value},
                    level="INFO" if found is InclusionState.COUNTED else "ERROR",
                )

    async def _draw(self, answer: SavedSubmission) -> SavedSubmission:
        """Draw at most MAX_CHECKED leaves to check, and save them before any prefix is sent."""
        leaves = split(answer.leaves)
        if len(leaves) <= MAX_CHECKED:
            return answer
        drawn = sorted(leaves[index] for index in self.rng.permutation(len(leaves))[:MAX_CHECKED])
        return await self.store.keep_leaves(answer, b"".join(drawn))

    async def _ask(self, answer: SavedSubmission) -> InclusionState:
        """
        Check an answer: fetch the signed root, then the bucket of each leaf, one at a time.

        A failure ends the attempt; `check_due` makes another, in another order, until the answer is
        UNPROVEN. A proof that a leaf is absent counts even if a later bucket fails: a shuffler must
        not suppress it.
        """
        digest = answer.task_digest
        signer = self.relay_identity if answer.claim.chained else self.identity
        with _errors_as_no_proof(digest):
            if signer is None:
                raise ProofError("no second shuffler is pinned any more")
            # Checked before any prefix is sent, since it sets the prefixes' length and salt.
            commitment = (await self.shuffler.inclusion(digest, None)).commitment
            commitment.verify(signer, digest, answer.most_leaves)
            leaves, counted = split(answer.leaves), list[bool | None]()
            for index in self.rng.permutation(len(leaves)):
                counted.append(await self._counted(leaves[index], commitment, signer))
                if counted[-1] is None:
                    break
            if False in counted:
                return InclusionState.MISSING
            if None not in counted:
                return InclusionState.COUNTED
        late = self.clock.now() > answer.deadline + _PATIENCE_SECONDS
        return InclusionState.UNPROVEN if late else InclusionState.UNCHECKED

    async def _counted(
        self, leaf: bytes, commitment: BatchCommitment, signer: PublicIdentity
    ) -> bool | None:
        """Fetch a leaf's bucket; return whether it has the leaf, None without a valid proof."""
        with _errors_as_no_proof(commitment.task_digest):
            return await is_included(self.shuffler, leaf, commitment, signer)
        return None


async def is_included(
    shuffler: Shuffler, leaf: bytes, commitment: BatchCommitment, signer: PublicIdentity
) -> bool:
    """Fetch a leaf's bucket; return whether it has the leaf. Raises ProofError if it is invalid."""
    digest = commitment.task_digest
    proof = await shuffler.inclusion(digest, commitment.prefix_of(leaf))
    if proof.commitment != commitment:
        raise ProofError("the shuffler returned two commitments to one batch")
    return proof.includes(leaf, signer, digest, commitment.n_leaves)


@contextmanager
def _errors_as_no_proof(digest: TaskDigest) -> Iterator[None]:
    """Suppress errors in requesting and verifying a proof; log only a proof that does not hold."""
    try:
        yield
    except ProofError:
        logs.event("proof does not hold", {"task_digest": digest.hex()}, level="WARNING")
    except (PeerError, PeerRefusalError, WireError):
        pass
