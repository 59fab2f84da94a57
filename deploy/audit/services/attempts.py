"""What is tried on the way of a play, and must be refused; with it, what must not be."""

import dataclasses
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Final

import numpy as np

from common.accounting.composition import composed_epsilon
from common.accounting.guarantees import claimed_release
from common.crypto.signing import SignedTask
from common.errors import ShuffleDpError
from common.messages.batch import BATCH_ID_BYTES, BatchId, BatchManifest
from common.messages.submission import Outcome
from common.runtime.rpc import SHORT_DEADLINE, open_channel, reply
from common.task.task import SUBMISSION_ID_BYTES, Task
from common.task_digest import TaskDigest
from common.wire.batches import MAX_CHUNK_BYTES, chunk_to_wire, manifest_to_wire
from deploy.audit.services.facts import Fact
from deploy.audit.services.people import Dishonest, People
from deploy.audit.services.plan import Plan
from deploy.audit.services.refusal import (
    BATCH_OVER,
    ID_USED,
    NO_ENVELOPE,
    ONE_RELEASE,
    OTHER_LENGTH,
    OVER_BUDGET,
    refused,
)
from deploy.audit.services.tape import Tape
from deploy.audit.services.traced import TracedAnswer
from deploy.audit.services.trio import Trio
from deploy.clients.analyzer import OperatorClient
from protos.shuffledp.v1 import analyzer_pb2, analyzer_pb2_grpc

DAY: Final = 86_400
LARGE_BUDGET: Final = 1000.0
"""That no play spends."""

_REFUSED_SHARE: Final = 0.05
"""Of reports that may be refused: more, and an analyzer suspects the whole batch."""
_DISHONEST: Final = 3


