"""
One answer's way out of the device: fetch, check, prepare, save, send.

Nothing is sent that was not saved before, and nothing is randomized twice: whatever fails, the
same bytes are sent again.
"""

from dataclasses import dataclass

import numpy as np

from common.errors import PeerError, PeerRefusalError, PolicyError
from common.hpke import TaskDigest
from common.runtime import logs
from common.runtime.clock import Clock
from user_agent.budget import Answer, AnswerState, Budget
from user_agent.client import Shuffler
from user_agent.contribution import Contribution
from user_agent.policy import Policy, check


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What the person is told."""

    repeated: bool
    """The task had been answered before; the value of this call was not used."""
    local_epsilon: float


class Agent:
    """A person's device, or several people's if it is configured so."""

    def __init__(
        self,
        *,
        shuffler: Shuffler,
        budget: Budget,
        policy: Policy,
        several_persons: bool,
        clock: Clock,
        rng: np.random.Generator,
    ) -> None:
        self._shuffler = shuffler
        self._budget = budget
        self._policy = policy
        self._several_persons = several_persons
        self._clock = clock
        self._rng = rng

    async def contribute(self, digest: TaskDigest, value: int, person: str) -> Receipt:
        """
        Answer a task for a person.

        Raises:
            PolicyError: The device does not answer this task, or not for several persons.
            SignatureError, TaskError: The task is not what the pinned analyzer signed, or invalid.
            ValueRangeError: The value lies outside the domain.
            PeerError: The shuffler cannot be reached; the answer is saved and will be sent again.
            PeerRefusalError: The shuffler does not take it.
        """
        if person and not self._several_persons:
            raise PolicyError("this agent answers for one person; it does not take a name")
        earlier = await self._budget.find(person, digest)
        answer = earlier or await self._prepare(digest, value, person)
        if answer.state is not AnswerState.ARRIVED:
            await self._send(answer)
        return Receipt(repeated=earlier is not None, local_epsilon=answer.local_epsilon)

    async def _prepare(self, digest: TaskDigest, value: int, person: str) -> Answer:
        signed = await self._shuffler.fetch_task(digest)
        task = check(signed, digest, self._policy, self._clock.now())
        submission = Contribution(task, digest).prepare(value, self._rng)
        return await self._budget.spend(
            Answer(
                person=person,
                task_digest=digest,
                envelope=submission.envelope,
                local_epsilon=task.local_epsilon,
                state=AnswerState.PENDING,
            )
        )

    async def _send(self, answer: Answer) -> None:
        try:
            await self._shuffler.submit(answer.task_digest, answer.envelope)
        except PeerRefusalError:
            await self._budget.mark(answer, AnswerState.REFUSED)
            raise
        await self._budget.mark(answer, AnswerState.ARRIVED)

    async def resend_pending(self) -> None:
        """Send again what was saved before a crash or while the shuffler was away."""
        for answer in await self._budget.pending():
            try:
                await self._send(answer)
            except (PeerError, PeerRefusalError) as error:
                logs.event(
                    "answer not sent",
                    {"task_digest": answer.task_digest.hex(), "status": error.status},
                    level="WARNING",
                )
