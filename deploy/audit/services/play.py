"""The course of one play: five collections over one trio, and what is tried on the way."""

import asyncio
import dataclasses
import time
from collections.abc import Awaitable
from contextlib import suppress
from pathlib import Path
from typing import Final

import numpy as np

from common.batch import BATCH_ID_BYTES, BatchId, BatchManifest, BatchState
from common.errors import ShuffleDpError
from common.ledger_entry import LedgerEntry
from common.result import Result
from common.runtime.rpc import SHORT_DEADLINE, open_channel, reply
from common.signing import SignedTask
from common.submission import Outcome
from common.task import Task
from common.task_digest import TaskDigest
from common.wire import manifest_to_wire
from deploy.audit.services import devices, disk
from deploy.audit.services.log_lines import LogLines
from deploy.audit.services.look import Look, columns, look
from deploy.audit.services.people import Dishonest, People
from deploy.audit.services.plan import Plan
from deploy.audit.services.record import Collection, Record
from deploy.audit.services.sources import Sources
from deploy.audit.services.tape import METHODS, Tape, tasks_of_calls
from deploy.audit.services.traced import TracedAnswer
from deploy.audit.services.trio import Trio
from deploy.audit.services.visits import Visits
from deploy.audit.services.watch import Watch
from deploy.operator_client import OperatorClient
from deploy.shuffler_client import ShufflerClient
from protos.shuffledp.v1 import analyzer_pb2_grpc
from user_agent.budget import Budget

_PATIENCE: Final = 120.0
"""Seconds that all results together may take."""
_END_PATIENCE: Final = 15.0
_LOOKS: Final = 20
_SHORT_LIFE: Final = 6
"""Seconds until the deadline of the collection that nobody completes."""
_DAY: Final = 86_400
_BUDGET: Final = 1000.0
_REFUSED_SHARE: Final = 0.05
"""Of reports that may be refused: more, and an analyzer suspects the whole batch."""
_DISHONEST: Final = 3
_FEW: Final = 3
_FINAL: Final = frozenset({"erased", "expired", "quarantined"})


async def play(plan: Plan, directory: Path, lines: LogLines) -> Record:
    """
    Play a plan once, on files in a directory that is empty.

    Cost: some seconds to start the services, and a quarter of a millisecond a report.
    """
    course = _Course(plan, directory)
    with course.watch.watching():
        async with course.trio as trio:
            people = People(trio, course.rng, course.answers)
            try:
                async with trio.operator() as operator, trio.shuffler_operator() as other:
                    await course.run(people, operator, other)
            finally:
                await people.close()
    course.look("stopped")
    await course.after_the_stop()
    return course.record(lines)


