"""
The analyzer's log of tasks and keys: append, sign, and have witnesses cosign.

A task and its entry are stored in one transaction, so that a crash separates neither; the signature
of a checkpoint follows from the entries, so that it can be made again after a crash. Devices get
the checkpoint that most witnesses cosigned: an older one is kept until a newer has as many
cosignatures.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from shuffledp.analyzer.storage import log_table
from shuffledp.analyzer.storage.store import Store
from shuffledp.analyzer.witness_client import CheckingLink, WitnessLink
from shuffledp.common import errors
from shuffledp.common.crypto.key_ring import DAY
from shuffledp.common.crypto.signing import SignedTask, SigningIdentity
from shuffledp.common.runtime import logs
from shuffledp.common.runtime.clock import Clock, retry_pause
from shuffledp.common.transparency import checkpoint
from shuffledp.common.transparency.checkpoint import Checkpoint, NoteSignature, SignedCheckpoint
from shuffledp.common.transparency.growth import Growth, joined_root
from shuffledp.common.transparency.log import LogCopy, LogEntry
from shuffledp.common.transparency.merkle import LogTree
from shuffledp.common.transparency.witness_policy import WEEK_SECONDS

_PATIENCE_SECONDS: Final = 5.0
"""How long the creation of a task waits for witnesses."""
_GRACE: Final = 600.0
"""Seconds without an answer before a warning: a witness may start after the analyzer."""
_UNTRIED: Final = "it has not answered yet"

Cosigned = tuple[int, NoteSignature | None]
"""The size of a witness's last checkpoint, and its cosignature; None if asked from another size."""


