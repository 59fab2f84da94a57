"""Runs with a dishonest shuffler: what devices, sentinels and the analyzer notice."""

import asyncio
import logging
import math
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
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
from deploy.audit.finding import Checks, Finding, Findings
from deploy.audit.harness.analyzer_core import chunks_of
from deploy.audit.harness.dishonest_shuffler import (
    Tampering,
    drops,
    duplicates,
    makes_up,
    replaces,
    shuffles,
)
from deploy.audit.harness.in_process_run import InProcessRun
from deploy.audit.harness.tasks import reduced_draft
from deploy.audit.scenario import AuditSubject
from deploy.results.verification import check_guarantees
from user_agent.evidence import InclusionState

Rows = tuple[Finding, ...]
Delivering = Callable[[InProcessRun, BatchManifest, list[bytes]], Awaitable[object]]

_MAX_REPORTS: Final = 2500
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outcome:
    """The end of one collection."""

    result: Result | None
    """None where the analyzer rejects the batch."""
    seen: Counter[InclusionState]
    """Conclusions of the people's devices."""
    delivered: list[bytes]

    @property
    def unsuspicious(self) -> bool:
        """Whether the batch was released without any refused report."""
        return self.result is not None and not any(self.result.refused.values())


def _on_reduced_task(
    attack: Callable[..., Coroutine[Any, Any, Rows]],
) -> Callable[..., Findings]:
    """Run an attack on a reduced task; without findings if no small batch has a finite claim."""

    @wraps(attack)
    def scenario(subject: AuditSubject, rng: np.random.Generator, **options: object) -> Findings:
        wanted = reduced_draft(subject.task_bytes, most_reports=_MAX_REPORTS, n_users=_SIZES)
        if wanted is None:
            return Findings()
        logger = logging.getLogger("shuffledp")
        before, logger.disabled = logger.disabled, True  # keeps attacks off the operator's screen
        try:
            return Findings(asyncio.run(attack(wanted, rng, **options)))
        finally:
            logger.disabled = before

    return scenario


@_on_reduced_task
async def honest(
    wanted: TaskDraft, rng: np.random.Generator, *, tampering: Tampering = shuffles
) -> Rows:
    """Run an honest shuffler: everybody is counted and nobody raises an alarm."""
    checks, n, kept = Checks(), wanted.n_min + _MORE, wanted.shuffler.kept
    outcome = await _run(wanted, rng, tampering, sentinels=_SENTINELS)
    result = outcome.result
    checks.must("the batch is released and no report is refused", outcome.unsuspicious)
    if result is not None:
        checks.must("sentinels do not count as users", result.n_users == n)
        checks.must("the analyzer knows every sentinel", result.n_sentinels == _SENTINELS)
        checks.must("none is missing", kept < 1 or result.n_sentinels_missing == 0)
    expected = InclusionState.COUNTED if kept == 1 else InclusionState.SAMPLED
    checks.must("no device raises an alarm", outcome.seen == {expected: n})
    finding = checks.finding(
        scenario="honest-shuffler",
        title=f"An honest shuffler, {n} people, {_SENTINELS} sentinels",
        heading="correctness",
        sentence="Where the shuffler is honest everybody is counted and nobody raises an alarm.",
    )
    return (finding,)


def dropping(
    subject: AuditSubject, rng: np.random.Generator, *, attentive: bool = True
) -> Findings:
    """Drop a person, then a sentinel. `attentive`: devices check, and sentinels are known."""
    return _losing(subject, rng, attentive, ("shuffler-drops", "dropped", drops))


def replacing(
    subject: AuditSubject, rng: np.random.Generator, *, attentive: bool = True
) -> Findings:
    """Replace a person, then a sentinel. `attentive`: as for `dropping`."""
    return _losing(subject, rng, attentive, ("shuffler-replaces", "replaced", replaces))


def _losing(
    subject: AuditSubject,
    rng: np.random.Generator,
    attentive: bool,  # noqa: FBT001
    loss: tuple[str, str, Callable[[int], Tampering]],
) -> Findings:
    """Lose submissions; `loss`: the scenario, a word for its titles, and how one is lost."""
    findings = _lost(subject, rng, attentive=attentive, loss=loss).findings
    rate = sentinel_rate(loss[0], subject, rng, planted=attentive)
    return Findings((*findings, rate))


