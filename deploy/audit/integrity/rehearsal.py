"""A task played through: devices, a shuffler that may cheat, an analyzer; real keys and files."""

import logging
import math
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

from common.crypto.hpke import HpkePrivateKey
from common.task.task import Task
from deploy.audit.integrity.analyzer_core import AnalyzerCore
from deploy.audit.integrity.dishonest_shuffler import DishonestShuffler
from deploy.audit.integrity.rehearsed import SENTINELS, people
from deploy.audit.stand_ins.still_clock import StillClock
from user_agent.agent import Agent
from user_agent.budget import Budget
from user_agent.contribution import Contributor
from user_agent.credentials import PersonalSecrets
from user_agent.evidence import Inclusion
from user_agent.inclusion_monitor import Watch
from user_agent.policy import Policy

_PAUSE = 10.0


@dataclass(frozen=True, kw_only=True)
class Rehearsal:
    """All parties, started; people have answered, and sentinels may stand among them."""

    analyzer: AnalyzerCore
    shuffler: DishonestShuffler
    budget: Budget
    watch: Watch
    clock: StillClock
    n_people: int

    @classmethod
    @asynccontextmanager
    async def begun(
        cls, task: Task, rng: np.random.Generator, *, sentinels: bool = False
    ) -> AsyncIterator[Self]:
        """
        Publish a rehearsal and let people answer it, and an operator plant sentinels.

        Args:
            task: From `rehearsed`.
            rng: Draws values, reports and orders.
            sentinels: Whether the operator plants any.
        """
        clock = StillClock()
        with tempfile.TemporaryDirectory(prefix="shuffledp-audit-") as folder:
            path = Path(folder)
            async with AnalyzerCore.started(path / "analyzer", clock, rng) as analyzer:
                key = HpkePrivateKey.generate(task.suite)
                signed = await analyzer.publish(task, key.public_key().raw, rng)
                shuffler = DishonestShuffler(
                    path=path / "inclusion",
                    analyzer=analyzer,
                    signed=signed,
                    key=key,
                    clock=clock,
                    rng=rng,
                )
                budget = Budget(path / "budget.sqlite")
                try:
                    yield await cls._answered(
                        analyzer, shuffler, budget, clock, rng, sentinels=sentinels
                    )
                finally:
                    budget.close()

    @classmethod
    async def _answered(
        cls,
        analyzer: AnalyzerCore,
        shuffler: DishonestShuffler,
        budget: Budget,
        clock: StillClock,
        rng: np.random.Generator,
        *,
        sentinels: bool,
    ) -> Self:
        identity, task = analyzer.keys.identity.public_identity(), shuffler.task
        agent = Agent(
            shuffler=shuffler,
            budget=budget,
            policy=Policy(
                identity=identity,
                local_epsilon_cap=math.inf,
                total_local_epsilon_cap=math.inf,
                total_central_epsilon_cap=math.inf,
                lasting_responses=True,
            ),
            several_persons=True,
            clock=clock,
            rng=rng,
            secrets=PersonalSecrets(bytes(32)),
            shuffler_identity=shuffler.identity.public_identity(),
        )
        n_people = people(task)
        for number, value in enumerate(rng.integers(0, task.domain_size, n_people).tolist()):
            await agent.contribute(shuffler.digest, value, person(number))
        if sentinels:
            await _plant(analyzer, shuffler, rng)
        watch = Watch(
            shuffler=shuffler,
            budget=budget,
            identity=identity,
            clock=clock,
            rng=rng,
            pause=_PAUSE,
        )
        return cls(
            analyzer=analyzer,
            shuffler=shuffler,
            budget=budget,
            watch=watch,
            clock=clock,
            n_people=n_people,
        )

    async def seen_by_devices(self) -> Counter[Inclusion]:
        """Let every device check on its answer, and count what they come to."""
        for _ in range(2):  # at the first look each draws when to ask
            await self.watch.check_due()
            self.clock.seconds += 2 * _PAUSE
        kept = [
            await self.budget.evidence(person(number), self.shuffler.digest)
            for number in range(self.n_people)
        ]
        return Counter(evidence.inclusion for evidence in kept if evidence is not None)


def person(number: int) -> str:
    """Name somebody."""
    return f"person {number}"


async def _plant(
    analyzer: AnalyzerCore, shuffler: DishonestShuffler, rng: np.random.Generator
) -> None:
    """Register sentinels, send them, and confirm them, in the order in which they are sent."""
    contributor, digest = Contributor(shuffler.task, shuffler.digest), shuffler.digest
    values = rng.integers(0, shuffler.task.domain_size, SENTINELS)
    answers = [contributor.answer(value, rng) for value in values.tolist()]
    leaves = [b"".join(answer.leaves) for answer in answers]
    await analyzer.sentinels.register(digest, leaves, acknowledged=False)
    for answer in answers:
        await shuffler.submit(digest, answer.envelope)
    await analyzer.sentinels.register(digest, leaves, acknowledged=True)


@contextmanager
def quietly() -> Iterator[None]:
    """Keep what the parties log of an attack that the audit plays off the operator's screen."""
    logger = logging.getLogger("shuffledp")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before