@dataclass(slots=True)
class _Pushed:
    """A witness, and its state as the log knows it."""

    key: checkpoint.NoteKey
    ask: Callable[[int, LogTree, SignedCheckpoint], Awaitable[Cosigned]]
    """Ask it to cosign the head of a tree, given its own size."""
    cosigned: float
    """When it last cosigned, or when this log began to ask."""
    size: int = 0
    problem: str = _UNTRIED
    due: asyncio.Event = field(default_factory=asyncio.Event)
    answered: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once it has answered, or failed to answer, about the newest checkpoint."""


@dataclass(kw_only=True)
class TaskLog:
    """The log, which only the analyzer appends to and signs."""

    store: Store
    identity: SigningIdentity
    witnesses: Sequence[WitnessLink]
    checking: Sequence[CheckingLink] = ()
    clock: Clock

    def __post_init__(self) -> None:
        self._origin = checkpoint.log_key(self.identity.public_identity()).name
        asking = [(one.key, partial(_prove, one)) for one in self.witnesses]
        asking += [(one.key, partial(self._show, one)) for one in self.checking]
        self._witnesses = [_Pushed(key, ask, self.clock.now()) for key, ask in asking]
        self._changing = asyncio.Lock()
        self.copy = LogCopy()
        """What the shuffler fetches."""

    async def resume(self, keys: Sequence[LogEntry]) -> None:
        """
        Append missing keys and tasks, and sign the newest checkpoint. Run at start.

        Raises:
            ProofError: A stored checkpoint is not of the stored entries.
            WireError: A stored checkpoint is damaged.
        """
        stored = await self.store.run(log_table.checkpoints, self._origin)
        await self.store.run(log_table.append_missing, keys)
        self.copy.extend(await self.store.run(log_table.leaves_after, 0))
        self.copy.serve(stored)
        for one in self._witnesses:
            known = [time for each in stored if (time := each.signed_at(one.key)) is not None]
            one.cosigned = min(one.cosigned, max(known, default=one.cosigned))
        await self._advance()

    async def preview(self, signed: SignedTask) -> None:
        """
        Have all checking witnesses check a task at once before it enters the log.

        One that does not answer is skipped, as when it should cosign: tasks are completed with
        claims that hold. Raises TaskError if one refuses the task: it could never cosign the log
        again.
        """

        async def ask(one: CheckingLink) -> None:
            try:
                with suppress(errors.PeerError):
                    await one.check_task(signed)
            except errors.PeerRefusalError as error:
                raise errors.TaskError(
                    f"the checking witness {one.key.name} refuses the task, which is therefore not "
                    f"published: {error}"
                ) from error

        await asyncio.gather(*map(ask, self.checking))

    async def publish(self) -> dict[str, str]:
        """
        Sign a checkpoint of all entries, and wait some seconds for the witnesses.

        Returns, by the name of each witness, why it has not cosigned; empty if it has.
        """
        await self._advance()
        answers = asyncio.gather(*(one.answered.wait() for one in self._witnesses))
        with suppress(TimeoutError):
            await asyncio.wait_for(answers, _PATIENCE_SECONDS)
        return {one.key.name: one.problem for one in self._witnesses}

    def cosigned(self) -> list[float]:
        """Return when each witness last cosigned; when this log began to ask, if unknown."""
        return [one.cosigned for one in self._witnesses]

    async def run(self) -> None:
        """Have witnesses cosign each checkpoint, and again daily, while the service runs."""
        await asyncio.gather(*map(self._keep_pushing, self._witnesses))

    async def _advance(self) -> None:
        async with self._changing:
            self.copy.extend(await self.store.run(log_table.leaves_after, self.copy.size))
            size, served = self.copy.size, self.copy.checkpoints
            if served and served[-1].checkpoint.size == size:
                return
            head = Checkpoint(origin=self._origin, size=size, root=self.copy.tree(size).root)
            await self._serve([*served, head.sign(self.identity)])
            for one in self._witnesses:
                one.problem = _UNTRIED
                one.answered.clear()
                one.due.set()

    async def _serve(self, checkpoints: Sequence[SignedCheckpoint]) -> None:
        """
        Keep the newest checkpoint, and each older one with more cosignatures than every newer.

        Only cosignatures of the last week count. Those kept are stored and served.
        """
        oldest, most, kept = self.clock.now() - WEEK_SECONDS, -1, list[SignedCheckpoint]()
        newest_first = sorted(checkpoints, key=lambda note: note.checkpoint.size, reverse=True)
        for signed in newest_first:
            times = (signed.signed_at(witness.key) for witness in self._witnesses)
            fresh = sum(time is not None and time >= oldest for time in times)
            if fresh > most:
                kept.append(signed)
                most = fresh
        await self.store.run(log_table.replace_checkpoints, kept)
        self.copy.serve(kept)

    async def _keep_pushing(self, witness: _Pushed) -> None:
        pause, began = 0.0, self.clock.elapsed()
        name, failures = witness.key.name, logs.RepeatedFailures()
        while True:
            witness.due.clear()
            try:
                await self._push(witness)
                problem, pause, began = "", 0.0, math.inf
                failures.ended(name)
            except Exception as error:  # noqa: BLE001  # retried after the pause
                problem = (
                    str(error) if isinstance(error, errors.ShuffleDpError) else "internal error"
                )
                pause = retry_pause(pause)
                began = min(began, self.clock.elapsed())
                waiting = (
                    isinstance(error, errors.PeerError) and self.clock.elapsed() < began + _GRACE
                )
                failures.failed(
                    name,
                    "witness does not cosign",
                    {**logs.error_fields(error), "party": name},
                    level="INFO" if waiting else "WARNING",
                )
            if not witness.due.is_set():
                witness.problem = problem
                witness.answered.set()
            with suppress(TimeoutError):
                await asyncio.wait_for(witness.due.wait(), pause or DAY)

    async def _push(self, witness: _Pushed) -> None:
        """Have a witness cosign the newest checkpoint, after an earlier failure to sign one too."""
        await self._advance()
        signed = self.copy.checkpoints[-1]
        size = signed.checkpoint.size
        tree = self.copy.tree(size)
        for _ in range(2):  # the first answer may only tell the size to prove consistency from
            if witness.size > size:
                raise errors.ProofError(
                    f"the witness cosigned a checkpoint of size {witness.size}; this log has "
                    f"{size}: its database is an old copy, or the witness serves another one"
                )
            witness.size, line = await witness.ask(witness.size, tree, signed)
            if line is not None:
                await self._add(witness, signed, line)
                return
        raise errors.ProofError("the witness asks for proofs from one size after another")

    async def _show(
        self, link: CheckingLink, old_size: int, tree: LogTree, signed: SignedCheckpoint
    ) -> Cosigned:
        """Show a checking witness all new entries, in as many calls as they need."""
        most = signed.checkpoint.size
        while True:
            entries, tasks = await self.store.run(log_table.added_after, old_size, most)
            size = old_size + len(entries)
            root = joined_root(tree.full_subtrees(size))
            head = Checkpoint(origin=self._origin, size=size, root=root)
            growth = Growth(
                old_size=old_size,
                subtrees=tree.full_subtrees(old_size),
                checkpoint=head.sign(self.identity),
                entries=entries,
                tasks=tasks,
            )
            answer = await link.add_entries(growth)
            if size == most or answer[1] is None:
                return answer
            old_size = size

    async def _add(self, witness: _Pushed, signed: SignedCheckpoint, line: NoteSignature) -> None:
        """Check a cosignature, and add it in place of the witness's earlier one."""
        key = witness.key
        if SignedCheckpoint(signed.checkpoint, (line,)).signed_at(key) is None:
            raise errors.ProofError("the witness's cosignature is by another key")
        async with self._changing:
            served = {one.checkpoint: one for one in self.copy.checkpoints}
            current = served.get(signed.checkpoint, signed)
            others = (one for one in current.signatures if one.key_id != key.key_id())
            served[signed.checkpoint] = replace(current, signatures=(*others, line))
            await self._serve(list(served.values()))
        witness.cosigned = self.clock.now()


async def _prove(
    link: WitnessLink, old_size: int, tree: LogTree, signed: SignedCheckpoint
) -> Cosigned:
    """Prove to a witness that the head of a tree continues its last one."""
    return await link.add_checkpoint(old_size, tree.prove_consistency(old_size), signed)
