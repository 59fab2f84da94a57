"""Attacks by a dishonest shuffler; their detection by devices, sentinels and the analyzer."""

import asyncio
import math
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

from numpy.random import Generator
from scipy import stats

from shuffledp.analyzer.sentinels import FALSE_ALARM, SentinelMatches, match_part
from shuffledp.analyzer.settings import AnalyzerSettings
from shuffledp.analyzer.storage.task_table import Sentinel
from shuffledp.audit.finding import Checks, Finding, Rows
from shuffledp.audit.harness import in_process_run
from shuffledp.audit.harness.in_process_run import InProcessRun, Tampering, quiet_services
from shuffledp.audit.harness.tasks import reduced_draft, with_shufflers
from shuffledp.audit.scenario import AuditSubject
from shuffledp.audit.statistics import p_binomial, p_poisson
from shuffledp.common import errors
from shuffledp.common.messages.batch import BatchId
from shuffledp.common.messages.inclusion_proof import leaf
from shuffledp.common.messages.result import Result
from shuffledp.common.task.draft import TaskDraft
from shuffledp.common.task.shuffler_spec import KEEP_SUM
from shuffledp.common.task.task import Task
from shuffledp.deploy.results.verification import recompute_guarantees
from shuffledp.deploy.tasks.value_parser import value_of
from shuffledp.user_agent.device_store import InclusionState

Loss = Literal["dropped", "replaced"]
"""How a dishonest shuffler loses submissions: without or with others in their place."""

_REPORT_BYTES: Final = 64
_SUBMISSIONS: Final = 200
_SENTINELS: Final = 10
_DROPPED: Final = 20
_SAMPLED_SENTINELS: Final = 600
_SAMPLED_SHARE: Final = 0.9
"""Share of the reports kept by the task's sampling that a dishonest shuffler loses."""
_ORDERS: Final = 100
_ORDERS_PER_TRIAL: Final = 2000
ORDER_SENTINELS: Final = 16
"""Sentinels in the order test, which detects a kept order from 13 sentinels on."""
_MAX_REPORTS: Final = 2500
"""Maximum number of sealed reports in a batch: half a second of sealing and opening."""
_SIZES: Final = (16, 64, 256)
"""Values of n_min to try."""
_BEYOND_N_MIN: Final = 6
_VICTIM: Final = 3
_INVENTED: Final = 5
_SECOND, _OTHER = BatchId(b"s" * 16), BatchId(b"o" * 16)


