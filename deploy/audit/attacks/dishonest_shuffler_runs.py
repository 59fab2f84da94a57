"""Runs with a dishonest shuffler: what devices, sentinels and the analyzer notice."""

import asyncio
import logging
import math
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import wraps
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
from deploy.audit.attacks.detection_rates import IN_ORDER, sentinel_rate
from deploy.audit.attacks.poisoning import known_limit
from deploy.audit.checks import Checks
from deploy.audit.finding import Finding, Findings
from deploy.audit.harness.analyzer_core import chunks_of
from deploy.audit.harness.dishonest_shuffler import (
    Tampering,
    drops,
    duplicates,
    makes_up,
    shuffles,
)
from deploy.audit.harness.in_process_run import InProcessRun
from deploy.audit.harness.tasks import reduced_draft
from deploy.audit.subject import AuditSubject
from deploy.results.verification import check_guarantees
from user_agent.evidence import InclusionState

Rows = tuple[Finding, ...]
Delivering = Callable[[InProcessRun, BatchManifest, list[bytes]], Awaitable[object]]

_MOST_REPORTS: Final = 2500
"""Sealed reports of one batch: half a second of sealing and opening."""
_SIZES: Final = (16, 64, 256)
_MORE: Final = 6
"""People beyond n_min, so that some can be dropped."""
_SENTINELS: Final = IN_ORDER
_VICTIM: Final = 3
_MADE_UP: Final = 5
_CHECKING: Final = 0.05
_REFUSED_SHARE: Final = 0.05
"""The analyzer's default limit on refused reports."""
_SECOND, _OTHER = BatchId(b"s" * 16), BatchId(b"o" * 16)
_UNSUSPECTED: Final = "the batch is released and no figure gives it away"


def _on_reduced_task(
    attack: Callable[..., Coroutine[Any, Any, Rows]],
) -> Callable[..., Findings]:
    """Run an attack on a reduced task; without findings if no small batch has a finite claim."""

    @wraps(attack)
    def scenario(subject: AuditSubject, rng: np.random.Generator, **options: object) -> Findings:
        wanted = reduced_draft(subject.task_bytes, most_reports=_MOST_REPORTS, n_users=_SIZES)
        if wanted is None:
            return Findings(findings=())
        with _silent():
            return Findings(findings=asyncio.run(attack(wanted, rng, **options)))

    return scenario


@_on_reduced_task
async def honest(
    wanted: TaskDraft, rng: np.random.Generator, *, tampering: Tampering = shuffles
) -> Rows:
    """Run an honest shuffler: everybody is counted and nobody raises an alarm."""
    checks, n = Checks(), wanted.n_min + _MORE
    async with _collection(wanted, rng, sentinels=_SENTINELS) as parties:
        await parties.shuffler.deliver(tampering)
        result, seen = await _released(parties), await _conclusions(parties)
        kept = parties.analyzer.task.shuffler.kept
    checks.must("the batch is released and no report is refused", _unsuspicious(result))
    if result is not None:
        checks.must("sentinels do not count as users", result.n_users == n)
        checks.must("the analyzer knows every sentinel", result.n_sentinels == _SENTINELS)
        checks.must("none is missing", kept < 1 or result.n_sentinels_missing == 0)
    expected = InclusionState.COUNTED if kept == 1 else InclusionState.SAMPLED
    checks.must("no device raises an alarm", seen == {expected: n})
    finding = checks.finding(
        scenario="honest-shuffler",
        title=f"An honest shuffler, {n} people, {_SENTINELS} sentinels",
        heading="correctness",
        sentence="Where the shuffler is honest everybody is counted and nobody raises an alarm.",
    )
    return (finding,)


def losing(
    subject: AuditSubject,
    rng: np.random.Generator,
    *,
    scenario: str = "shuffler-drops",
    word: str = "dropped",
    lose: Callable[[int], Tampering] = drops,
    attentive: bool = True,
) -> Findings:
    """
    Lose a person, then a sentinel.

    Args:
        subject: The task.
        rng: Draws values, reports and orders.
        scenario: Its name.
        word: For the titles.
        lose: Drops one submission, or replaces it.
        attentive: Devices check, and the analyzer knows the sentinels.
    """
    findings = _lost(subject, rng, scenario=scenario, word=word, lose=lose, attentive=attentive)
    rate = sentinel_rate(scenario, subject, rng, planted=attentive)
    return Findings(findings=(*findings.findings, rate))


