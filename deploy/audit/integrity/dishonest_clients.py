"""Clients that do not send what a device would: what shuffler and analyzer take of it."""

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import numpy as np

from common.crypto.signing import SignedTask
from common.crypto.tokens import TOKEN_BYTES, TokenIssuer
from common.errors import (
    BatchStateError,
    TokenUsedError,
    WireError,
)
from common.errors import (
    ConflictError as SubmissionConflictError,
)
from common.errors import (
    CredentialError as UserTokenError,
)
from common.errors import (
    WireError as SealError,
)
from common.mechanisms.base import Mechanism
from common.mechanisms.registry import mechanism_of
from common.messages.submission import Outcome as Became
from common.task.task import SUBMISSION_ID_BYTES, Task
from common.task_digest import TaskDigest
from deploy.audit.audited import Audited
from deploy.audit.checks import Checks
from deploy.audit.finding import Finding, Outcome
from deploy.audit.integrity.analyzer_core import AnalyzerCore
from deploy.audit.integrity.known_limit import known_limit
from deploy.audit.integrity.playthrough import NONE_REFUSED, Rows, played, refused
from deploy.audit.integrity.rehearsed import people
from deploy.audit.integrity.shuffler_core import ShufflerCore, envelope, sealed_reports
from deploy.audit.raw_bytes import changed
from deploy.audit.stand_ins.still_clock import StillClock
from user_agent.contribution import Contributor

_SCENARIO: Final = "dishonest-clients"
_WHO: Final = "users"


def dishonest_clients(audited: Audited, rng: np.random.Generator) -> Outcome:
    """Submissions that are too many, too long, repeated, changed, forged, or empty."""
    return Outcome(findings=played(_sent, audited, rng))


@dataclass(frozen=True, kw_only=True)
class _Line:
    """A shuffler in front of an analyzer, and a task that they collect for."""

    shuffler: ShufflerCore
    analyzer: AnalyzerCore
    signed: SignedTask
    task: Task
    mechanism: Mechanism
    rng: np.random.Generator

    @classmethod
    @asynccontextmanager
    async def begun(
        cls, task: Task, rng: np.random.Generator, issuer: TokenIssuer | None = None
    ) -> AsyncIterator[Self]:
        clock = StillClock()
        identity = None if issuer is None else issuer.identity()
        with tempfile.TemporaryDirectory(prefix="shuffledp-audit-") as folder:
            path = Path(folder)
            async with (
                AnalyzerCore.started(path / "analyzer", clock, rng) as analyzer,
                ShufflerCore.started(
                    path / "shuffler",
                    analyzer,
                    analyzer.keys.identity.public_identity(),
                    clock,
                    rng,
                    tokens=identity,
                ) as shuffler,
            ):
                key = shuffler.keys.public_key(task.suite).raw
                signed = await analyzer.publish(task, key, rng)
                yield cls(
                    shuffler=shuffler,
                    analyzer=analyzer,
                    signed=signed,
                    task=Task.from_bytes(signed.task_bytes),
                    mechanism=mechanism_of(task),
                    rng=rng,
                )

    @property
    def digest(self) -> TaskDigest:
        """The task's name."""
        return self.signed.digest()

    def reports(self, count: int) -> list[bytes]:
        """Seal so many reports."""
        drawn = self.mechanism.dummies(count, self.rng)
        return sealed_reports(self.signed, [report.tobytes() for report in drawn])

    def crafted(self, count: int) -> bytes:
        """Put so many reports into an envelope of their own."""
        return envelope(self.signed, self.rng.bytes(SUBMISSION_ID_BYTES), self.reports(count))

    async def submit(self, envelope: bytes, token: bytes = b"") -> Became:
        """Send an envelope."""
        return await self.shuffler.collection.submit(self.digest, envelope, token)

    async def users(self) -> int:
        """Say how many submissions are stored."""
        return (await self.shuffler.collection.progress(self.digest)).n_users


async def _sent(task: Task, rng: np.random.Generator) -> Rows:
    return (*await _submissions(task, rng), await _tokens(task, rng), *await _contents(task, rng))


