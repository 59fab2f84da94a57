"""Attacks by a dishonest shuffler, and their detection by devices, sentinels and the analyzer."""

import asyncio
import logging
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from common.errors import (
    BatchStateError,
    ConflictError,
    ShuffleDpError,
    UnusableBatchError,
    WireError,
)
from common.messages.batch import BatchId, BatchManifest
from common.messages.result import Result
from common.task.draft import TaskDraft
from deploy.audit.attacks.detection_rates import IN_ORDER, Loss, keeping_the_order, sentinel_rate
from deploy.audit.finding import Checks, Finding, Rows
from deploy.audit.harness.analyzer_core import chunks_of
from deploy.audit.harness.in_process_run import (
    InProcessRun,
    Tampering,
    drops,
    duplicates,
    invents,
    replaces,
    shuffles,
)
from deploy.audit.harness.tasks import reduced_draft
from deploy.audit.scenario import AuditSubject, Scenario
from deploy.results.verification import check_guarantees
from user_agent.device_store import InclusionState

Delivering = Callable[[InProcessRun, BatchManifest, list[bytes]], Awaitable[object]]

_MAX_REPORTS: Final = 2500
"""Maximum number of sealed reports in a batch: half a second of sealing and opening."""
_SIZES: Final = (16, 64, 256)
_BEYOND_N_MIN: Final = 6
"""People beyond n_min, so that some can be dropped."""
_VICTIM: Final = 3
_INVENTED: Final = 5
_REFUSED_SHARE: Final = 0.05
"""The analyzer's default maximum share of refused reports."""
_SECOND, _OTHER = BatchId(b"s" * 16), BatchId(b"o" * 16)


@dataclass(frozen=True, slots=True)
class _Outcome:
    """The result (None for a rejected batch), the devices' conclusions, and delivered reports."""

    result: Result | None
    seen: Counter[InclusionState]
    delivered: list[bytes]

    @property
    def n_users(self) -> int:
        """Number of users in the result; 0 if there is no result."""
        return 0 if self.result is None else self.result.n_users

    @property
    def unsuspicious(self) -> bool:
        """Whether the batch was released with no report refused."""
        return self.result is not None and not any(self.result.refused.values())


async def _outcome(parties: InProcessRun) -> _Outcome:
    """Wait for the result and for every device's conclusion."""
    try:
        result = await parties.analyzer.releases.result(parties.digest)
    except UnusableBatchError:
        result = None
    n_people = len(parties.shuffler.users) - parties.n_sentinels
    seen = Counter(await parties.inclusions(n_people))
    return _Outcome(result, seen, parties.shuffler.delivered)


class _Attack:
    """An attack on collections of one task, with checks of what is detected and what is not."""

    def __init__(self, wanted: TaskDraft, rng: np.random.Generator) -> None:
        self.wanted = wanted
        self.rng = rng
        self.checks, self.unseen = Checks(), Checks()
        self.n_people = wanted.n_min + _BEYOND_N_MIN
        self.samples = wanted.shuffler.keep_probability < 1
        """Whether the task lets the shuffler drop reports."""

    @asynccontextmanager
    async def collection(
        self, *, sentinels: int = 0, most_refused_share: float = _REFUSED_SHARE
    ) -> AsyncIterator[InProcessRun]:
        """Yield running parties, after people have submitted and sentinels are planted."""
        with tempfile.TemporaryDirectory(prefix="shuffledp-audit-") as folder:
            parties = InProcessRun(Path(folder), seed=int(self.rng.integers(2**63)))
            parties.analyzer.most_refused_share = most_refused_share
            await parties.start(self.wanted)
            try:
                values = self.rng.integers(0, self.wanted.domain_size, self.n_people)
                await parties.contribute(values.tolist())
                if sentinels:
                    await parties.plant(sentinels)
                yield parties
            finally:
                await parties.stop()

    async def run(self, tampering: Tampering, **options: Any) -> _Outcome:  # noqa: ANN401  # of `collection`
        """Run one collection whose batch is tampered with."""
        async with self.collection(**options) as parties:
            await parties.shuffler.deliver(tampering)
            return await _outcome(parties)

    def released(self, outcome: _Outcome) -> None:
        """Check that the attack is not detected."""
        self.unseen.must(
            "the batch is released and no figure reveals the attack", outcome.unsuspicious
        )

    async def refuses(
        self, what: str, call: Awaitable[object], cause: type[ShuffleDpError]
    ) -> None:
        """Check that a call fails with an error of the class `cause`."""
        refused = False
        try:
            await call
        except ShuffleDpError as error:
            refused = isinstance(error, cause)
        self.checks.must(what, refused)

    def finding(self, title: str, sentence: str, **fields: Any) -> Finding:  # noqa: ANN401  # of a finding
        """Return the finding of a detected attack or, with `known_limit`, of an undetected one."""
        checks = self.unseen if fields.get("known_limit") else self.checks
        plain = {"heading": "server disruption", "coalition": "shuffler"}
        return checks.finding(title=title, sentence=sentence, **plain | fields)


