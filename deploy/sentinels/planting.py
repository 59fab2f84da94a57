"""
Plant an operator's sentinels: submissions by device code, each over its own connection.

Then look them up in the batch that left the first shuffler, as devices look up their answers.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from shuffledp.common.crypto.signing import PublicIdentity, is_valid_receipt
from shuffledp.common.errors import BatchStateError, PeerError, PeerRefusalError, SettingsError
from shuffledp.common.messages.inclusion_proof import leaf, split
from shuffledp.common.task.sealing import layer_sealer, report_sealer
from shuffledp.common.task.task import Task
from shuffledp.common.task_digest import TaskDigest
from shuffledp.deploy.clients.analyzer import OperatorClient
from shuffledp.deploy.sentinels.sentinel_file import PlantedSentinel, SentinelFile, SentinelState
from shuffledp.deploy.tasks.value_parser import sample_value
from shuffledp.deploy.terminal.escape import visible
from shuffledp.user_agent.clients import Shuffler
from shuffledp.user_agent.contribution import Contributor
from shuffledp.user_agent.inclusion_monitor import is_included


class _NotingSealer:
    """Seals sentinels as a device does, and notes the leaves that the analyzer will receive."""

    def __init__(self, task: Task, digest: TaskDigest) -> None:
        self._task, self._add_layers = task, layer_sealer(task, digest)
        self._seal = report_sealer(task, digest, len(task.shufflers))
        self._contributor = Contributor(task, digest, seal_report=self._seal_report)
        self._leaves = b""

    def prepare(self, rng: np.random.Generator) -> PlantedSentinel:
        """Prepare a sentinel of a random value."""
        self._leaves = b""
        prepared = self._contributor.prepare(sample_value(self._task, rng), rng)
        sent = b"".join(prepared.leaves)
        return PlantedSentinel(prepared.envelope, self._leaves, sent * (sent != self._leaves))

    def _seal_report(self, report: bytes) -> bytes:
        sealed = self._seal(report)
        self._leaves += leaf(sealed)
        return self._add_layers(sealed)


@dataclass(frozen=True, kw_only=True, eq=False)
class SentinelRun:
    """Plants sentinels among the users of one task."""

    digest: TaskDigest
    analyzer: OperatorClient
    connect: Callable[[], AbstractAsyncContextManager[Shuffler]]
    file: Path
    rng: np.random.Generator
    tokens: Sequence[bytes] | None = None
    """Tokens, one per sentinel, the same in every run; None if the task requires none."""
    analyzer_identity: PublicIdentity | None = None
    """Required signer of the task; None to skip the check."""
    shuffler_identity: PublicIdentity | None = None
    """Required signer of receipts; None to skip the check."""
    wait: Callable[[float], Awaitable[None]] = asyncio.sleep

    async def plant(self, count: int, over: float) -> list[PlantedSentinel]:
        """
        Register `count` sentinels, send them within `over` seconds, and confirm acknowledged ones.

        Sentinels are registered before sending, so that none counts as a user. Only acknowledged
        ones are confirmed, so that an undelivered one does not count as missing. A second run with
        the same file resends the unacknowledged ones unchanged. Returns all, with their states.

        Raises SettingsError for too few tokens or a wrong file, ProofError for a wrong task,
        BatchStateError if `count` exceeds target_size - n_min, and PeerRefusalError or PeerError.
        """
        if self.tokens is not None and len(self.tokens) < count:
            raise SettingsError(
                f"{count} sentinels need {count} tokens; the file has {len(self.tokens)} different "
                "ones"
            )
        async with self.connect() as shuffler:
            signed = await shuffler.fetch_task(self.digest)
        task = Task.verified(signed, self.digest, self.analyzer_identity)
        room = max(0, task.target_size - task.n_min)
        if count > room:  # check first: registering only some would use up the room
            raise BatchStateError(
                f"{count} sentinels do not fit: between n_min and target_size there is room for "
                f"{room}"
            )
        with SentinelFile.opened(self.file, self.digest, count) as file:
            sealer = _NotingSealer(task, self.digest)
            known = len(file.sentinels)
            file.plan(sealer.prepare(self.rng) for _ in range(count - known))
            sent = {SentinelState.STORED, SentinelState.ACKNOWLEDGED}
            left = [n for n, each in enumerate(file.sentinels) if each.state not in sent]
            try:
                await self._register(file.sentinels, acknowledged=False)
            except PeerRefusalError:
                if not known:
                    self.file.unlink()  # none was ever sent
                raise
            await self._confirm(file)
            times = np.sort(self.rng.random(len(left))) * over
            for number, pause in zip(left, np.diff(times, prepend=0.0), strict=True):
                await self.wait(float(pause))
                await self._send(file, number)
                await self._confirm(file)
            return file.sentinels

    async def _send(self, file: SentinelFile, number: int) -> None:
        envelope = file.sentinels[number].envelope
        token = self.tokens[number] if self.tokens is not None else b""
        try:
            async with self.connect() as shuffler:
                receipt = await shuffler.submit(self.digest, envelope, token)
        except PeerRefusalError as error:
            file.record(number, SentinelState.REFUSED, reason=str(error))
            return
        except PeerError:
            file.record(number, SentinelState.UNKNOWN)  # stays registered: it may be stored
            return
        pinned = self.shuffler_identity
        if pinned is not None and not is_valid_receipt(pinned, self.digest, envelope, receipt):
            file.record(number, SentinelState.UNKNOWN)
            raise PeerError(
                "the shuffler's receipt is not signed by its pinned identity; no more sentinels "
                "are sent"
            )
        file.record(number, SentinelState.STORED, receipt=receipt)

    async def _confirm(self, file: SentinelFile) -> None:
        """Confirm stored sentinels; a later call retries if the analyzer was unreachable."""
        sentinels = file.sentinels
        stored = [n for n, known in enumerate(sentinels) if known.state is SentinelState.STORED]
        if not stored:
            return
        try:
            await self._register((sentinels[number] for number in stored), acknowledged=True)
        except PeerRefusalError as error:
            if error.status != BatchStateError.status:
                raise
            return  # the batch has already arrived
        except PeerError:
            return
        for number in stored:
            file.record(number, SentinelState.ACKNOWLEDGED)

    async def _register(self, sentinels: Iterable[PlantedSentinel], *, acknowledged: bool) -> None:
        leaves = [sentinel.leaves for sentinel in sentinels]
        await self.analyzer.register_sentinels(self.digest, leaves, acknowledged=acknowledged)


def report(
    sentinels: Sequence[PlantedSentinel], digest: TaskDigest, output: Path
) -> tuple[dict[str, Any], str]:
    """Return the number of sentinels in each state, and reasons of refusals, as JSON and text."""
    states = Counter(sent.state for sent in sentinels)
    reasons = Counter(sent.reason for sent in sentinels if sent.state is SentinelState.REFUSED)
    shown = {state.value: states[state] for state in [*SentinelState][1:]}
    fields = {"task_digest": digest.hex(), "file": str(output), "sentinels": len(sentinels)}
    text = (
        f"Of {len(sentinels)} sentinels: {shown['acknowledged']} acknowledged by the shuffler and "
        f"confirmed, {shown['stored']} acknowledged but not confirmed at the analyzer, "
        f"{shown['refused']} refused, {shown['unknown']} without an answer."
    )
    for reason, times in reasons.most_common():
        text += f"\nRefused {times} times: {visible(reason)}"
    if shown["acknowledged"] + shown["refused"] < len(sentinels):
        text += "\nRun the same command again to resend the others."
    return fields | shown | {"reasons": dict(reasons)}, text


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookup:
    """Which of a task's sentinels the party after the first shuffler signed for."""

    signer: str
    """That party: the analyzer, or the relay of a task with two shufflers."""
    checked: int
    """Number of sentinels that the first shuffler acknowledged."""
    missing: Sequence[int]
    """Numbers, in the file, of those that are not in the batch: the first shuffler lost them."""


