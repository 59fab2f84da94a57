"""One collection in this process: devices, a shuffler that may cheat, sentinels, an analyzer."""

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from common.crypto.hpke import HpkePrivateKey
from common.crypto.signing import PublicIdentity
from common.messages.result import Result
from common.task.draft import TaskDraft
from deploy.audit.harness.analyzer_core import AnalyzerCore
from deploy.audit.harness.clock import ManualClock
from deploy.audit.harness.dishonest_shuffler import DishonestShuffler
from user_agent.agent import Agent
from user_agent.budget import Budget, InclusionState
from user_agent.contribution import Contributor
from user_agent.credentials import PersonalSecrets
from user_agent.inclusion_monitor import InclusionMonitor
from user_agent.policy import Policy

_PAUSE = 10.0
"""Seconds between two questions of a device."""


class InProcessRun:
    """The parties, on files in an empty directory; `seed` draws reports, dummies and orders."""

    def __init__(self, path: Path, *, seed: int = 1) -> None:
        self.path = path
        self.analyzer = AnalyzerCore(path / "analyzer")
        self.clock = ManualClock()
        self.n_sentinels = 0
        self._rng = np.random.default_rng(seed)

    async def start(self, wanted: TaskDraft) -> None:
        """Publish a draft under a new shuffler key, and start the parties."""
        await self.analyzer.start()
        self.shuffler_key = HpkePrivateKey.generate(wanted.suite)
        await self.publish(wanted)
        self.digest = self.analyzer.signed.digest()
        self.shuffler = DishonestShuffler(
            self.path / "inclusion",
            self.analyzer,
            self.shuffler_key,
            seed=int(self._rng.integers(2**63)),
        )
        self.budget = Budget(self.path / "budget.sqlite")
        self.agent = self.device(self.shuffler.identity.public_identity())
        self.watch = InclusionMonitor(
            shuffler=self.shuffler,
            budget=self.budget,
            identity=self.analyzer.keys.identity.public_identity(),
            clock=self.clock,
            rng=self._rng,
            pause=_PAUSE,
        )

    async def publish(self, wanted: TaskDraft) -> None:
        """Publish a draft under the shuffler's key."""
        key = self.shuffler_key.public_key().raw
        await self.analyzer.publish(dataclasses.replace(wanted, shuffler_key=key))

    def device(self, shuffler: PublicIdentity) -> Agent:
        """Return a device of several people that pins a shuffler and has no limits."""
        return Agent(
            shuffler=self.shuffler,
            budget=self.budget,
            policy=Policy(
                identity=self.analyzer.keys.identity.public_identity(),
                local_epsilon_cap=math.inf,
                total_local_epsilon_cap=math.inf,
                total_central_epsilon_cap=math.inf,
                total_delta_cap=0.9,
                lasting_responses=True,
            ),
            several_persons=True,
            clock=self.clock,
            rng=self._rng,
            secrets=PersonalSecrets(bytes(32)),
            shuffler_identity=shuffler,
        )

    async def contribute(self, values: Sequence[int]) -> None:
        """Submit a value of each person: `person 0`, `person 1`, …"""
        for number, value in enumerate(values):
            await self.agent.contribute(self.digest, value, f"person {number}")

    async def plant(self, count: int) -> None:
        """Register sentinels, submit them one after the other, and confirm them."""
        self.n_sentinels += count
        contributor = Contributor(self.analyzer.task, self.digest)
        answers = [contributor.answer(0, self._rng) for _ in range(count)]
        leaves = [b"".join(answer.leaves) for answer in answers]
        await self.analyzer.registry.register_sentinels(self.digest, leaves, acknowledged=False)
        for answer in answers:
            await self.shuffler.submit(self.digest, answer.envelope)
        await self.analyzer.registry.register_sentinels(self.digest, leaves, acknowledged=True)

    async def inclusions(self, n_people: int) -> list[InclusionState]:
        """Let every device check for its answer, and return their conclusions in order."""
        for _ in range(2):  # the first check draws a time
            await self.watch.check_due()
            self.clock.seconds += 2 * _PAUSE
        kept = [
            await self.budget.evidence(f"person {number}", self.digest)
            for number in range(n_people)
        ]
        return [evidence.inclusion for evidence in kept if evidence is not None]

    async def result(self) -> Result:
        """
        Return the released result.

        Raises:
            UnusableBatchError: The analyzer has rejected the batch.
        """
        return await self.analyzer.releases.result(self.digest)

    async def stop(self) -> None:
        """Stop the parties."""
        self.budget.close()
        await self.analyzer.stop()