def _run(
    attack: Callable[..., Coroutine[Any, Any, Rows]],
    subject: AuditSubject,
    rng: np.random.Generator,
    **options: object,
) -> Rows:
    """Run an attack on a reduced task; no findings if no small batch has a finite claim."""
    wanted = reduced_draft(subject.task_bytes, most_reports=_MAX_REPORTS, n_users=_SIZES)
    if wanted is None:
        return ()
    logger = logging.getLogger("shuffledp")
    before, logger.disabled = logger.disabled, True  # keep the services' logs off the terminal
    try:
        return asyncio.run(attack(_Attack(wanted, rng), **options))
    finally:
        logger.disabled = before


async def _honest(attack: _Attack, *, tampering: Tampering = shuffles) -> Rows:
    """Run an honest shuffler: every user is counted and nothing raises an alarm."""
    checks, n, sampled = attack.checks, attack.n_people, attack.samples
    outcome = await attack.run(tampering, sentinels=IN_ORDER)
    checks.must("the batch is released and no report is refused", outcome.unsuspicious)
    if outcome.result is not None:
        checks.must("sentinels do not count as users", outcome.n_users == n)
        checks.must("the analyzer knows every sentinel", outcome.result.n_sentinels == IN_ORDER)
        checks.must("none is missing", sampled or outcome.result.n_sentinels_missing == 0)
    expected = InclusionState.SAMPLED if sampled else InclusionState.COUNTED
    checks.must("no device raises an alarm", outcome.seen == {expected: n})
    finding = attack.finding(
        f"An honest shuffler, {n} people, {IN_ORDER} sentinels",
        "With an honest shuffler, every user is counted and nothing raises an alarm.",
        heading="correctness",
        coalition="nobody",
    )
    return (finding,)


def _losing(
    subject: AuditSubject, rng: np.random.Generator, *, loss: Loss, attentive: bool = True
) -> Rows:
    """
    Lose a person's submission, then a sentinel, then many submissions.

    `attentive`: devices check for their answers, and the analyzer knows the sentinels.
    """
    rows = _run(_lost, subject, rng, loss=loss, attentive=attentive)
    return (*rows, sentinel_rate(subject, rng, loss=loss, planted=attentive))


async def _lost(attack: _Attack, *, loss: Loss, attentive: bool) -> Rows:
    """Lose a person's submission, then a sentinel, in two collections."""
    n, nothing = attack.n_people, Counter[InclusionState]()
    lose: Callable[[int], Tampering] = drops if loss == "dropped" else replaces
    async with attack.collection() as parties:
        await parties.shuffler.deliver(lose(_VICTIM))
        parties.shuffler.forges = True
        forged = (await _outcome(parties)).seen if attentive else nothing
        parties.shuffler.forges = False
        outcome = await _outcome(parties)
    seen = outcome.seen if attentive else nothing
    attack.released(outcome)
    if attack.samples:
        return (
            attack.finding(
                f"One person {loss}; the task lets the shuffler drop reports",
                "Where the task lets the shuffler drop reports, no device can tell that its own "
                "was lost on purpose.",
                known_limit=True,
            ),
        )
    attack.checks.must(
        "no device accepts a proof that the shuffler signed",
        forged == {InclusionState.UNCHECKED: n},
    )
    attack.checks.must(
        "the victim's device has proof, and all others are counted",
        seen == {InclusionState.MISSING: 1, InclusionState.COUNTED: n - 1},
    )
    held_back = (await attack.run(lose(n + _VICTIM), sentinels=IN_ORDER)).result is None
    attack.checks.must("a batch that lacks a sentinel is not released", held_back)
    return (
        attack.finding(
            f"One person {loss}, whose device checks; one sentinel {loss}",
            "The person's own device has signed proof of the loss, and the analyzer does not "
            "release a batch that lacks a sentinel.",
        ),
        attack.finding(
            f"One person {loss}, whose device does not check, and no sentinels",
            "If no device checks and no sentinel is planted, the loss is not detected.",
            known_limit=True,
        ),
    )