class Attempts:
    """What users, a shuffler and an operator try who go beyond what they may."""

    def __init__(self, plan: Plan, trio: Trio, tape: Tape, rng: np.random.Generator) -> None:
        self._plan, self._trio, self._tape, self._rng = plan, trio, tape, rng
        self.facts: dict[Fact, bool] = {}
        self.published: list[TaskDigest] = []
        """Tasks for which nothing is collected."""
        self.batches: list[BatchId] = []
        """Of batches that were made up."""

    async def while_collecting(
        self, people: People, signed: Mapping[str, SignedTask], answers: Sequence[TracedAnswer]
    ) -> None:
        """
        Let half of the users answer the early task, and some who send what no device makes.

        Args:
            people: Who they are.
            signed: The tasks, by name.
            answers: All that devices made, those that they make meanwhile too.
        """
        early, plan = signed["early"], self._plan
        digest, dishonest = early.digest(), Dishonest(early, self._rng)
        await people.answer(early, plan.values[: plan.n_users // 2], plan.tokens)
        honest = [one for one in answers if one.task_digest == digest]
        elsewhere = next(one for one in answers if one.task_digest == signed["first"].digest())
        task = Task.from_bytes(early.task_bytes)
        tried = (
            (Fact.NO_GARBAGE, dishonest.garbage(), NO_ENVELOPE),
            (Fact.NO_OTHER_LENGTH, dishonest.garbage(task.envelope_bytes + 1), OTHER_LENGTH),
            (Fact.NO_OTHER_BYTES, dishonest.under_id(honest[0].submission_id), ID_USED),
            (Fact.NO_OTHER_TASK, elsewhere.envelope, NO_ENVELOPE),
        )
        for fact, envelope, cause in tried:
            self.facts[fact] = await refused(people.submit(digest, envelope), cause)
        made_up = dishonest.under_id(self._rng.bytes(SUBMISSION_ID_BYTES))
        self.facts[Fact.MADE_UP_TAKEN] = await _became(people, digest, made_up) is Outcome.STORED
        again = await _became(people, digest, honest[0].envelope)
        self.facts[Fact.SAME_BYTES] = again is Outcome.REPEATED
        bad = [
            dishonest.unreadable(signed["first"].digest()),
            dishonest.malformed(),
            dishonest.repeated(),
        ]
        room = int(_REFUSED_SHARE * len(honest) * task.reports_per_user)
        for envelope in bad[: min(_DISHONEST, room)]:
            await _became(people, digest, envelope)

    async def when_released(
        self, people: People, operator: OperatorClient, signed: SignedTask
    ) -> None:
        """Ask for what there is once: another batch of a task, and more than a budget."""
        digest = signed.digest()
        late = Dishonest(signed, self._rng).under_id(self._rng.bytes(SUBMISSION_ID_BYTES))
        self.facts[Fact.OVER_TAKES_NO_MORE] = await refused(people.submit(digest, late), BATCH_OVER)
        self._tape.aside = True
        try:
            second = self._deliver_another(signed)
            self.facts[Fact.ONE_BATCH_A_TASK] = await refused(second, ONE_RELEASE)
        finally:
            self._tape.aside = False
        await self._spend_more(operator, Task.from_bytes(signed.task_bytes))

    async def _deliver_another(self, signed: SignedTask) -> None:
        """Deliver, as the shuffler, another whole batch of a task."""
        task = Task.from_bytes(signed.task_bytes)
        least, _ = task.batch_reports(self._plan.n_users)
        manifest = BatchManifest(
            task_digest=signed.digest(),
            batch_id=BatchId(self._rng.bytes(BATCH_ID_BYTES)),
            n_users=self._plan.n_users,
            n_reports=least,
        )
        self.batches.append(manifest.batch_id)
        own, address = self._trio.shuffler_certificate(), self._trio.address("analyzer")
        async with open_channel(address, "analyzer", own.authority, own=own) as channel:
            stub = analyzer_pb2_grpc.AnalyzerStub(channel)
            parts = self._parts(manifest, task.sealed_report_bytes)
            await reply(stub.DeliverBatch(parts, timeout=SHORT_DEADLINE), "the analyzer")

    async def _parts(
        self, manifest: BatchManifest, size: int
    ) -> AsyncIterator[analyzer_pb2.DeliverBatchRequest]:
        """Give a manifest, and as many reports as it announces; none of them opens."""
        yield manifest_to_wire(manifest)
        left, most = manifest.n_reports, MAX_CHUNK_BYTES // size
        while left:
            count = min(left, most)
            yield chunk_to_wire(self._rng.bytes(count * size))
            left -= count

    async def _spend_more(self, operator: OperatorClient, task: Task) -> None:
        """Ask for a task that the population's budget does not allow; then with a larger budget."""
        plan = self._plan
        entries, _ = await operator.ledger()
        spent = max(
            (one.composed_epsilon for one in entries if one.population == plan.population),
            default=0.0,
        )
        allowed = dataclasses.replace(
            plan.draft,
            deadline=int(time.time()) + DAY,
            shuffler_key=self._trio.shuffler_key(plan.draft.suite),
            population=plan.population,
            budget_epsilon=LARGE_BUDGET,
        )
        greedy = dataclasses.replace(allowed, budget_epsilon=max(plan.central_epsilon, spent))
        self.facts[Fact.WITHIN_BUDGET] = await refused(operator.create_task(greedy), OVER_BUDGET)
        try:
            self.published.append((await operator.create_task(allowed)).digest())
        except ShuffleDpError as error:
            # Where so many releases cost more than any budget, that is what must be said.
            beyond = OVER_BUDGET.is_told_by(error) and _costs_more(task)
            self.facts[Fact.LARGER_BUDGET] = beyond
        else:
            self.facts[Fact.LARGER_BUDGET] = True


def _costs_more(task: Task) -> bool:
    """Say whether three releases of a task, of as few as may be, cost more than a large budget."""
    releases = [claimed_release(task, task.n_min)] * 3
    return composed_epsilon(releases, task.budget_delta) > LARGE_BUDGET


async def _became(people: People, digest: TaskDigest, envelope: bytes) -> Outcome | None:
    """Send an envelope, and say what became of it; None where it was not taken."""
    try:
        return await people.submit(digest, envelope)
    except ShuffleDpError:
        return None
