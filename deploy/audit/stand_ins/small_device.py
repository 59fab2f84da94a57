"""A device's core on its own: a shuffler in memory, a clock that stands still, a budget file."""

import dataclasses
import sqlite3
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import numpy as np

from common.crypto.signing import SignedTask, SigningIdentity
from common.errors import ShuffleDpError
from common.task.task import Task
from common.task_digest import DIGEST_BYTES, TaskDigest
from deploy.audit.stand_ins.shuffler_in_memory import ShufflerInMemory
from deploy.audit.stand_ins.still_clock import StillClock
from user_agent.agent import Agent
from user_agent.budget import Budget, SubmissionState
from user_agent.credentials import PersonalSecrets
from user_agent.evidence import Evidence
from user_agent.inclusion_monitor import Watch
from user_agent.policy import Policy

_NO_LIMIT: Final = 1e9
"""On what is spent; far more than is."""
_SURE: Final = 0.9
_TOO_LOW: Final = 0.99
"""Of an ε: further below the truth than a claim has room."""
_LARGE_DELTA: Final = 1e-3
BUDGET_FILE: Final = "budget.sqlite"
_SEALED: Final = frozenset({"envelope", "leaves"})
"""Columns of what follows from ciphertexts."""


class SmallDevice:
    """An agent of one person, as deployed; everything around it is in memory but its budget."""

    def __init__(
        self, folder: Path, identity: SigningIdentity, rng: np.random.Generator, **caps: float
    ) -> None:
        """
        Start it.

        Args:
            folder: Of its own; what a device kept there before, this one knows.
            identity: The analyzer's.
            rng: What it draws from.
            **caps: Of its Policy; those that are not named limit nothing.
        """
        no_limits: dict[str, Any] = {
            "local_epsilon_cap": float("inf"),
            "total_local_epsilon_cap": float("inf"),
            "total_central_epsilon_cap": _NO_LIMIT,
            "total_delta_cap": _SURE,
            "lasting_responses": True,
        }
        folder.mkdir(exist_ok=True)
        self.folder, self.clock, self.shuffler = folder, StillClock(), ShufflerInMemory()
        self._identity, self._rng = identity, rng
        self._policy = Policy(identity=identity.public_identity(), **(no_limits | caps))
        self._budget = Budget(folder / BUDGET_FILE)
        self._person = ""
        self._agent = self._agent_of(None)

    def _agent_of(self, shuffler: SigningIdentity | None) -> Agent:
        return Agent(
            shuffler=self.shuffler,
            budget=self._budget,
            policy=self._policy,
            several_persons=bool(self._person),
            clock=self.clock,
            rng=self._rng,
            secrets=PersonalSecrets(bytes(32)),
            shuffler_identity=None if shuffler is None else shuffler.public_identity(),
        )

    def pin(self, shuffler: SigningIdentity) -> None:
        """Start the agent anew, with a shuffler whose receipts it checks."""
        self._agent = self._agent_of(shuffler)

    def serve(self, person: str) -> None:
        """Start the agent anew, as one of several people, for whom of them it answers."""
        self._person = person
        self._agent = self._agent_of(None)

    async def answers(self, task: Task, value: int = 0) -> bool:
        """Ask for an answer, and say whether it was given and has arrived."""
        return await self.fails(task, value) is None

    async def fails(self, task: Task, value: int) -> ShuffleDpError | None:
        """Ask for an answer, and give what is told if it was not given or has not arrived."""
        try:
            await self._agent.contribute(self._offer(self.sign(task)), value, self._person)
        except ShuffleDpError as error:
            return error
        return None

    async def resends(self) -> None:
        """Send again what may not have arrived, as the service does by itself."""
        await self._agent.resend_pending()

    async def watches(self) -> None:
        """Let all the time pass in which it asks once, and let it ask about what arrived."""
        watch = self.watch(1.0)
        await watch.check_due()
        self.clock.seconds += 2.0
        await watch.check_due()

    def watch(self, pause: float) -> Watch:
        """Give what asks about its answers, with so many seconds between two questions."""
        return Watch(
            shuffler=self.shuffler,
            budget=self._budget,
            identity=self._identity.public_identity(),
            clock=self.clock,
            rng=self._rng,
            pause=pause,
        )

    async def evidence(self, task: Task) -> Evidence | None:
        """Give what it keeps to check on its answer."""
        return await self._budget.evidence(self._person, self.sign(task).digest())

    async def verified(self, task: Task) -> bool:
        """Say whether it tells that the receipt of its answer is verified."""
        return (await self._agent.record(self.sign(task).digest(), self._person)).receipt_verified

    def repeat(self, times: int) -> None:
        """Write into its budget that it gave its one answer to so many more tasks."""
        connection = sqlite3.connect(self.folder / BUDGET_FILE)
        try:
            cursor = connection.execute("SELECT * FROM submissions")
            [row], columns = cursor.fetchall(), [column[0] for column in cursor.description]
            place = columns.index("task_digest")
            rows = [
                (*row[:place], number.to_bytes(DIGEST_BYTES), *row[place + 1 :])
                for number in range(times)
            ]
            marks = ", ".join("?" * len(columns))
            with connection:
                connection.executemany(f"INSERT INTO submissions VALUES ({marks})", rows)  # noqa: S608  # question marks
        finally:
            connection.close()

    async def refuses(
        self,
        offered: Task | SignedTask,
        cause: type[ShuffleDpError],
        words: str,
        *,
        as_digest: TaskDigest | None = None,
    ) -> bool:
        """
        Ask for an answer, and say whether it is refused as it must be.

        Args:
            offered: A task, which the analyzer signs; or one that somebody has signed.
            cause: Of which class the refusal must be, and no other.
            words: Of its sentence.
            as_digest: What is asked for; the task's own digest unless said.

        Returns:
            Whether it was refused for this cause, and this call spent and sent nothing.
        """
        signed = offered if isinstance(offered, SignedTask) else self.sign(offered)
        digest = self._offer(signed, as_digest)
        before, tried = await self._budget.find("", digest), len(self.shuffler.tried)
        try:
            await self._agent.contribute(digest, 0, "")
        except ShuffleDpError as error:
            after = await self._budget.find("", digest)
            meant = type(error) is cause and words in str(error)
            return meant and after == before and len(self.shuffler.tried) == tried
        return False

    def sign(self, task: Task) -> SignedTask:
        """Sign a task as the analyzer."""
        return self._identity.sign(task.to_bytes())

    def _offer(self, signed: SignedTask, as_digest: TaskDigest | None = None) -> TaskDigest:
        digest = as_digest or signed.digest()
        self.shuffler.tasks[digest] = signed
        return digest

    async def arrived(self, task: Task) -> bool:
        """Say whether it believes that the shuffler has its answer."""
        saved = await self._budget.find("", self.sign(task).digest())
        return saved is not None and saved.state is SubmissionState.ARRIVED

    def kept(self) -> list[tuple[object, ...]]:
        """List all rows of its file; of what is sealed, the length alone."""
        connection = sqlite3.connect(self.folder / BUDGET_FILE)
        try:
            names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            tables = sorted(name for (name,) in names.fetchall())
            return [row for table in tables for row in _rows(connection, table)]
        finally:
            connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._budget.close()


def central_too_low(task: Task) -> Task:
    """
    Give a task that claims a central ε 1 % below its own.

    Where δ is large, ε hardly moves it, and the room that a claim has is more than that 1 %: then
    its δ is 1 % too low as well.
    """
    delta = task.delta * (_TOO_LOW if task.delta > _LARGE_DELTA else 1)
    return dataclasses.replace(task, central_epsilon=_TOO_LOW * task.central_epsilon, delta=delta)


def local_too_low(task: Task) -> Task:
    """Give a task that claims a local ε 1 % below its own."""
    local = _TOO_LOW * task.local_epsilon
    central = min(local, task.central_epsilon) if task.composition.amplified else local
    return dataclasses.replace(task, local_epsilon=local, central_epsilon=central)


def _rows(connection: sqlite3.Connection, table: str) -> list[tuple[object, ...]]:
    cursor = connection.execute(f"SELECT * FROM {table}")  # noqa: S608  # its own tables' names
    columns = [column[0] for column in cursor.description]
    return [
        (table, *(len(v) if c in _SEALED else v for c, v in zip(columns, row, strict=True)))
        for row in cursor.fetchall()
    ]