@_on_reduced_task
async def _lost(
    wanted: TaskDraft,
    rng: np.random.Generator,
    *,
    scenario: str,
    word: str,
    lose: Callable[[int], Tampering],
    attentive: bool,
) -> Rows:
    checks, unseen, n = Checks(), Checks(), wanted.n_min + _MORE
    async with _collection(wanted, rng) as parties:
        await parties.shuffler.deliver(lose(_VICTIM))
        result = await _released(parties)
        parties.shuffler.forges = True
        shown = await _conclusions(parties, attentive=attentive)
        parties.shuffler.forges = False
        seen = await _conclusions(parties, attentive=attentive)
        sampled = parties.analyzer.task.shuffler.kept < 1
    unseen.must(_UNSUSPECTED, _unsuspicious(result))
    if sampled:
        return (
            _unnoticed(
                unseen,
                scenario,
                f"One person {word}; the task lets the shuffler drop reports",
                sentence="Where the task lets the shuffler drop reports, no device can tell "
                "that its own was lost on purpose.",
            ),
        )
    forged = shown == {InclusionState.UNCHECKED: n}
    checks.must("no device accepts a proof that the shuffler signed", forged)
    checks.must(
        "the device concerned has proof, and all others are counted",
        seen == {InclusionState.MISSING: 1, InclusionState.COUNTED: n - 1},
    )
    async with _collection(wanted, rng, sentinels=_SENTINELS) as parties:
        await parties.shuffler.deliver(lose(n + _VICTIM))
        held_back = await _released(parties) is None
    checks.must("a batch that lacks a sentinel is not released", held_back)
    rate = -math.expm1(20 * math.log1p(-_CHECKING))
    return (
        _noticed(
            checks,
            scenario,
            f"One person {word}, whose device checks; one sentinel {word}",
            sentence="The person's own device has signed proof of the loss, and the analyzer "
            "does not release a batch that lacks a sentinel. Where "
            f"{_CHECKING:.0%} of the devices check, the loss of 20 people is noticed with "
            f"probability {rate:.0%}.",
        ),
        _unnoticed(
            unseen,
            scenario,
            f"One person {word}, whose device does not check, and no sentinels",
            sentence="Where no device checks and no sentinel is planted, the loss goes unnoticed.",
        ),
    )


@_on_reduced_task
async def duplicating(
    wanted: TaskDraft, rng: np.random.Generator, *, tolerant: bool = False
) -> Rows:
    """Put copies of a person's reports in others' places. `tolerant`: the analyzer ignores them."""
    checks, share = Checks(), 1.0 if tolerant else _REFUSED_SHARE
    for times in (1, wanted.n_min + _MORE - 1):
        async with _collection(wanted, rng, most_refused_share=share) as parties:
            await parties.shuffler.deliver(duplicates(0, times=times))
            result, seen = await _released(parties), await _conclusions(parties)
            delivered, task = parties.shuffler.delivered, parties.analyzer.task
        copies = len(delivered) - len(set(delivered))
        if copies > _REFUSED_SHARE * len(delivered):
            checks.must("a batch of many copies is not released", result is None)
            continue
        told = {} if result is None or tolerant else dict(result.refused)
        reported = told == {"repeated": copies, "unreadable": 0, "malformed": 0}
        checks.must("copies are dropped and reported with the result", reported)
        if task.shuffler.kept == 1:
            missing = seen[InclusionState.MISSING]
            checks.must("the devices that were displaced have proof", missing == times)
    return (
        _noticed(
            checks,
            "shuffler-duplicates",
            "One person's submission in the place of another's, and of everybody's",
            sentence="A report counts once however often it comes, its copies are reported "
            "with the result, and a batch of many copies is not released.",
        ),
    )


async def deliver(run: InProcessRun, manifest: BatchManifest, reports: list[bytes]) -> object:
    """Deliver a batch to the analyzer, and wait until it has judged it."""
    taken = await run.analyzer.releases.deliver(manifest, chunks_of(reports, 100))
    await run.analyzer.settle()
    return taken


async def deliver_without_errors(
    run: InProcessRun, manifest: BatchManifest, reports: list[bytes]
) -> object:
    """Deliver to an analyzer that reports no refusal: a weakness that the audit must notice."""
    with suppress(WireError, ConflictError):
        return await deliver(run, manifest, reports)
    return None


