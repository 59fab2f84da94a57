"""Whether a population's budget binds: every release composed with all before it, at every step."""

import asyncio
import contextlib
import dataclasses
import math
from collections.abc import Sequence
from typing import Any, Final
from unittest.mock import patch

import numpy as np

from analyzer.budgets import Spending
from analyzer.storage.ledger import Charge
from common.accounting.composition import composed_epsilon
from common.accounting.guarantees import Terms, claimed_guarantee, claimed_release
from common.errors import BudgetError, UnusableBatchError
from common.messages.guarantee import Guarantee, sum_upper
from common.task.dummy_spec import DummySpec
from common.task.task import Task
from deploy.audit.audited import Audited
from deploy.audit.checks import Checks
from deploy.audit.finding import Outcome
from deploy.audit.integrity.analyzer_core import AnalyzerCore, in_chunks
from deploy.audit.integrity.playthrough import refused
from deploy.audit.integrity.rehearsal import quietly
from deploy.audit.integrity.small_batch import USERS, SmallBatch, analyzer, small_task
from deploy.audit.sample_task import sample_task

_PLENTY: Final = 100.0
_RELEASES: Final = ((USERS, 0), (USERS + 10, 1), (USERS, 0))
"""Of each how many users there are, and how many of their reports are refused."""
_MANY: Final = 20
"""Releases to a population that is asked very often."""
_STRICT, _LOOSE = 0.01, 0.3
"""Values of δ at which budgets hold."""
_BARE: Final[dict[str, Any]] = {
    "protocol": "aue",
    "domain_size": 4,
    "local_epsilon": math.inf,
    "dummies": DummySpec(law="each-item", per_user=0, trials=4, extra_weight=2**30, most=3),
}
"""A task whose reports say a value as it is, beside dummies that many users add."""
_HELD: Final = 0.5
"""Seconds for which the first of two batches waits for the second before it is charged."""


def budgets(audited: Audited, rng: np.random.Generator) -> Outcome:
    """Release to several populations, up to their budgets and beyond; whatever task is audited."""
    del audited
    checks = Checks()
    with quietly():
        asyncio.run(_play(checks, rng))
    return Outcome(
        findings=(
            checks.finding(
                scenario="analyzer-budgets",
                title="Several releases to the same people",
                heading="correctness",
                sentence=(
                    f"Each of {len(_RELEASES)} releases to one population was charged with "
                    "exactly what all so far cost together, and so was one after "
                    f"{_MANY} others. A batch beyond a budget, its own task's or that of an "
                    "earlier one at that one's own δ, was refused when it came, and when another "
                    "one had used the budget up before it was released, or was about to; and where "
                    "nothing is certified of an earlier release, none followed."
                ),
                subject="small tasks with shuffled randomized response",
                advice="Release nothing to a population that was asked before.",
            ),
        )
    )


async def _play(checks: Checks, rng: np.random.Generator) -> None:
    async with analyzer(rng) as core:
        await _all_together(checks, core, rng)
        await _under_a_budget_for_one(checks, core, rng)
        await _earlier_promise(checks, core, rng)
        await _staged_together(checks, core, rng)
        await _after_many(checks, core, rng)
        await _earlier_delta(checks, core, rng)
        await _after_infinite(checks, core, rng)
        await _charged_together(checks, core, rng)


def _cost(*releases: tuple[int, int], delta: float | None = None) -> float:
    """Compose releases, each of so many users and refused reports, apart from the ledger."""
    task = small_task()
    together = [claimed_release(task, *release) for release in releases]
    local = sum_upper(task.local_epsilon for _ in releases)
    return min(local, composed_epsilon(together, delta or task.budget_delta))


def _between(low: float, high: float) -> float:
    return (low + high) / 2


def _asking(population: str, budget_epsilon: float) -> Task:
    return small_task(population=population, budget_epsilon=budget_epsilon)


async def _all_together(checks: Checks, core: AnalyzerCore, rng: np.random.Generator) -> None:
    """Release one after the other, and read in the ledger what each was charged."""
    for n_users, n_refused in _RELEASES:
        batch = await SmallBatch.of(core, _asking("often", _PLENTY), rng, n_users)
        await (batch.with_padding() if n_refused else batch).result(core)
    entries = await core.store.ledger(0)
    expected = [_cost(*_RELEASES[: last + 1]) for last in range(len(_RELEASES))]
    checks.must(
        "each release is charged with all before it to its population",
        [entry.composed_epsilon for entry in entries] == expected,
    )
    checks.must(
        "each release is charged for the users who came and the reports that were refused",
        [(entry.n_users, entry.n_refused) for entry in entries] == list(_RELEASES),
    )
    once_more = (USERS, 0)
    budget = _between(_cost(_RELEASES[-1], once_more), _cost(*_RELEASES, once_more))
    batch = await SmallBatch.of(core, _asking("often", budget), rng)
    checks.must(
        "a batch is refused that all earlier releases leave no budget for",
        await refused(batch.deliver(core), BudgetError),
    )


async def _under_a_budget_for_one(
    checks: Checks, core: AnalyzerCore, rng: np.random.Generator
) -> None:
    """Two tasks were published while nothing was spent; the first batch leaves too little."""
    first, second = await _two(core, ("for one", _enough_for_one()), rng)
    await first.result(core)
    checks.must(
        "a batch beyond the budget is refused when it is delivered",
        await refused(second.deliver(core), BudgetError),
    )