async def _submissions(task: Task, rng: np.random.Generator) -> Rows:
    flood, forged = Checks(), Checks()
    async with _Line.begun(task, rng) as line:
        number, own_id = task.reports_per_user, rng.bytes(SUBMISSION_ID_BYTES)
        for more in (1, 9 * number):
            flood.must(
                "a submission with more reports than the task's is refused, whole",
                await refused(line.submit(line.crafted(number + more)), WireError),
            )
        if number > 1:
            flood.must(
                "so is one with fewer",
                await refused(line.submit(line.crafted(number - 1)), WireError),
            )
        bulk = [line.crafted(number + 1), line.crafted(number)]
        became = await line.shuffler.collection.submit_bulk(line.digest, bulk)
        flood.must("in bulk too", became == [Became.MALFORMED, Became.STORED])
        flood.must("nothing of them is kept", await line.users() == 1)

        own, other_bytes = (envelope(line.signed, own_id, line.reports(number)) for _ in range(2))
        await line.submit(own)
        again = await line.submit(own)
        forged.must("what comes again counts once", again is Became.REPEATED)
        forged.must(
            "other bytes under an id that was used are refused",
            await refused(line.submit(other_bytes), SubmissionConflictError),
        )
        broken = changed(own, 0)
        forged.must("a changed bit is refused", await refused(line.submit(broken), SealError))
        forged.must("a cut one is refused", await refused(line.submit(own[:-1]), WireError))
        other = await line.analyzer.publish(task, line.task.shuffler_key, rng)
        elsewhere = line.shuffler.collection.submit(other.digest(), own)
        forged.must("one of another task is refused", await refused(elsewhere, SealError))
        forged.must("two submissions are kept", await line.users() == 2)  # noqa: PLR2004  # both whole
    return (
        _row(
            flood,
            "more reports than a submission has, and fewer",
            "The shuffler takes submissions of exactly the task's number of reports, so that "
            "nobody counts for more by sending more.",
        ),
        _row(
            forged,
            "submissions repeated, changed, cut, and of another task",
            "A submission counts once, unchanged and for its own task only.",
        ),
    )


async def _tokens(task: Task, rng: np.random.Generator) -> Finding:
    checks = Checks()
    issuer = TokenIssuer(rng.bytes(32))
    stranger = TokenIssuer(rng.bytes(32))
    async with _Line.begun(task, rng, issuer) as line:
        number, token = task.reports_per_user, issuer.issue()
        for name, shown in (
            ("no token", b""),
            ("a made-up token", rng.bytes(TOKEN_BYTES)),
            ("a stranger's token", stranger.issue()),
        ):
            for words in ("is refused", "is refused when it comes again"):
                sent = line.submit(line.crafted(number), shown)
                checks.must(f"{name} {words}", await refused(sent, UserTokenError))
        stored = await line.submit(line.crafted(number), token)
        checks.must("a token is taken", stored is Became.STORED)
        sent = line.submit(line.crafted(number), token)
        checks.must("a second time it is refused", await refused(sent, TokenUsedError))
        checks.must("one submission is kept", await line.users() == 1)
    return _row(
        checks,
        "tokens missing, made up, and used again",
        "Where tokens are asked for, each counts for one submission to a task.",
    )


async def _contents(task: Task, rng: np.random.Generator) -> Rows:
    """Send what a shuffler cannot look into, among honest people, and release the batch."""
    checks, unseen, number = Checks(), Checks(), task.reports_per_user
    async with _Line.begun(task, rng) as line:
        contributor, n_people = Contributor(line.task, line.digest), people(task)
        for value in rng.integers(0, task.domain_size, n_people).tolist():
            await line.submit(contributor.prepare(value, rng))
        garbage = [rng.bytes(task.sealed_report_bytes), *line.reports(number - 1)]
        await line.submit(envelope(line.signed, rng.bytes(SUBMISSION_ID_BYTES), garbage))
        [own] = line.mechanism.randomize(np.zeros(1, dtype=np.int64), rng)
        copies = sealed_reports(line.signed, [own.tobytes()] * number)
        await line.submit(envelope(line.signed, rng.bytes(SUBMISSION_ID_BYTES), copies))
        await line.shuffler.collection.close(line.digest)
        late = line.submit(line.crafted(number))
        checks.must("nothing is taken after the end", await refused(late, BatchStateError))
        await line.shuffler.deliveries.advance()
        result = await line.analyzer.result(line.digest)
    checks.must("all who answered count", result.n_users == n_people + 2)
    lost = result.refused["unreadable"]
    # A shuffler that samples may have dropped it.
    expected = {1} if task.shuffler.kept == 1 else {0, 1}
    checks.must("what does not open is told with the result", lost in expected)
    checks.must(
        "and nothing else is lost by it", result.refused == NONE_REFUSED | {"unreadable": lost}
    )
    rows = [
        _row(
            checks,
            "a report that does not open, among others; a submission after the end",
            "Who sends what cannot be read spoils their own reports only, and the result tells "
            "how many were refused.",
        )
    ]
    if number > 1:
        unseen.must("no copy is refused", result.refused["repeated"] == 0)
        rows.append(
            known_limit(
                _row(
                    unseen,
                    "dummies that are copies of the own report",
                    "Nobody notices users who leave their dummies out, or send others than the "
                    "task says; the guarantee holds for the share of users assumed honest.",
                    advice="State a smaller assumed_honest_fraction, or let the shuffler make the "
                    "dummies.",
                )
            )
        )
    return tuple(rows)


def _row(checks: Checks, title: str, sentence: str, *, advice: str = "") -> Finding:
    return checks.finding(
        scenario=_SCENARIO,
        title=title,
        heading="sender disruption",
        coalition=_WHO,
        sentence=sentence,
        advice=advice,
    )