@_on_reduced_task
async def replaying(
    wanted: TaskDraft, rng: np.random.Generator, *, delivering: Delivering = deliver
) -> Rows:
    """Deliver a batch again: for its own task, as another batch, and for another task."""
    checks, n = Checks(), wanted.n_min + _MORE
    async with _collection(wanted, rng) as parties:
        shuffler, store = parties.shuffler, parties.analyzer.store
        await shuffler.deliver(shuffles)
        first, reports = await store.result(parties.digest), shuffler.delivered
        whole = shuffler.manifest(n, len(reports))
        await delivering(parties, whole, reports)
        same = first is not None and first == await store.result(parties.digest)
        checks.must("the same batch again changes nothing", same)
        _, most = parties.analyzer.task.batch_reports(n + 1)
        for what, manifest in (
            ("the same batch under another manifest", shuffler.manifest(n + 1, most)),
            ("a second batch of a task", shuffler.manifest(n, len(reports), _SECOND)),
        ):
            refused = await _refused(delivering(parties, manifest, reports), ConflictError)
            checks.must(f"{what} is refused", refused)
        await parties.publish(wanted)
        await delivering(parties, shuffler.manifest(n, len(reports), _OTHER), reports)
        other = await store.result(parties.analyzer.signed.digest())
        checks.must("no other task counts its reports", other is None)
        checks.must("the ledger is charged once", len(await store.ledger(0)) == 1)
    return (
        _noticed(
            checks,
            "shuffler-replays",
            "A batch again, as another batch, and for another task",
            sentence="A batch counts once, and for its own task only, however often it is "
            "delivered.",
        ),
    )


@_on_reduced_task
async def injecting(
    wanted: TaskDraft, rng: np.random.Generator, *, delivering: Delivering = deliver
) -> Rows:
    """Announce wrong numbers, and make users up."""
    scenario = "shuffler-injects"
    checks, unseen, n = Checks(), Checks(), wanted.n_min + _MORE
    async with _collection(wanted, rng) as parties:
        shuffler = parties.shuffler
        least, most = parties.analyzer.task.batch_reports(n)
        _, reports = shuffler.batch(shuffles)
        crowded = reports + reports[:1] * (most + 1 - len(reports))
        for what, announced, sent in (
            ("more reports than belong to the users", most + 1, crowded),
            ("more reports than announced", most, crowded),
            ("fewer reports than belong to the users", least - 1, reports[: least - 1]),
            ("fewer reports than announced", least, reports[: least - 1]),
        ):
            call = delivering(parties, shuffler.manifest(n, announced), sent)
            checks.must(f"{what} are refused", await _refused(call, WireError))
        checks.must("nothing is charged", not await parties.analyzer.store.ledger(0))
    async with _collection(wanted, rng) as parties:
        await parties.shuffler.deliver(makes_up(_MADE_UP))
        result = await _released(parties)
    unseen.must(_UNSUSPECTED, _unsuspicious(result))
    n_users = 0 if result is None else result.n_users
    unseen.must("made-up users count", n_users == n + _MADE_UP)
    return (
        _noticed(
            checks,
            scenario,
            "More or fewer reports than belong to the users",
            sentence="The analyzer takes exactly as many reports as were announced and belong "
            "to the users.",
        ),
        _unnoticed(
            unseen,
            scenario,
            f"{_MADE_UP} users made up beside {n} people",
            sentence="Users whom the shuffler makes up go unnoticed, and the guarantee against "
            "the analyzer takes them for honest ones.",
            expected=float(n + _MADE_UP),
            measured=float(n_users),
        ),
    )