async def _duplicating(attack: _Attack, *, tolerant: bool = False) -> Rows:
    """
    Replace one user's reports, then all other users', by copies of a user's reports.

    `tolerant`: the analyzer accepts copies.
    """
    checks, share = attack.checks, 1.0 if tolerant else _REFUSED_SHARE
    for times in (1, attack.n_people - 1):
        outcome = await attack.run(duplicates(0, times=times), most_refused_share=share)
        copies = len(outcome.delivered) - len(set(outcome.delivered))
        if copies > _REFUSED_SHARE * len(outcome.delivered):
            checks.must("a batch of many copies is not released", outcome.result is None)
            continue
        counted = {} if outcome.result is None or tolerant else dict(outcome.result.refused)
        reported = counted == {"repeated": copies, "unreadable": 0, "malformed": 0}
        checks.must("copies are dropped and reported with the result", reported)
        proven = attack.samples or outcome.seen[InclusionState.MISSING] == times
        checks.must("the devices whose reports were replaced have proof", proven)
    return (
        attack.finding(
            "One person's submission in place of another's, and in place of everybody's",
            "Each report counts once; its copies are reported with the result, and a batch of many "
            "copies is not released.",
        ),
    )


async def deliver(run: InProcessRun, manifest: BatchManifest, reports: list[bytes]) -> object:
    """Deliver a batch, wait until it is released or rejected, and return the commitment."""
    taken = await run.analyzer.releases.deliver(manifest, chunks_of(reports, 100))
    await run.analyzer.settle()
    return taken


async def deliver_without_errors(
    run: InProcessRun, manifest: BatchManifest, reports: list[bytes]
) -> object:
    """Deliver a batch as `deliver` does; return None if the analyzer refuses it."""
    with suppress(WireError, ConflictError):
        return await deliver(run, manifest, reports)
    return None


async def _replaying(attack: _Attack, *, delivering: Delivering = deliver) -> Rows:
    """Deliver a batch again: unchanged, as another batch, and for another task."""
    checks, n = attack.checks, attack.n_people
    async with attack.collection() as parties:
        shuffler, store = parties.shuffler, parties.analyzer.store
        await shuffler.deliver(shuffles)
        first, reports = await store.result(parties.digest), shuffler.delivered
        await delivering(parties, shuffler.manifest(n, len(reports)), reports)
        same = first is not None and first == await store.result(parties.digest)
        checks.must("a repeated delivery changes nothing", same)
        _, most = parties.analyzer.task.batch_reports(n + 1)
        for what, manifest in (
            ("the same batch under another manifest", shuffler.manifest(n + 1, most)),
            ("a second batch of a task", shuffler.manifest(n, len(reports), _SECOND)),
        ):
            call = delivering(parties, manifest, reports)
            await attack.refuses(f"{what} is refused", call, ConflictError)
        await parties.publish(attack.wanted)
        await delivering(parties, shuffler.manifest(n, len(reports), _OTHER), reports)
        other = await store.result(parties.analyzer.signed.digest())
        checks.must("no other task counts its reports", other is None)
        checks.must("the ledger is charged once", len(await store.ledger(0)) == 1)
    return (
        attack.finding(
            "A batch delivered again, as another batch, and for another task",
            "A batch delivered repeatedly counts once, and only for its own task.",
        ),
    )


async def _injecting(attack: _Attack, *, delivering: Delivering = deliver) -> Rows:
    """Deliver more or fewer reports than announced or allowed; then invent users."""
    n = attack.n_people
    async with attack.collection() as parties:
        shuffler = parties.shuffler
        least, most = parties.analyzer.task.batch_reports(n)
        _, reports = shuffler.batch(shuffles)
        excess = reports + reports[:1] * (most + 1 - len(reports))
        for what, announced, sent in (
            ("more reports than belong to the users", most + 1, excess),
            ("more reports than announced", most, excess),
            ("fewer reports than belong to the users", least - 1, reports[: least - 1]),
            ("fewer reports than announced", least, reports[: least - 1]),
        ):
            call = delivering(parties, shuffler.manifest(n, announced), sent)
            await attack.refuses(f"{what} are refused", call, WireError)
        attack.checks.must("nothing is charged", not await parties.analyzer.store.ledger(0))
    outcome = await attack.run(invents(_INVENTED))
    attack.released(outcome)
    attack.unseen.must("invented users count", outcome.n_users == n + _INVENTED)
    return (
        attack.finding(
            "More or fewer reports than belong to the users",
            "The analyzer takes exactly the announced number of reports, if it fits the users.",
        ),
        attack.finding(
            f"{_INVENTED} invented users added to {n} people",
            "Users whom the shuffler invents are not detected, and the guarantee against the "
            "analyzer counts them as honest.",
            expected=float(n + _INVENTED),
            measured=float(outcome.n_users),
            known_limit=True,
        ),
    )