@_on_reduced_task
async def _lost(
    wanted: TaskDraft,
    rng: np.random.Generator,
    *,
    attentive: bool,
    loss: tuple[str, str, Callable[[int], Tampering]],
) -> Rows:
    checks, unseen, n, (scenario, word, lose) = Checks(), Checks(), wanted.n_min + _MORE, loss
    async with _collection(wanted, rng) as parties:
        await parties.shuffler.deliver(lose(_VICTIM))
        parties.shuffler.forges = True
        shown = await _conclusions(parties) if attentive else Counter()
        parties.shuffler.forges = False
        outcome = await _outcome(parties)
    seen = outcome.seen if attentive else Counter()
    unseen.must(_UNSUSPECTED, outcome.unsuspicious)
    if wanted.shuffler.kept < 1:
        return (
            _finding(
                unseen,
                scenario,
                f"One person {word}; the task lets the shuffler drop reports",
                known_limit=True,
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
    with_sentinels = await _run(wanted, rng, lose(n + _VICTIM), sentinels=_SENTINELS)
    held_back = with_sentinels.result is None
    checks.must("a batch that lacks a sentinel is not released", held_back)
    rate = -math.expm1(20 * math.log1p(-_CHECKING))
    return (
        _finding(
            checks,
            scenario,
            f"One person {word}, whose device checks; one sentinel {word}",
            sentence="The person's own device has signed proof of the loss, and the analyzer "
            "does not release a batch that lacks a sentinel. Where "
            f"{_CHECKING:.0%} of the devices check, the loss of 20 people is noticed with "
            f"probability {rate:.0%}.",
        ),
        _finding(
            unseen,
            scenario,
            f"One person {word}, whose device does not check, and no sentinels",
            known_limit=True,
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
        tampering = duplicates(0, times=times)
        outcome = await _run(wanted, rng, tampering, most_refused_share=share)
        copies = len(outcome.delivered) - len(set(outcome.delivered))
        if copies > _REFUSED_SHARE * len(outcome.delivered):
            checks.must("a batch of many copies is not released", outcome.result is None)
            continue
        told = {} if outcome.result is None or tolerant else dict(outcome.result.refused)
        reported = told == {"repeated": copies, "unreadable": 0, "malformed": 0}
        checks.must("copies are dropped and reported with the result", reported)
        if wanted.shuffler.kept == 1:
            missing = outcome.seen[InclusionState.MISSING]
            checks.must("the devices that were displaced have proof", missing == times)
    return (
        _finding(
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
    """Deliver to an analyzer that reports no refusal."""
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
        _finding(
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
    outcome = await _run(wanted, rng, makes_up(_MADE_UP))
    unseen.must(_UNSUSPECTED, outcome.unsuspicious)
    n_users = 0 if outcome.result is None else outcome.result.n_users
    unseen.must("made-up users count", n_users == n + _MADE_UP)
    return (
        _finding(
            checks,
            scenario,
            "More or fewer reports than belong to the users",
            sentence="The analyzer takes exactly as many reports as were announced and belong "
            "to the users.",
        ),
        _finding(
            unseen,
            scenario,
            f"{_MADE_UP} users made up beside {n} people",
            known_limit=True,
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
        outcome = await _outcome(parties)
    if task.shuffler.kept == 1:
        cut_off = outcome.seen == {InclusionState.COUNTED: n_min, InclusionState.MISSING: _MORE}
        checks.must("devices that were cut off after their receipt have proof", cut_off)
    unseen.must(_UNSUSPECTED, outcome.unsuspicious)
    n_users = 0 if outcome.result is None else outcome.result.n_users
    unseen.must("the result counts the users that came", n_users == n_min)
    if outcome.result is not None:
        check_guarantees(outcome.result, task)
    return (
        _finding(
            checks,
            scenario,
            f"Closed with {n_min - 1} users where n_min is {n_min}; closed on people who "
            "had submitted",
            sentence="The analyzer refuses a batch below n_min and charges nothing; devices "
            "that were cut off after their receipt have proof.",
        ),
        _finding(
            unseen,
            scenario,
            f"Closed at n_min, {n_min} users, where more would have come",
            known_limit=True,
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


async def _run(
    wanted: TaskDraft,
    rng: np.random.Generator,
    tampering: Tampering,
    **options: Any,  # noqa: ANN401  # of `_collection`
) -> _Outcome:
    """Run one collection with a tampering."""
    async with _collection(wanted, rng, **options) as parties:
        await parties.shuffler.deliver(tampering)
        return await _outcome(parties)


async def _outcome(parties: InProcessRun) -> _Outcome:
    try:
        result = await parties.result()
    except UnusableBatchError:
        result = None
    return _Outcome(
        result=result, seen=await _conclusions(parties), delivered=parties.shuffler.delivered
    )


async def _conclusions(parties: InProcessRun) -> Counter[InclusionState]:
    n_people = len(parties.shuffler.users) - parties.n_sentinels
    return Counter(await parties.inclusions(n_people))


async def _refused(call: Awaitable[object], cause: type[ShuffleDpError]) -> bool:
    """Return whether a call is refused for this cause."""
    try:
        await call
    except ShuffleDpError as error:
        return isinstance(error, cause)
    return False


def _finding(checks: Checks, scenario: str, title: str, **fields: Any) -> Finding:  # noqa: ANN401  # of a finding
    """Return the finding of an attack that a defence notices, or that is a known limit."""
    return checks.finding(
        scenario=scenario,
        title=title,
        heading="server disruption",
        coalition="shuffler",
        **fields,
    )