async def look_up(
    shuffler: Shuffler,
    digest: TaskDigest,
    sentinels: Sequence[PlantedSentinel],
    analyzer_identity: PublicIdentity,
    relay_identity: PublicIdentity | None,
) -> Lookup:
    """
    Look every acknowledged sentinel up. Nobody's privacy depends on a sentinel's reports.

    What is inside their layers is not asked for: the analyzer, who knows it, matches it itself.

    Raises SettingsError without a second shuffler's identity, ProofError for an invalid proof, and
    PeerError or PeerRefusalError, also before the delivery and where the shuffler samples.
    """
    task = Task.verified(await shuffler.fetch_task(digest), digest, analyzer_identity)
    signer = relay_identity if task.relay else analyzer_identity
    if signer is None:
        raise SettingsError(f"give the identity of {task.shufflers[-1].name}, the second shuffler")
    commitment = (await shuffler.inclusion(digest, None)).commitment
    commitment.verify(signer, digest, task.most_leaves)
    stored = [number for number, sentinel in enumerate(sentinels) if sentinel.receipt]
    missing = []
    for number in stored:
        leaves = split(sentinels[number].layers or sentinels[number].leaves)
        if not all([await is_included(shuffler, leaf, commitment, signer) for leaf in leaves]):
            missing.append(number)
    named = "relay" if task.relay else "analyzer"
    return Lookup(signer=named, checked=len(stored), missing=missing)


def show(found: Lookup, console: Console) -> None:
    """Print what passed the first shuffler, and who lost the rest."""
    two = found.signer == "relay"
    signer, loser = ("second shuffler", "first shuffler") if two else ("analyzer", "shuffler")
    arrived = found.checked - len(found.missing)
    console.print(
        f"{arrived} of {found.checked} acknowledged sentinels are in the batch that the {signer} "
        "signed for."
    )
    if found.missing:
        numbers = ", ".join(map(str, found.missing))
        console.print(f"The {loser} lost the others, in the file's order from 0: {numbers}.")
    if two and arrived:
        console.print(
            "Any of those that the analyzer misses (see result --json; in quarantine, task show) "
            "the second shuffler lost; or the analyzer, if the second one logged that it signed "
            "other reports than were sent."
        )
