"""
What a device refuses, rule by rule, and what it keeps: its core, with a shuffler in memory.

Each cap is tried alone, with all others out of the way, once a hair below what a task costs and
once at it. The tasks are small ones, made here: the rules look at no more than what a task claims.
"""

import asyncio
import dataclasses
import logging
import math
import sqlite3
from contextlib import closing
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np

from common.crypto.signing import SigningIdentity
from common.errors import (
    BatchStateError,
    BudgetError,
    PeerError,
    PeerRefusalError,
    PolicyError,
    ShuffleDpError,
)
from common.errors import (
    CredentialError as UserTokenError,
)
from common.errors import (
    ProofError as SignatureError,
)
from common.task.task import NONCE_BYTES, Task
from common.task_digest import DIGEST_BYTES
from deploy.audit.audited import Audited
from deploy.audit.checks import Checks
from deploy.audit.code.behaviour import behaviour
from deploy.audit.code.watching import check_watching
from deploy.audit.finding import Finding, Outcome
from deploy.audit.sample_task import amplified_task, sample_task
from deploy.audit.stand_ins.small_device import (
    BUDGET_FILE,
    SmallDevice,
    central_too_low,
    local_too_low,
)
from deploy.audit.stand_ins.writes import Writes

_DOMAIN: Final = 1_000
_MANY: Final = 300
"""Earlier answers that a device adds up."""


def play_policies(audited: Audited, rng: np.random.Generator) -> Outcome:
    """Try every rule on a device of its own."""
    del audited
    checks = Checks()
    with TemporaryDirectory(prefix="shuffledp-audit-") as folder:
        disabled = logging.root.manager.disable
        logging.disable()  # a receipt that is refused, as it must be, is logged as an error
        try:
            alike = asyncio.run(_Trial(checks, Path(folder), rng).all())
        finally:
            logging.disable(disabled)
    finding = checks.finding(
        scenario="device-rules",
        title="A device's limits, one by one",
        heading="anonymity",
        coalition="shuffler+analyzer",
        sentence="Each limit that a person sets was reached by itself, and the device answered up "
        "to it and not a hair beyond, whether or not its earlier answers arrived, and whichever "
        "version had written them down. It answered no task at its deadline, none whose central or "
        "local ε is stated 1 % too low, however often it was asked, and none but the one that it "
        "asked for, signed by the analyzer. It sent the same bytes again after every failure, and "
        "while it answered it opened no file for writing but its budget, whose rows differ between "
        "two values in what is sealed alone. It asked a shuffler for no proof under a commitment "
        "by anybody but the analyzer, or of another task or depth, and concluded nothing from two "
        "commitments; it did not ask at once, nor for all answers at one time; it waited for proof "
        "for a fortnight after the deadline, asked nothing of a task that samples, and kept "
        "nothing that names its reports when they were counted.",
        advice="Do not collect with this version: devices answer what their owners do not allow.",
    )
    return Outcome(findings=(finding, alike))


@cache
def _plain_task() -> Task:
    """Give a task whose central claim is its local ε, so that a device confirms it at once."""
    task = sample_task(protocol="ldp-grr", domain_size=_DOMAIN, local_epsilon=0.5)
    return dataclasses.replace(task, labels=())


