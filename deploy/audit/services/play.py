"""The course of one play: five collections over one trio, and what is tried on the way."""

import asyncio
import dataclasses
import time
from collections.abc import Awaitable
from contextlib import suppress
from pathlib import Path
from typing import Final

import numpy as np

from common.crypto.signing import SignedTask
from common.errors import ShuffleDpError
from common.messages.batch import BatchState
from common.messages.ledger_entry import LedgerEntry
from common.messages.result import Result
from common.task.task import Task
from common.task_digest import TaskDigest
from deploy.audit.log_lines import LogLines
from deploy.audit.services import devices, disk
from deploy.audit.services.attempts import DAY, LARGE_BUDGET, Attempts
from deploy.audit.services.facts import Fact
from deploy.audit.services.look import Look, columns, look
from deploy.audit.services.people import People
from deploy.audit.services.plan import Plan
from deploy.audit.services.record import Collection, Names, Record
from deploy.audit.services.refusal import BELOW_N_MIN, LOST, refused, served
from deploy.audit.services.sources import Sources
from deploy.audit.services.tape import METHODS, Tape, tasks_of_calls
from deploy.audit.services.traced import TracedAnswer
from deploy.audit.services.trio import Trio
from deploy.audit.services.visits import Visits
from deploy.audit.services.watch import Watch
from deploy.clients.analyzer import OperatorClient
from deploy.clients.shuffler import ShufflerClient
from protos.shuffledp.v1.user_agent_pb2 import ContributeResponse
from user_agent.budget import Budget

_PATIENCE: Final = 120.0
_PATIENCE_EACH: Final = 0.02
"""Seconds that all results together may take, and more for each user."""
_END_PATIENCE: Final = 15.0
_LOOKS: Final = 20
_SHORT_LIFE: Final = 6
"""Seconds until the deadline of the collection that nobody completes."""
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
        self.attempts = Attempts(plan, self.trio, self.tape, self.rng)
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
        self.facts[Fact.FIRST_CLOSED] = await self._close(shuffler, "first")
        await self._everybody(people, "again", lossy=False)
        for person, value in zip(plan.persons, plan.marked_values, strict=False):
            await _told(people.tell_agent(self._digest("marked"), person, value))
        n_agents = min(len(plan.persons), len(plan.marked_values))
        await people.answer(self.signed["marked"], plan.marked_values[n_agents:], ())
        await self.attempts.while_collecting(people, self.signed, self.answers)
        self.facts[Fact.EARLY_CLOSED] = await self._close(shuffler, "early")
        self.facts[Fact.AGAIN_CLOSES] = await self._closes_by_itself(shuffler, "again")
        self.facts[Fact.MARKED_CLOSES] = await self._closes_by_itself(shuffler, "marked")
        self._patience = time.monotonic() + _PATIENCE + _PATIENCE_EACH * plan.n_users
        for name in ("first", "again", "marked", "early"):
            self.results[name] = await self._result(operator, name)
        closed = [name for name in self.results if self._state(name) != BatchState.COLLECTING.value]
        await self._over(*closed)
        await self.attempts.when_released(people, operator, self.signed["first"])
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
            plan.draft, deadline=now + DAY, shuffler_key=key(plan.draft.suite)
        )
        asked = dataclasses.replace(common, population=plan.population, budget_epsilon=LARGE_BUDGET)
        drafts = {
            "first": asked,
            "again": dataclasses.replace(common, target_size=plan.n_users),
            "early": asked,
            "marked": dataclasses.replace(
                plan.marked, deadline=now + DAY, shuffler_key=key(plan.marked.suite)
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
        self.facts[Fact.NOT_CLOSED_BELOW_N_MIN] = await refused(
            shuffler.close_batch(self._digest("few")), BELOW_N_MIN
        )

    async def _everybody(self, people: People, name: str, *, lossy: bool) -> None:
        """Let all users answer in the same order; of the first two, one twice, one after a loss."""
        plan, digest, size = self.plan, self._digest(name), self.plan.draft.domain_size
        for place, (person, value) in enumerate(zip(plan.persons, plan.values, strict=False)):
            if lossy and place == 0:
                self.tape.lose_acknowledgement = True
                lost = await refused(people.tell_agent(digest, person, value), LOST)
                again = await _told(people.tell_agent(digest, person, (value + 1) % size))
                self.facts[Fact.SENT_AGAIN] = lost and again == (True, True)
                continue
            await _told(people.tell_agent(digest, person, value))
            if lossy and place == 1:
                again = await _told(people.tell_agent(digest, person, (value + 1) % size))
                self.facts[Fact.ONE_VALUE] = again == (True, False)
        rest = slice(len(plan.persons), None)
        await people.answer(self.signed[name], plan.values[rest], plan.tokens[rest])

    async def _close(self, shuffler: ShufflerClient, name: str) -> bool:
        """Close a batch for its operator, and say whether that is done."""
        digest = self._digest(name)
        self.spooled[digest] = disk.shuffler_batch(self.trio.state("shuffler"), digest)
        self.closed[name] = time.monotonic()
        return await served(shuffler.close_batch(digest))

    async def _closes_by_itself(self, shuffler: ShufflerClient, name: str) -> bool:
        """See that a batch closes once all have come; if it does not, close it."""
        digest = self._digest(name)
        for _ in range(_LOOKS):
            if (await shuffler.progress(digest)).state is not BatchState.COLLECTING:
                return True
            await asyncio.sleep(0.1)
        await served(shuffler.close_batch(digest))
        return False

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
        self.facts[Fact.KEPT_ON_DEVICE] = all(
            one is not None
            and one.claim.local_epsilon == task.local_epsilon
            and one.claim.central_epsilon == task.central_epsilon
            and one.envelope in made
            for one in kept
        )
        self.attempts.facts |= await devices.refusals(self._directory / "device", task, self.rng)

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
            names=self._names(),
        )

    @property
    def facts(self) -> dict[Fact, bool]:
        """What was tried so far, and how it came out."""
        return self.attempts.facts

    def _names(self) -> Names:
        tasks = [*map(self._digest, self.signed), *self.attempts.published]
        batches = disk.batch_ids(self.trio.state("shuffler"))
        return Names(
            tasks=frozenset(digest.hex() for digest in tasks),
            batches=frozenset(one.hex() for one in (*batches, *self.attempts.batches)),
            keys=self.trio.key_ids(),
            addresses={party: self.trio.address(party) for party in METHODS},
        )

    def _state(self, name: str) -> str:
        """Look up the state of a batch in the shuffler's file."""
        return disk.batch_states(self.trio.state("shuffler")).get(self._digest(name), "")

    def _digest(self, name: str) -> TaskDigest:
        return self.signed[name].digest()


async def _told(call: Awaitable[ContributeResponse]) -> tuple[bool, bool] | None:
    """Give what a person is told: it is a repeat, and this call sent it; None where it failed."""
    try:
        answer = await call
    except ShuffleDpError:
        return None
    return answer.repeated, answer.sent