@_on_reduced_task
async def closing_early(
    wanted: TaskDraft, rng: np.random.Generator, *, delivering: Delivering = deliver
) -> Rows:
    """Close a batch below n_min; then at n_min, though more people have submitted."""
    scenario = "shuffler-closes-early"
    checks, unseen, n_min = Checks(), Checks(), wanted.n_min
    async with _collection(wanted, rng) as parties:
        shuffler, task = parties.shuffler, parties.analyzer.task
        manifest, reports = shuffler.batch(drops(*range(n_min - 1, n_min + _MORE)))
        refused = await _refused(delivering(parties, manifest, reports), WireError)
        checks.must("a batch of one user fewer than n_min is refused", refused)
        if len(reports) < task.batch_reports(n_min)[0]:
            call = delivering(parties, shuffler.manifest(n_min, len(reports)), reports)
            refused = await _refused(call, WireError)
            checks.must("so is one that claims n_min users without their reports", refused)
        checks.must("nothing is charged", not await parties.analyzer.store.ledger(0))
        seen = await _conclusions(parties)
    checks.must("no device concludes that it was counted", InclusionState.COUNTED not in seen)
    async with _collection(wanted, rng) as parties:
        await parties.shuffler.deliver(drops(*range(n_min, n_min + _MORE)))
        parties.shuffler.closed = True
        late = parties.agent.contribute(parties.digest, 0, "a late person")
        checks.must("a late device is told so", await _refused(late, BatchStateError))
        result, seen = await _released(parties), await _conclusions(parties)
    if task.shuffler.kept == 1:
        cut_off = {InclusionState.COUNTED: n_min, InclusionState.MISSING: _MORE}
        checks.must("devices that were cut off after their receipt have proof", seen == cut_off)
    unseen.must(_UNSUSPECTED, _unsuspicious(result))
    n_users = 0 if result is None else result.n_users
    unseen.must("the result counts the users that came", n_users == n_min)
    if result is not None:
        check_guarantees(result, task)
    return (
        _noticed(
            checks,
            scenario,
            f"Closed with {n_min - 1} users where n_min is {n_min}; closed on people who "
            "had submitted",
            sentence="The analyzer refuses a batch below n_min and charges nothing; devices "
            "that were cut off after their receipt have proof.",
        ),
        _unnoticed(
            unseen,
            scenario,
            f"Closed at n_min, {n_min} users, where more would have come",
            sentence="A shuffler may close as soon as n_min users have submitted; the result's "
            "guarantees are those of the users that came.",
            expected=float(n_min),
            measured=float(n_users),
        ),
    )


@asynccontextmanager
async def _collection(
    wanted: TaskDraft,
    rng: np.random.Generator,
    *,
    sentinels: int = 0,
    most_refused_share: float = _REFUSED_SHARE,
) -> AsyncIterator[InProcessRun]:
    """Start the parties, let people submit, and plant sentinels."""
    with tempfile.TemporaryDirectory(prefix="shuffledp-audit-") as folder:
        parties = InProcessRun(Path(folder), seed=int(rng.integers(2**63)))
        parties.analyzer.most_refused_share = most_refused_share
        await parties.start(wanted)
        try:
            values = rng.integers(0, wanted.domain_size, wanted.n_min + _MORE)
            await parties.contribute(values.tolist())
            if sentinels:
                await parties.plant(sentinels)
            yield parties
        finally:
            await parties.stop()


@contextmanager
def _silent() -> Iterator[None]:
    """Keep the parties' log of an attack off the operator's screen."""
    logger = logging.getLogger("shuffledp")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


async def _released(parties: InProcessRun) -> Result | None:
    try:
        return await parties.result()
    except UnusableBatchError:
        return None


async def _conclusions(parties: InProcessRun, *, attentive: bool = True) -> Counter[InclusionState]:
    n_people = len(parties.shuffler.users) - parties.n_sentinels
    return Counter(await parties.inclusions(n_people) if attentive else [])


async def _refused(call: Awaitable[object], cause: type[ShuffleDpError]) -> bool:
    """Return whether a call is refused for this cause."""
    try:
        await call
    except cause:
        return True
    except ShuffleDpError:
        return False
    return False


def _unsuspicious(result: Result | None) -> bool:
    """Return whether a batch was released without any refused report."""
    return result is not None and not any(result.refused.values())


def _noticed(checks: Checks, scenario: str, title: str, **fields: Any) -> Finding:  # noqa: ANN401  # of a finding
    """Return the finding of an attack that a defence notices."""
    return checks.finding(
        scenario=scenario,
        title=title,
        heading="server disruption",
        coalition="shuffler",
        **fields,
    )


def _unnoticed(checks: Checks, scenario: str, title: str, **fields: Any) -> Finding:  # noqa: ANN401  # of a finding
    """Return the finding of an attack that nothing notices."""
    return known_limit(_noticed(checks, scenario, title, **fields))