def _write_first_version(path: Path, local_epsilon: float) -> None:
    """Write a budget file of one answer, as the first version of this program did."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(
            "CREATE TABLE submissions (person TEXT NOT NULL, task_digest BLOB NOT NULL, "
            "envelope BLOB NOT NULL, local_epsilon REAL NOT NULL, state TEXT NOT NULL, "
            "PRIMARY KEY (person, task_digest)) WITHOUT ROWID"
        )
        connection.execute(
            "INSERT INTO submissions VALUES ('', ?, x'00', ?, 'arrived')",
            (bytes(DIGEST_BYTES), local_epsilon),
        )


class _Trial:
    """One run through all rules."""

    def __init__(self, checks: Checks, folder: Path, rng: np.random.Generator) -> None:
        self._checks, self._must = checks, checks.must
        self._folder, self._rng, self._made = folder, rng, 0
        self._identity = SigningIdentity.generate()

    async def all(self) -> Finding:
        """Try them, and see whether a device behaves alike whatever its value."""
        await self._caps()
        await self._sums()
        await self._earlier_files()
        await self._deadlines()
        await self._claims()
        await self._failures()
        await self._receipts()
        await self._kept()
        await self._offers()
        task = _plain_task()
        await check_watching(self._checks, task, self._device, self._identity, self._rng)
        return await behaviour(task, self._device, self._rng)

    def _device(self, **caps: float) -> SmallDevice:
        """Give a device that has never answered anything, and has no limits but these."""
        self._made += 1
        folder = self._folder / str(self._made)
        return SmallDevice(folder, self._identity, self._rng, **caps)

    def _another(self, task: Task, number: int) -> Task:
        return dataclasses.replace(task, nonce=number.to_bytes(NONCE_BYTES))

    async def _caps(self) -> None:
        task = _plain_task()
        cost = task.local_epsilon
        caps: tuple[tuple[str, str, type[ShuffleDpError]], ...] = (
            ("local_epsilon_cap", "local ε of one answer", PolicyError),
            ("total_local_epsilon_cap", "local ε of all answers", BudgetError),
            ("total_central_epsilon_cap", "central ε of all answers", BudgetError),
        )
        for name, words, cause in caps:
            with self._device(**{name: cost}) as device:
                answered = await device.answers(task)
            self._must(f"a task at the cap on {words} alone is answered", answered)
            with self._device(**{name: math.nextafter(cost, 0)}) as device:
                refused = await device.refuses(task, cause, name)
            self._must(f"a task a hair over the cap on {words} alone is not answered", refused)

    async def _sums(self) -> None:
        """Three tasks in a row, of which the third is too much; of two, the second."""
        plain, amplified = _plain_task(), amplified_task()
        cost, most = plain.local_epsilon, 2.5
        local, central = "total_local_epsilon_cap", "total_central_epsilon_cap"
        tries: tuple[tuple[str, Task, dict[str, float], int, str], ...] = (
            ("local ε", plain, {local: most * cost}, 3, local),
            (
                "central ε",
                plain,
                {central: most * cost, "total_delta_cap": 3.1 * plain.delta},
                3,
                central,
            ),
            (
                "δ",
                amplified,
                {
                    central: 0.9 * amplified.local_epsilon,
                    "total_delta_cap": 1.5 * amplified.delta,
                },
                2,
                central,
            ),
        )
        for words, task, caps, last, cap in tries:
            with self._device(**caps) as device:
                answered = [
                    await device.answers(self._another(task, number)) for number in range(1, last)
                ]
                refused = await device.refuses(self._another(task, last), BudgetError, cap)
            self._must(
                f"tasks up to the cap on {words} are answered, and the next one is not",
                all(answered) and refused,
            )
        with self._device(**{local: (_MANY + 0.5) * cost}) as device:
            await device.answers(plain)
            device.repeat(_MANY - 1)
            refused = await device.refuses(self._another(plain, 1), BudgetError, local)
        self._must("nor is it after very many answers", refused)

    async def _earlier_files(self) -> None:
        """Files of the first version say of answers what they cost locally, and nothing else."""
        task, cap = _plain_task(), "total_central_epsilon_cap"
        for most, wanted in ((1.5, False), (2.5, True)):
            folder = self._folder / str(self._made + 1)
            folder.mkdir()
            _write_first_version(folder / BUDGET_FILE, task.local_epsilon)
            caps = {cap: most * task.local_epsilon, "total_delta_cap": 2 * task.delta}
            with self._device(**caps) as device:
                refused = await device.refuses(task, BudgetError, cap)
                answered = await device.answers(task)
            self._must(
                "what was answered before an upgrade counts with its local ε",
                answered is wanted and refused is not wanted,
            )

    async def _deadlines(self) -> None:
        task = _plain_task()
        with self._device() as device:
            device.clock.seconds = task.deadline - 1.0
            answered = await device.answers(task)
        self._must("a task is answered a second before its deadline", answered)
        for late in (0.0, 1.0):
            with self._device() as device:
                device.clock.seconds = task.deadline + late
                refused = await device.refuses(task, PolicyError, "deadline has passed")
            self._must("a task is not answered at its deadline, nor a second later", refused)

    async def _claims(self) -> None:
        lie, words = central_too_low(amplified_task()), "claim of central epsilon"
        with self._device() as device:
            first = await device.refuses(lie, PolicyError, words)
            again = await device.refuses(lie, PolicyError, words)
        self._must("a central ε 1 % too low is not answered", first)
        self._must("nor is it when the same device is asked again", again)

    async def _failures(self) -> None:
        """What was not sent is charged all the same, and is never drawn anew."""
        task = _plain_task()
        failures = (
            ("cannot be reached", PeerError("nobody is there")),
            ("does not take its token", PeerRefusalError(UserTokenError.status, "no token")),
            ("says that it is too late", PeerRefusalError(BatchStateError.status, "too late")),
        )
        for words, failure in failures:
            with self._device(total_local_epsilon_cap=1.5 * task.local_epsilon) as device:
                device.shuffler.failing = failure
                await device.answers(task)
                another = self._another(task, 1)
                self._must(
                    f"an answer is charged when the shuffler {words}",
                    await device.refuses(another, BudgetError, "total_local_epsilon_cap"),
                )
                device.shuffler.failing = None
                await device.answers(task, 1)
                tried = device.shuffler.tried
            self._must(
                f"the same bytes are sent again when the shuffler {words}",
                len(tried) > 1 and len(set(tried)) == 1,
            )
        with self._device() as device:
            await device.answers(task)
            await device.answers(task, 1)
            tried = device.shuffler.tried
        self._must("what has arrived is not sent again", len(tried) == 1)

    async def _receipts(self) -> None:
        """A device that knows its shuffler takes no other acknowledgement for it."""
        task, shuffler = _plain_task(), SigningIdentity.generate()
        wrong: tuple[tuple[str, SigningIdentity | None, bytes], ...] = (
            ("an empty receipt", None, b""),
            ("a receipt by another identity", SigningIdentity.generate(), b""),
            ("a receipt of other bytes", shuffler, b"other"),
        )
        for words, signer, more in wrong:
            with self._device() as device:
                device.pin(shuffler)
                device.shuffler.signs_with, device.shuffler.signs_more = signer, more
                await device.answers(task)
                believed = await device.arrived(task)
            self._must(f"{words} is not taken for an acknowledgement", not believed)
        with self._device() as device:
            device.pin(shuffler)
            device.shuffler.signs_with = shuffler
            await device.answers(task)
            self._must("the pinned shuffler's receipt is", await device.arrived(task))
            self._must("and is told to be verified", await device.verified(task))
        for signer in (None, shuffler):
            with self._device() as device:
                device.shuffler.signs_with = signer
                await device.answers(task)
                self._must(
                    "no receipt is told to be verified where no shuffler is pinned",
                    await device.arrived(task) and not await device.verified(task),
                )

    async def _kept(self) -> None:
        """What a device writes while it answers, for the last value and for the first."""
        task = _plain_task()
        rows = []
        for value in (0, task.domain_size - 1):
            with self._device() as device:
                await device.answers(self._another(task, 1))  # so that nothing is imported below
                with Writes() as writes:
                    await device.answers(task, value)
                rows.append(device.kept())
                self._must(
                    "a device that answers opens no file for writing but its budget",
                    writes.elsewhere(device.folder) == [],
                )
                self._must(
                    "a device keeps no file but its budget",
                    all(path.name.startswith("budget.sqlite") for path in device.folder.iterdir()),
                )
        self._must("what is kept shows no value but in what is sealed", rows[0] == rows[1])

    async def _offers(self) -> None:
        """A shuffler hands on another task than was asked for, or one that nobody should sign."""
        task = _plain_task()
        other = self._another(task, 1)
        with self._device() as device:
            as_digest = device.sign(other).digest()
            words = "gave another task"
            refused = await device.refuses(task, SignatureError, words, as_digest=as_digest)
        self._must("a task other than was asked for is not answered", refused)
        with self._device() as device:
            signed = SigningIdentity.generate().sign(task.to_bytes())
            refused = await device.refuses(signed, SignatureError, "signature is not by")
        self._must("a task that anybody but the analyzer signed is not answered", refused)
        for honest in (task, amplified_task()):
            with self._device() as device:
                words = "weights do not keep its claim of local epsilon"
                refused = await device.refuses(local_too_low(honest), PolicyError, words)
            self._must("a local ε 1 % too low for a task's weights is not answered", refused)