async def _earlier_promise(checks: Checks, core: AnalyzerCore, rng: np.random.Generator) -> None:
    """What an earlier task promised is less than what a later one would allow."""
    first = await SmallBatch.of(core, _asking("promised", _enough_for_one()), rng)
    second = await SmallBatch.of(core, _asking("promised", _PLENTY), rng)
    await first.result(core)
    checks.must(
        "a batch is refused that exceeds what an earlier task had promised",
        await refused(second.deliver(core), BudgetError),
    )


async def _staged_together(checks: Checks, core: AnalyzerCore, rng: np.random.Generator) -> None:
    """Two batches wait; each by itself keeps the budget."""
    waiting = await _two(core, ("at once", _enough_for_one()), rng)
    for batch in waiting:
        await core.staging.receive(batch.manifest, in_chunks(batch.reports))
    await core.releases.resume()
    released = [await _is_released(core, batch) for batch in waiting]
    charged = [entry for entry in await core.store.ledger(0) if entry.population == "at once"]
    checks.must(
        "of two waiting batches with a budget for one, one is released",
        sorted(released) == [False, True] and len(charged) == 1,
    )


async def _after_many(checks: Checks, core: AnalyzerCore, rng: np.random.Generator) -> None:
    """Charge many releases, and release one more."""
    task = _asking("very often", _PLENTY)
    guarantee = claimed_guarantee(Terms.of(task), USERS)
    for _ in range(_MANY):
        await _charge(core, await SmallBatch.of(core, task, rng), guarantee)
    last = await SmallBatch.of(core, task, rng)
    await last.result(core)
    [charged] = [
        entry
        for entry in await core.store.ledger(0)
        if entry.task_digest == last.manifest.task_digest
    ]
    checks.must(
        f"a release is charged with all {_MANY} before it",
        charged.composed_epsilon == _cost(*[(USERS, 0)] * (_MANY + 1)),
    )


async def _charge(core: AnalyzerCore, batch: SmallBatch, guarantee: Guarantee) -> None:
    """Charge a release, and keep an empty result of it, as the analyzer's core does."""
    cost = Charge(
        population=Task.from_bytes(batch.signed.task_bytes).population,
        n_refused=0,
        guarantee=guarantee,
        composed_epsilon=guarantee.epsilon,
    )
    await core.store.release(batch.manifest, b"", b"", cost)


async def _earlier_delta(checks: Checks, core: AnalyzerCore, rng: np.random.Generator) -> None:
    """What an earlier task promised, it promised at a smaller δ than a later one's."""
    one, two = ([(USERS, 0)] * releases for releases in (1, 2))
    budget = _between(_cost(*one, delta=_STRICT), _cost(*two, delta=_STRICT))
    strict, loose = (
        dataclasses.replace(_asking("strictly", budget), budget_delta=delta)
        for delta in (_STRICT, _LOOSE)
    )
    checks.must("at a larger δ two releases cost less", _cost(*two, delta=_LOOSE) < budget)
    await (await SmallBatch.of(core, strict, rng)).result(core)
    second = await SmallBatch.of(core, loose, rng)
    checks.must(
        "a batch is refused that exceeds an earlier task's budget at that one's δ",
        await refused(second.deliver(core), BudgetError),
    )


async def _after_infinite(checks: Checks, core: AnalyzerCore, rng: np.random.Generator) -> None:
    """Nothing is certified of an earlier release: its one user had nobody to hide among."""
    bare = dataclasses.replace(sample_task(**_BARE), population="uncertified")
    first = await SmallBatch.of(core, bare, rng, 1)
    await _charge(core, first, claimed_guarantee(Terms.of(bare), 1))
    charged = [one.epsilon for one in await core.store.ledger(0) if one.population == "uncertified"]
    checks.must("an infinite ε is charged", charged == [math.inf])
    second = await SmallBatch.of(core, _asking(bare.population, _PLENTY), rng)
    checks.must(
        "a batch is refused after a release of which nothing is certified",
        await refused(second.deliver(core), BudgetError),
    )


async def _charged_together(checks: Checks, core: AnalyzerCore, rng: np.random.Generator) -> None:
    """Two batches are composed at once, if they can be: the first waits for the second."""
    waiting = await _two(core, ("ready at once", _enough_for_one()), rng)
    for batch in waiting:
        await core.staging.receive(batch.manifest, in_chunks(batch.reports))
    compose, both, composed = Spending.compose, asyncio.Event(), list[float]()

    async def held(self: Spending, *arguments: Any) -> float:  # noqa: ANN401  # as compose
        composed.append(await compose(self, *arguments))
        if len(composed) == len(waiting):
            both.set()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(both.wait(), _HELD)
        return composed[0]

    with patch.object(Spending, "compose", held):
        await core.releases.resume()
        released = [await _is_released(core, batch) for batch in waiting]
    charged = await core.store.releases_to("ready at once")
    checks.must(
        "of two batches that are composed at once, one is charged",
        sorted(released) == [False, True] and len(charged) == 1,
    )


def _enough_for_one() -> float:
    return _between(_cost((USERS, 0)), _cost((USERS, 0), (USERS, 0)))


async def _two(
    core: AnalyzerCore, asked: tuple[str, float], rng: np.random.Generator
) -> Sequence[SmallBatch]:
    return [await SmallBatch.of(core, _asking(*asked), rng) for _ in range(2)]


async def _is_released(core: AnalyzerCore, batch: SmallBatch) -> bool:
    try:
        await core.result(batch.manifest.task_digest)
    except UnusableBatchError:
        return False
    return True