class _Course:
    """What is under way, and noted so far."""

    def __init__(self, plan: Plan, directory: Path) -> None:
        self.plan = plan
        self.rng = np.random.default_rng(plan.seed)
        self.tape, self.answers = Tape(), list[TracedAnswer]()
        self.sources = Sources(self.rng.spawn(1)[0])
        self.trio = Trio(directory, tape=self.tape, sources=self.sources, told=self.answers.append)
        self.visits = Visits(self.trio, self.tape)
        self.tape.on_manifest, self.tape.on_staged = self._before_delivery, self._after_staging
        self.signed: dict[str, SignedTask] = {}
        self.results: dict[str, Result | None] = {}
        self.closed: dict[str, float] = {}
        self.spooled: dict[bytes, disk.BatchDisk | None] = {}
        self.mixed: dict[bytes, disk.BatchDisk | None] = {}
        self.staged: dict[bytes, tuple[bytes, ...]] = {}
        self.metrics: dict[str, str] = {}
        self.looks: dict[tuple[str, str], Look] = {}
        self.watch = Watch(directory.with_name(f"{directory.name}-links"))
        self.facts: dict[str, bool] = {}
        self._patience = 0.0
        self.ledger: list[LedgerEntry] = []
        self._directory = directory

    async def run(self, people: People, operator: OperatorClient, shuffler: ShufflerClient) -> None:
        """Play all of it."""
        plan = self.plan
        self.look("started")  # before anybody else opens a key: that would seal what lies open
        await self._publish_all(operator)
        await self.visits.while_collecting(people, self.signed["early"], plan.values)
        await self._too_few(people, operator, shuffler)
        await self._everybody(people, "first", lossy=True)
        self.look("collecting")
        self.metrics |= {f"collecting {p}": await self.trio.metrics(p) for p in METHODS}
        await self._close(shuffler, "first")
        await self._everybody(people, "again", lossy=False)
        for person, value in zip(plan.persons, plan.marked_values, strict=False):
            await people.tell_agent(self._digest("marked"), person, value)
        n_agents = min(len(plan.persons), len(plan.marked_values))
        await people.answer(self.signed["marked"], plan.marked_values[n_agents:], ())
        await self._some_dishonest(people)
        await self._close(shuffler, "early")
        for name in ("again", "marked"):
            await self._closed_by_itself(shuffler, name)
        self._patience = time.monotonic() + _PATIENCE
        for name in ("first", "again", "marked", "early"):
            self.results[name] = await self._result(operator, name)
        closed = [name for name in self.results if self._state(name) != BatchState.COLLECTING.value]
        await self._over(*closed)
        await self._once_more(people, operator)
        await self._over("few")
        self.results["few"] = None
        with suppress(ShuffleDpError):
            self.results["few"] = await operator.result(self._digest("few"))
        self.ledger, _ = await operator.ledger()
        self.metrics |= {f"over {p}": await self.trio.metrics(p) for p in METHODS}
        self.look("over")
        await self.visits.when_over(self._digest("first"))

    async def _publish_all(self, operator: OperatorClient) -> None:
        plan, now, key = self.plan, int(time.time()), self.trio.shuffler_key
        common = dataclasses.replace(
            plan.draft, deadline=now + _DAY, shuffler_key=key(plan.draft.suite)
        )
        asked = dataclasses.replace(common, population=plan.population, budget_epsilon=_BUDGET)
        drafts = {
            "first": asked,
            "again": dataclasses.replace(common, target_size=plan.n_users),
            "early": asked,
            "marked": dataclasses.replace(
                plan.marked, deadline=now + _DAY, shuffler_key=key(plan.marked.suite)
            ),
        }
        for name, draft in drafts.items():
            self.signed[name] = await operator.create_task(draft)

    async def _too_few(
        self, people: People, operator: OperatorClient, shuffler: ShufflerClient
    ) -> None:
        """Let fewer users than n_min answer, and ask for their batch."""
        draft, deadline = self.plan.draft, int(time.time()) + _SHORT_LIFE
        key = self.trio.shuffler_key(draft.suite)
        short = dataclasses.replace(draft, deadline=deadline, shuffler_key=key)
        self.signed["few"] = await operator.create_task(short)
        await people.answer(self.signed["few"], self.plan.values[:_FEW], ())
        self.facts["a batch below n_min is not closed for its operator"] = not await _done(
            shuffler.close_batch(self._digest("few"))
        )

    async def _everybody(self, people: People, name: str, *, lossy: bool) -> None:
        """Let all users answer in the same order; of the first two, one twice, one after a loss."""
        plan, digest, size = self.plan, self._digest(name), self.plan.draft.domain_size
        for place, (person, value) in enumerate(zip(plan.persons, plan.values, strict=False)):
            if lossy and place == 0:
                self.tape.lose_acknowledgement = True
                lost = await people.tell_agent(digest, person, value) is None
                again = await people.tell_agent(digest, person, (value + 1) % size)
                self.facts["after a lost acknowledgement the same answer is sent again"] = (
                    lost and again is not None and again.repeated and again.sent
                )
                continue
            await people.tell_agent(digest, person, value)
            if lossy and place == 1:
                again = await people.tell_agent(digest, person, (value + 1) % size)
                self.facts["a second value of a person is not sent"] = (
                    again is not None and again.repeated and not again.sent
                )
        rest = slice(len(plan.persons), None)
        await people.answer(self.signed[name], plan.values[rest], plan.tokens[rest])

    async def _some_dishonest(self, people: People) -> None:
        """Let half of the users answer, and some who send what no device makes."""
        plan, signed = self.plan, self.signed["early"]
        values = plan.values[: plan.n_users // 2]
        digest, dishonest = signed.digest(), Dishonest(signed, self.rng)
        await people.answer(signed, values, plan.tokens)
        honest = [answer for answer in self.answers if answer.task_digest == digest]
        task = Task.from_bytes(signed.task_bytes)
        refused = {
            "garbage": dishonest.garbage(),
            "an envelope of another length": dishonest.garbage(task.envelope_bytes + 1),
            "other bytes under an id that was used": dishonest.under_id(honest[0].submission_id),
        }
        for what, envelope in refused.items():
            outcome = await people.submit(digest, envelope)
            self.facts[f"the shuffler refuses {what}"] = outcome is None
        elsewhere = [one for one in self.answers if one.task_digest == self._digest("first")]
        outcome = await people.submit(digest, elsewhere[0].envelope)
        self.facts["the shuffler refuses an envelope that was sealed for another task"] = (
            outcome is None
        )
        outcome = await people.submit(digest, honest[0].envelope)
        self.facts["the same bytes again are taken for the same"] = outcome is Outcome.REPEATED
        bad = [
            dishonest.unreadable(self._digest("first")),
            dishonest.malformed(),
            dishonest.repeated(),
        ]
        room = int(_REFUSED_SHARE * len(honest) * task.reports_per_user)
        for envelope in bad[: min(_DISHONEST, room)]:
            await people.submit(digest, envelope)

    async def _close(self, shuffler: ShufflerClient, name: str) -> None:
        digest = self._digest(name)
        self.spooled[digest] = disk.shuffler_batch(self.trio.state("shuffler"), digest)
        self.closed[name] = time.monotonic()
        self.facts[f"the operator closes the {name} batch"] = await _done(
            shuffler.close_batch(digest)
        )

    async def _closed_by_itself(self, shuffler: ShufflerClient, name: str) -> None:
        """See that a batch closes once all have come; if it does not, close it."""
        digest, fact = self._digest(name), f"the {name} batch closes once all have come"
        for _ in range(_LOOKS):
            state = (await shuffler.progress(digest)).state
            self.facts[fact] = state is not BatchState.COLLECTING
            if self.facts[fact]:
                return
            await asyncio.sleep(0.1)
        await _done(shuffler.close_batch(digest))

    async def _once_more(self, people: People, operator: OperatorClient) -> None:
        """Ask for what there is once: another batch of a task, and more than a budget."""
        digest = self._digest("first")
        dishonest = Dishonest(self.signed["first"], self.rng)
        late = dishonest.under_id(self.rng.bytes(16))
        self.facts["a batch that was released takes no more submissions"] = (
            await people.submit(digest, late) is None
        )
        task = Task.from_bytes(self.signed["first"].task_bytes)
        least, _ = task.batch_reports(self.plan.n_users)
        second = BatchManifest(
            task_digest=digest,
            batch_id=BatchId(self.rng.bytes(BATCH_ID_BYTES)),
            n_users=self.plan.n_users,
            n_reports=least,
        )
        self.facts["a second batch of the same task is refused"] = not await _done(
            self._deliver(second)
        )
        entries, _ = await operator.ledger()
        spent = max(
            (one.composed_epsilon for one in entries if one.population == self.plan.population),
            default=0.0,
        )
        greedy = dataclasses.replace(
            self.plan.draft,
            deadline=int(time.time()) + _DAY,
            shuffler_key=self.trio.shuffler_key(self.plan.draft.suite),
            population=self.plan.population,
            budget_epsilon=max(self.plan.central_epsilon, spent),
        )
        self.facts[
            "a task that the population's budget does not allow is not published"
        ] = not await _done(operator.create_task(greedy))

    async def _deliver(self, manifest: BatchManifest) -> None:
        """Deliver, as the shuffler, nothing but a manifest."""
        own = self.trio.shuffler_certificate()
        address = self.trio.address("analyzer")
        async with open_channel(address, "analyzer", own.authority, own=own) as channel:
            stub = analyzer_pb2_grpc.AnalyzerStub(channel)
            call = stub.DeliverBatch(iter([manifest_to_wire(manifest)]), timeout=SHORT_DEADLINE)
            await reply(call, "the analyzer")

    async def _result(self, operator: OperatorClient, name: str) -> Result | None:
        if self._state(name) == BatchState.COLLECTING.value:
            return None  # it never closed, as the facts say
        try:
            async with asyncio.timeout(max(0.5, self._patience - time.monotonic())):
                return await operator.wait_for_result(self._digest(name), pause=0.1)
        except (ShuffleDpError, TimeoutError):
            return None

    async def _over(self, *names: str) -> None:
        """Wait until some batches are at their end, but not for ever."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_END_PATIENCE):
                while not all(self._state(name) in _FINAL for name in names):  # noqa: ASYNC110  # a file: nothing tells of it
                    await asyncio.sleep(0.1)
        await asyncio.sleep(0.1)  # the key goes once the state is written

    def look(self, moment: str) -> None:
        """Copy the files of all parties; the first look of a moment counts."""
        self.watch.hold(self.trio.state("shuffler"))
        for party in METHODS:
            if (moment, party) not in self.looks:
                self.looks[moment, party] = look(self.trio.state(party), party, moment)

    def _before_delivery(self, digest: bytes) -> None:
        if digest not in self.mixed:
            self.mixed[digest] = disk.shuffler_batch(self.trio.state("shuffler"), digest)
        self.look("delivering")

    def _after_staging(self, digest: bytes) -> None:
        self.staged.setdefault(digest, disk.staged_chunks(self.trio.state("analyzer"), digest))
        self.look("staged")

    async def after_the_stop(self) -> None:
        """Read what a device has kept; and try dishonest tasks on another."""
        task = Task.from_bytes(self.signed["first"].task_bytes)
        made = {answer.envelope for answer in self.answers}
        budget = Budget(self.trio.state("user_agent") / "budget.sqlite")
        try:
            kept = [
                await budget.find(person, self._digest(name))
                for person in self.plan.persons
                for name in ("first", "again")
            ]
        finally:
            budget.close()
        self.facts["what each person spent, and sent, is on the device after a stop"] = all(
            one is not None
            and one.claim.local_epsilon == task.local_epsilon
            and one.claim.central_epsilon == task.central_epsilon
            and one.envelope in made
            for one in kept
        )
        self.facts |= await devices.refusals(self._directory / "device", task, self.rng)

    def record(self, lines: LogLines) -> Record:
        """Give all that was noted."""
        heard, states = tuple(self.tape.heard), disk.batch_states(self.trio.state("shuffler"))
        tasks = tasks_of_calls(heard)

        def collection(name: str) -> Collection:
            digest = self._digest(name)
            task = Task.from_bytes(self.signed[name].task_bytes)
            opens_reports, opens_envelopes = self.trio.private_keys(task)
            return Collection(
                name=name,
                signed=self.signed[name],
                analyzer_key=opens_reports.private_bytes(),
                shuffler_key=opens_envelopes.private_bytes(),
                answers=tuple(one for one in self.answers if one.task_digest == digest),
                heard=tuple(one for one in heard if tasks.get(one.call) == digest),
                disk=self.spooled.get(digest),
                mixed=self.mixed.get(digest),
                staged=self.staged.get(digest, ()),
                left_staged=disk.staged_chunks(self.trio.state("analyzer"), digest),
                closed_at=self.closed.get(name),
                state=states.get(digest, ""),
                result=self.results[name],
                cells=disk.counted_cells(self.trio.state("analyzer"), digest),
            )

        return Record(
            first=collection("first"),
            again=collection("again"),
            early=collection("early"),
            few=collection("few"),
            marked=collection("marked"),
            persons=self.plan.persons,
            population=self.plan.population,
            tokens=self.plan.tokens,
            ledger=tuple(self.ledger),
            sources=tuple(self.sources.made),
            asked=tuple(self.sources.asked),
            heard=heard,
            log_lines=tuple(lines.lines),
            output=b"",
            metrics=self.metrics,
            looks=tuple(self.looks.values()),
            columns={party: columns(self.trio.state(party)) for party in METHODS},
            watched=self.watch.watched(),
            groups_left=disk.stored_groups(self.trio.state("shuffler")),
            seen=self.visits.seen(),
            facts=self.facts,
        )

    def _state(self, name: str) -> str:
        """Look up the state of a batch in the shuffler's file."""
        return disk.batch_states(self.trio.state("shuffler")).get(self._digest(name), "")

    def _digest(self, name: str) -> TaskDigest:
        return self.signed[name].digest()


async def _done(call: Awaitable[object]) -> bool:
    """Say whether a call was served, and not refused."""
    try:
        await call
    except ShuffleDpError:
        return False
    return True