def sentinel_rate(subject: AuditSubject, rng: Generator, *, loss: Loss) -> Finding:
    """
    Drop or replace m of N submissions, s of them sentinels; test how often this is detected.

    A sentinel is missing with probability 1 - C(N-s, m) / C(N, m). If the task lets the shuffler
    keep each report with probability κ, and a share φ of those is lost, Bin(s, κ(1-φ)) sentinels
    remain, and numbers outside quantiles of Bin(s, κ) are rejected.
    """
    task, trials = subject.task, max(_ORDERS, subject.sizes.orders // _ORDERS_PER_TRIAL)
    kept, s = task.shuffler.keep_probability, _SENTINELS
    others, lost = _SUBMISSIONS - s, _DROPPED
    expected = 1 - math.comb(others, lost) / math.comb(_SUBMISSIONS, lost)
    share = f"{_DROPPED / _SUBMISSIONS:.0%} of the submissions"
    if kept < 1:
        share = f"{_SAMPLED_SHARE:.0%} of the reports that the task's sampling keeps"
        s, others = _SAMPLED_SENTINELS, 0
        honest, cheated = stats.binom(s, kept), stats.binom(s, kept * (1 - _SAMPLED_SHARE))
        fewest, most = honest.ppf(FALSE_ALARM / 2), honest.isf(FALSE_ALARM / 2)
        expected = float(cheated.cdf(fewest - 1) + cheated.sf(most))
    sentinels = _draw_reports(s, rng)
    batch, rejected = sentinels + _draw_reports(others, rng), 0
    for _ in range(trials):
        places = rng.permutation(len(batch))
        if kept < 1:
            lost = s - int(rng.binomial(s, kept * (1 - _SAMPLED_SHARE)))
        remaining = [batch[place] for place in places[lost:].tolist()]
        remaining += _draw_reports(lost, rng) if loss == "replaced" else []
        rejected += _rejects(subject, remaining, sentinels, task)
    checks = Checks()
    checks.test("rate of rejected batches", p_binomial(rejected, trials, expected))
    return checks.finding(
        title=f"Detection by {s} sentinels if {share} are {loss}",
        heading="server disruption",
        coalition="shuffler",
        sentence="The analyzer detects lost submissions by missing sentinels, with the calculated "
        "probability.",
        expected=expected,
        measured=rejected / trials,
        trials=trials,
    )


def run_kept_order(subject: AuditSubject, rng: Generator) -> Rows:
    """Check that unshuffled batches of sentinels are rejected and shuffled ones are not."""
    # The order test does not depend on sampling.
    task, checks = with_shufflers(subject.task, {"keep_weight": KEEP_SUM}), Checks()
    sentinels = _draw_reports(ORDER_SENTINELS, rng)
    for order in (sentinels, sentinels[::-1]):
        checks.require(
            "a kept or reversed order is detected", _rejects(subject, order, sentinels, task)
        )
    alarms = sum(
        _rejects(subject, [sentinels[place] for place in order], sentinels, task)
        for order in (rng.permutation(ORDER_SENTINELS) for _ in range(_ORDERS))
    )
    checks.test("false alarms", p_poisson(alarms, FALSE_ALARM * _ORDERS))
    yield checks.finding(
        title=f"{ORDER_SENTINELS} sentinels in a batch that was not shuffled",
        heading="server disruption",
        coalition="shuffler",
        sentence="The analyzer does not release a batch in which thirteen or more sentinels are in "
        "sending order. A shuffler that shuffles but reveals the permutation is never detected; "
        "against it, only the local epsilon protects users.",
        theorem="Kendall's tau, exact",
        trials=_ORDERS,
    )


def _rejects(subject: AuditSubject, batch: list[bytes], sentinels: list[bytes], task: Task) -> bool:
    """Return whether an analyzer that knows these sentinels rejects a batch."""
    known = [Sentinel(leaves=(leaf(report),), acknowledged=True) for report in sentinels]
    found = match_part(b"".join(batch), _REPORT_BYTES, list(map(leaf, sentinels)))
    try:
        subject.ports.check_sentinels(SentinelMatches.joined(known, [found]), task)
    except errors.SuspectBatchError:
        return True
    return False


def _draw_reports(count: int, rng: Generator) -> list[bytes]:
    return [rng.bytes(_REPORT_BYTES) for _ in range(count)]


@dataclass(frozen=True, slots=True)
class _Outcome:
    """The end of a collection."""

    result: Result | None
    """None for a rejected batch."""
    conclusions: Counter[InclusionState]
    delivered: list[bytes]
    """Sealed reports, as the analyzer received them."""

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
    result = None
    with suppress(errors.UnusableBatchError):
        result = await parties.analyzer.releases.result(parties.digest)
    conclusions = Counter(await parties.inclusions(len(parties.shuffler.users)))
    return _Outcome(result, conclusions, parties.shuffler.delivered)


class _Attack:
    """An attack on collections of one task, with checks of its detection."""

    def __init__(self, subject: AuditSubject, draft: TaskDraft, rng: Generator) -> None:
        self.draft, self.rng, self._parties = draft, rng, subject.ports.parties
        self.checks, self.undetected = Checks(), Checks()
        self.findings: list[Finding] = []
        self.n_users = draft.n_min + _BEYOND_N_MIN
        self.samples = draft.shuffler.keep_probability < 1
        """Whether the task lets the shuffler drop reports."""

    @asynccontextmanager
    async def collection(self, *, sentinels: int = 0) -> AsyncIterator[InProcessRun]:
        """Yield running parties, after users have submitted and sentinels are planted."""
        with tempfile.TemporaryDirectory(prefix="shuffledp-audit-") as folder:
            parties = self._parties(Path(folder), seed=int(self.rng.integers(2**63)))
            await parties.start(self.draft)
            try:
                values = self.rng.integers(0, self.draft.domain_size, self.n_users)
                await parties.contribute(values.tolist())
                if sentinels:
                    await parties.plant(sentinels)
                yield parties
            finally:
                await parties.stop()

    async def run(self, tampering: Tampering, *, sentinels: int = 0) -> _Outcome:
        """Run one collection whose batch is tampered with."""
        async with self.collection(sentinels=sentinels) as parties:
            await parties.shuffler.deliver(tampering)
            return await _outcome(parties)

    def released(self, outcome: _Outcome) -> None:
        """Check that the attack is not detected."""
        name = "the batch is released and no figure reveals the attack"
        self.undetected.require(name, outcome.unsuspicious)

    def finding(self, title: str, sentence: str, **fields: Any) -> None:  # noqa: ANN401  # fields of a finding
        """Add the finding of a detected attack or, with `known_limit`, of an undetected one."""
        checks = self.undetected if fields.get("known_limit") else self.checks
        fields = {"heading": "server disruption", "coalition": "shuffler"} | fields
        self.findings.append(checks.finding(title=title, sentence=sentence, **fields))


def run_attack(
    attack: Callable[[_Attack], Coroutine[Any, Any, None]], subject: AuditSubject, rng: Generator
) -> Rows:
    """Run an attack on a reduced task; no findings if no small batch has a finite claim."""
    draft = reduced_draft(subject.task, most_reports=_MAX_REPORTS, n_users=_SIZES)
    if draft is None:
        return ()
    attacked = _Attack(subject, draft, rng)
    with quiet_services():
        asyncio.run(attack(attacked))
    return attacked.findings


async def honest(attack: _Attack) -> None:
    """Check that a shuffler that drops no user raises no alarm."""
    checks, n, sampled = attack.checks, attack.n_users, attack.samples
    outcome = await attack.run(in_process_run.shuffles, sentinels=ORDER_SENTINELS)
    checks.require("the batch is released and no report is refused", outcome.unsuspicious)
    if outcome.result is not None:
        checks.require("sentinels do not count as users", outcome.n_users == n)
        known = outcome.result.n_sentinels == ORDER_SENTINELS
        checks.require("the analyzer knows every sentinel", known)
        checks.require("no sentinel is missing", sampled or outcome.result.n_sentinels_missing == 0)
    expected = InclusionState.SAMPLED if sampled else InclusionState.COUNTED
    checks.require("no device raises an alarm", outcome.conclusions == {expected: n})
    attack.finding(
        f"An honest shuffler, {n} users and {ORDER_SENTINELS} sentinels",
        "With an honest shuffler, every user is counted and nothing raises an alarm.",
        heading="correctness",
        coalition="nobody",
    )


def run_losing(subject: AuditSubject, rng: Generator, *, loss: Loss) -> Rows:
    """Lose a user's submission, then a sentinel, then many submissions."""
    rows = run_attack(partial(_lost, loss=loss), subject, rng)
    return (*rows, sentinel_rate(subject, rng, loss=loss))


async def _lost(attack: _Attack, *, loss: Loss) -> None:
    """Lose a user's submission and, unless the shuffler samples, a sentinel in another run."""
    checks, n = attack.checks, attack.n_users
    lose: Callable[[int], Tampering] = (
        in_process_run.drops if loss == "dropped" else in_process_run.replaces
    )
    async with attack.collection() as parties:
        await parties.shuffler.deliver(lose(_VICTIM))
        parties.shuffler.forges = True
        forged = (await _outcome(parties)).conclusions
        parties.shuffler.forges = False
        outcome = await _outcome(parties)
    attack.released(outcome)
    if attack.samples:
        attack.finding(
            f"A user is {loss}, and the task lets the shuffler drop reports",
            "If the task lets the shuffler drop reports, no device can prove that its report was "
            "lost on purpose.",
            known_limit=True,
        )
        return
    unproven = forged == {InclusionState.UNCHECKED: n}
    checks.require("no device accepts a proof that the shuffler signed", unproven)
    proven = outcome.conclusions == {InclusionState.MISSING: 1, InclusionState.COUNTED: n - 1}
    checks.require("the victim's device has proof, and all others are counted", proven)
    held_back = (await attack.run(lose(n + _VICTIM), sentinels=ORDER_SENTINELS)).result is None
    checks.require("a batch that lacks a sentinel is not released", held_back)
    attack.finding(
        f"A user whose device checks is {loss}, and a sentinel is {loss}",
        "The user's device has signed proof of the loss, and the analyzer does not release a "
        "batch that lacks a sentinel.",
    )
    attack.finding(
        f"A user whose device does not check is {loss}, without sentinels",
        "If no device checks and no sentinel is planted, the loss is not detected.",
        known_limit=True,
    )


async def duplicating(attack: _Attack) -> None:
    """Replace one user's reports, then all but one user's, with copies of a user's reports."""
    checks = attack.checks
    for times in (1, attack.n_users - 1):
        outcome = await attack.run(in_process_run.duplicates(0, times=times))
        copies = len(outcome.delivered) - len(set(outcome.delivered))
        if copies > AnalyzerSettings.most_refused_share * len(outcome.delivered):
            checks.require("a batch of many copies is not released", outcome.result is None)
            continue
        counted = {} if outcome.result is None else outcome.result.refused
        reported = counted == {"repeated": copies, "unreadable": 0, "malformed": 0}
        checks.require("copies are dropped and reported with the result", reported)
        proven = attack.samples or outcome.conclusions[InclusionState.MISSING] == times
        checks.require("the devices whose reports were replaced have proof", proven)
    attack.finding(
        "One user's submission in place of another's, and in place of everybody's",
        "Each report counts once. Copies are reported with the result, and a batch with many "
        "copies is not released.",
    )


async def replaying(attack: _Attack) -> None:
    """Deliver a batch again: unchanged, as another batch, and for another task."""
    checks = attack.checks
    async with attack.collection() as parties:
        shuffler, store = parties.shuffler, parties.analyzer.store
        await shuffler.deliver(in_process_run.shuffles)
        first, reports = await store.result(parties.digest), shuffler.delivered
        delivered, more = parties.analyzer.announced, [*shuffler.users, shuffler.invented_user()]
        await parties.deliver(delivered, reports)
        same = first is not None and first == await store.result(parties.digest)
        checks.require("a repeated delivery changes nothing", same)
        _, most = parties.analyzer.task.shuffler.batch_reports(len(shuffler.reports_of(more)))
        other = shuffler.manifest(more, most, delivered.batch_id)
        for name, manifest in (
            ("the same batch under another manifest", other),
            ("a second batch of a task", replace(delivered, batch_id=_SECOND)),
        ):
            with checks.refused(f"{name} is refused", errors.ConflictError):
                await parties.deliver(manifest, reports)
        await parties.publish(attack.draft)
        digest = parties.analyzer.signed.digest()
        await parties.deliver(replace(delivered, batch_id=_OTHER, task_digest=digest), reports)
        released = await store.result(digest)
        checks.require("no other task counts its reports", released is None)
        checks.require("the ledger is charged once", len(await store.ledger(0)) == 1)
    attack.finding(
        "A batch delivered again, as another batch, and for another task",
        "A batch that is delivered repeatedly counts once, and only for its task.",
    )


async def injecting(attack: _Attack) -> None:
    """Deliver more or fewer reports than announced or allowed; then invent users."""
    n = attack.n_users
    async with attack.collection() as parties:
        shuffler = parties.shuffler
        reports = shuffler.reports_of(shuffler.users)
        least, most = parties.analyzer.task.shuffler.batch_reports(len(reports))
        excess = reports + reports[:1] * (most + 1 - len(reports))
        for number, (name, announced, sent) in enumerate(
            (
                ("more reports than belong to the users", most + 1, excess),
                ("more reports than announced", most, excess),
                ("fewer reports than belong to the users", least - 1, reports[: least - 1]),
                ("fewer reports than announced", least, reports[: least - 1]),
            )
        ):
            manifest = shuffler.manifest(shuffler.users, announced, BatchId(bytes([number] * 16)))
            with attack.checks.refused(f"{name} are refused", errors.WireError):
                await parties.deliver(manifest, sent)
        attack.checks.require("nothing is charged", not await parties.analyzer.store.ledger(0))
    outcome = await attack.run(in_process_run.invents(_INVENTED))
    attack.released(outcome)
    attack.undetected.require("invented users count", outcome.n_users == n + _INVENTED)
    attack.finding(
        "More or fewer reports than belong to the users",
        "The analyzer accepts exactly the announced number of reports, if that many belong to "
        "the announced users.",
    )
    attack.finding(
        f"{_INVENTED} invented users added to {n} real ones",
        "Users whom the shuffler invents are not detected, and the guarantee against the "
        "analyzer counts them as honest.",
        expected=float(n + _INVENTED),
        measured=float(outcome.n_users),
        known_limit=True,
    )


async def closing_early(attack: _Attack) -> None:
    """Close a batch below n_min; then at n_min, cutting off users who have submitted."""
    checks, n_min = attack.checks, attack.draft.n_min
    async with attack.collection() as parties:
        few = parties.shuffler.users[: n_min - 1]
        reports = parties.shuffler.reports_of(few)
        with checks.refused("a batch of one user fewer than n_min is refused", errors.WireError):
            await parties.deliver(parties.shuffler.manifest(few, len(reports)), reports)
        checks.require("nothing is charged", not await parties.analyzer.store.ledger(0))
        counted = InclusionState.COUNTED in await parties.inclusions(attack.n_users)
    checks.require("no device concludes that it was counted", not counted)
    async with attack.collection() as parties:
        await parties.shuffler.deliver(in_process_run.drops(*range(n_min, attack.n_users)))
        value = value_of(parties.analyzer.task, 0)
        with checks.refused("a late submission is refused", errors.BatchStateError):
            await parties.agent.contribute(parties.digest, value, "a late user")
        outcome = await _outcome(parties)
    expected = {InclusionState.COUNTED: n_min, InclusionState.MISSING: _BEYOND_N_MIN}
    proven = attack.samples or outcome.conclusions == expected
    checks.require("devices that were cut off after their receipt have proof", proven)
    attack.released(outcome)
    attack.undetected.require("the result counts the users in the batch", outcome.n_users == n_min)
    if outcome.result is not None:
        recompute_guarantees(outcome.result, parties.analyzer.task)
    attack.finding(
        f"Closed with {n_min - 1:,} users, one below n_min; closed without users who had submitted",
        "The analyzer refuses a batch below n_min and charges nothing. Devices that were cut "
        "off after their receipt have proof of it.",
    )
    attack.finding(
        f"Closed at n_min, {n_min:,} users, before more could submit",
        "A shuffler may close as soon as n_min users have submitted; the result's guarantees "
        "are computed for the users it counts.",
        expected=float(n_min),
        measured=float(outcome.n_users),
        known_limit=True,
    )