async def _closing_early(attack: _Attack, *, delivering: Delivering = deliver) -> Rows:
    """Close a batch below n_min; then at n_min, cutting off people who have submitted."""
    checks, n_min = attack.checks, attack.wanted.n_min
    async with attack.collection() as parties:
        manifest, reports = parties.shuffler.batch(drops(*range(n_min - 1, attack.n_people)))
        call = delivering(parties, manifest, reports)
        await attack.refuses("a batch of one user fewer than n_min is refused", call, WireError)
        checks.must("nothing is charged", not await parties.analyzer.store.ledger(0))
        counted = InclusionState.COUNTED in await parties.inclusions(attack.n_people)
    checks.must("no device concludes that it was counted", not counted)
    async with attack.collection() as parties:
        await parties.shuffler.deliver(drops(*range(n_min, attack.n_people)))
        parties.shuffler.closed = True
        late = parties.agent.contribute(parties.digest, 0, "a late person")
        await attack.refuses("a late submission is refused", late, BatchStateError)
        outcome = await _outcome(parties)
    cut_off = outcome.seen == {InclusionState.COUNTED: n_min, InclusionState.MISSING: _BEYOND_N_MIN}
    proven = attack.samples or cut_off
    checks.must("devices that were cut off after their receipt have proof", proven)
    attack.released(outcome)
    attack.unseen.must("the result counts the users in the batch", outcome.n_users == n_min)
    if outcome.result is not None:
        check_guarantees(outcome.result, parties.analyzer.task)
    return (
        attack.finding(
            f"Closed with {n_min - 1} users, one below n_min; closed without people who had "
            "submitted",
            "The analyzer refuses a batch below n_min and charges nothing; devices that were cut "
            "off after their receipt have proof.",
        ),
        attack.finding(
            f"Closed at n_min, {n_min} users, before more could submit",
            "A shuffler may close as soon as n_min users have submitted; the result's guarantees "
            "are computed for the users it counts.",
            expected=float(n_min),
            measured=float(outcome.n_users),
            known_limit=True,
        ),
    )


_INATTENTIVE: Final = "No device checks for its answer, and the analyzer knows no sentinel."
_NO_ERRORS: Final = "The analyzer reports no error when it refuses a batch."

SCENARIOS: Final = (
    Scenario(
        name="honest-shuffler",
        title="An honest shuffler raises no alarm",
        check=partial(_run, _honest),
        weakness="The shuffler drops one submission.",
        broken={"tampering": drops(0)},
    ),
    Scenario(
        name="shuffler-drops",
        title="A shuffler that drops submissions",
        check=partial(_losing, loss="dropped"),
        weakness=_INATTENTIVE,
        broken={"attentive": False},
    ),
    Scenario(
        name="shuffler-replaces",
        title="A shuffler that replaces submissions with its own reports",
        check=partial(_losing, loss="replaced"),
        weakness=_INATTENTIVE,
        broken={"attentive": False},
    ),
    Scenario(
        name="shuffler-duplicates",
        title="A shuffler that delivers submissions twice",
        check=partial(_run, _duplicating),
        weakness="The analyzer tolerates copies, and does not report them.",
        broken={"tolerant": True},
    ),
    Scenario(
        name="shuffler-keeps-order",
        title="A shuffler that does not shuffle",
        check=keeping_the_order,
        weakness="The analyzer knows no sentinel.",
        broken={"planted": False},
    ),
    *(
        Scenario(
            name=name,
            title=title,
            check=partial(_run, attack),
            weakness=_NO_ERRORS,
            broken={"delivering": deliver_without_errors},
        )
        for name, title, attack in (
            ("shuffler-replays", "A shuffler that delivers a batch again", _replaying),
            (
                "shuffler-injects",
                "A shuffler that adds or omits reports, or invents users",
                _injecting,
            ),
            ("shuffler-closes-early", "A shuffler that closes a batch too early", _closing_early),
        )
    ),
)
