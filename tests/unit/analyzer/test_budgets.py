import math
from typing import Any

import pytest

from shuffledp.audit.harness.party_cores import chunks_of, part_header
from shuffledp.common.accounting.composition import composed_epsilon
from shuffledp.common.accounting.guarantees import charged_release, claimed_guarantee
from shuffledp.common.accounting.privacy_parameters import PrivacyParameters
from shuffledp.common.errors import (
    BudgetError,
    DamagedStorageError,
    DeliveryUnderWayError,
    UnusableBatchError,
)
from shuffledp.common.messages.batch import BatchId
from shuffledp.common.task.named_dummies import ItemDummies
from shuffledp.common.task.task import Task
from tests.support.analyzer_core import AnalyzerCore
from tests.support.ledger_entries import first_entry, releases

_USERS = 50
_CLAIM = 0.694
"""Central ε of 50 users, rounded up; two such releases cost some 1.4 times as much, or more."""
_ENOUGH_FOR_ONE = 1.05 * _CLAIM


@pytest.fixture
async def core(core: AnalyzerCore) -> AnalyzerCore:
    """A started analyzer that releases whatever share of reports is refused."""
    core.most_refused_share = 1.0
    await core.restart()
    return core


async def _publish(core: AnalyzerCore, **changes: Any) -> Any:
    fields = {
        "n_min": _USERS,
        "target_size": _USERS,
        "population": "staff",
        "budget_epsilon": _ENOUGH_FOR_ONE,
    }
    return await core.publish(**fields | changes)


async def test_a_release_over_the_budget_is_refused_unread(core: AnalyzerCore) -> None:
    """Every time, before a report is asked for; the operator is told the reason."""
    first, second = await _publish(core), await _publish(core)
    await core.release(_USERS, first)
    opened = core.executor.parts["count"]
    manifest = core.manifest(_USERS, batch=BatchId(b"2" * 16), signed=second)
    for _ in range(2):
        over = r"2 releases to its population.*the budget is"
        with pytest.raises(BudgetError, match=over) as caught:
            await core.deliver_parts(manifest, core.sealed(_USERS, second))
    header = part_header(second.digest(), 0, [])
    with pytest.raises(DeliveryUnderWayError, match="has not begun"):
        await core.staging.receive(header, chunks_of([]))
    await core.settle()

    assert "RESOURCE_EXHAUSTED" == caught.value.status
    assert opened == core.executor.parts["count"]
    assert 1 == len(await core.store.ledger(0))
    with pytest.raises(UnusableBatchError, match="the budget is"):
        await core.releases.result(second.digest())


async def test_a_delivery_that_has_begun_is_not_checked_again(
    core: AnalyzerCore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Composing takes minutes after dozens of releases; a restart changes nothing."""
    signed = await _publish(core)
    manifest = core.manifest(_USERS, signed=signed)
    await core.staging.begin(manifest, 2)
    await core.restart()
    checked = []

    async def check(task: Task, *_: object) -> None:
        checked.append(task)

    monkeypatch.setattr(core.budgets, "check", check)
    assert ([], False) == await core.staging.begin(manifest, 2)
    assert [] == checked
    await core.staging.begin(manifest, 3)
    assert 1 == len(checked)


async def test_a_damaged_task_of_the_ledger_delays_a_delivery(core: AnalyzerCore) -> None:
    """The shuffler may retry: it would quarantine the batch if the analyzer refused it."""
    first, second = await _publish(core), await _publish(core, budget_epsilon=9.0)
    await core.release(_USERS, first)
    await core.restart()
    set_task = "UPDATE tasks SET task = ? WHERE task_digest = ?"
    await core.store.run(lambda c: c.execute(set_task, (b"{}", first.digest())))

    manifest = core.manifest(_USERS, batch=BatchId(b"2" * 16), signed=second)
    with pytest.raises(DamagedStorageError, match="cannot read its own storage"):
        await core.deliver_parts(manifest, core.sealed(_USERS, second))
    assert await core.store.failure(second.digest()) is None


async def test_refused_reports_can_exceed_the_budget(core: AnalyzerCore) -> None:
    """Found after opening: the batch is unusable, and nothing is released or charged."""
    signed = await _publish(core)
    await core.release(_USERS, signed, spoiled=30)

    assert core.executor.parts["count"] > 0
    with pytest.raises(UnusableBatchError, match="the budget is"):
        await core.releases.result(signed.digest())
    assert [] == await core.store.ledger(0)
    assert await core.store.result(signed.digest()) is None


async def test_concurrent_releases_cannot_exceed_the_budget(core: AnalyzerCore) -> None:
    """Both were staged while nothing was spent; one of them becomes unusable."""
    tasks = [await _publish(core) for _ in range(2)]
    for signed in tasks:
        manifest = core.manifest(_USERS, batch=BatchId(signed.digest()[:16]), signed=signed)
        await core.stage(manifest, signed)
    await core.releases.resume()
    await core.settle()

    [entry] = releases(await core.store.ledger(0))
    failures = [await core.store.failure(signed.digest()) for signed in tasks]
    assert 1 == failures.count(None)
    assert entry.task_digest == tasks[failures.index(None)].digest()
    assert entry.composed_epsilon <= _ENOUGH_FOR_ONE


async def test_populations_are_separate(core: AnalyzerCore) -> None:
    """Each is charged as if it were the only one."""
    for population in ("staff", "guests", "", ""):
        await core.release(_USERS, await _publish(core, population=population))
    composed = {entry.composed_epsilon for entry in releases(await core.store.ledger(0))}

    assert 1 == len(composed)
    assert composed.pop() <= _CLAIM


async def test_a_task_that_could_never_be_released_is_not_published(core: AnalyzerCore) -> None:
    """Earlier releases and its smallest batch already exceed the budget."""
    await core.release(_USERS, await _publish(core))
    with pytest.raises(BudgetError) as caught:
        await _publish(core)
    assert "RESOURCE_EXHAUSTED" == caught.value.status
    await _publish(core, population="guests")


async def test_local_epsilons_bound_releases_without_a_certified_composition(
    core: AnalyzerCore,
) -> None:
    """Two releases of local ε 2 cost at most 4 where δ is too small for the accountant."""
    for _ in range(2):
        await core.release(
            _USERS, await _publish(core, delta=1e-13, budget_epsilon=4.0, budget_delta=1e-13)
        )
    composed = [entry.composed_epsilon for entry in releases(await core.store.ledger(0))]

    assert 2 == len(composed)
    assert composed[0] < composed[1] <= 4.0


async def test_every_earlier_release_counts(core: AnalyzerCore) -> None:
    """Each release is charged the composed cost of all so far."""
    task = Task.from_bytes((await _publish(core, budget_epsilon=19.0)).task_bytes)
    release = charged_release(task, _USERS, 0)
    for number in range(1, 11):
        await core.release(_USERS, await _publish(core, budget_epsilon=19.0))
        [*_, last] = releases(await core.store.ledger(0))

        together = composed_epsilon([release] * number, task.budget_delta)
        assert min(number * task.local_epsilon, together) == last.composed_epsilon


async def test_an_earlier_budget_holds_at_its_own_delta(core: AnalyzerCore) -> None:
    """The same releases would pass at the later task's larger δ."""
    task = Task.from_bytes((await _publish(core, delta=0.01)).task_bytes)
    release = charged_release(task, _USERS, 0)
    alone, both = (composed_epsilon([release] * releases, 0.01) for releases in (1, 2))
    budget = (alone + both) / 2
    assert composed_epsilon([release] * 2, 0.3) < budget < both
    strict, loose = [
        await _publish(core, delta=0.01, budget_epsilon=budget, budget_delta=delta)
        for delta in (0.01, 0.3)
    ]
    await core.release(_USERS, strict)
    with pytest.raises(BudgetError, match=r"at delta 0\.01"):
        await core.release(_USERS, loose)


async def test_nothing_follows_a_release_of_infinite_cost(core: AnalyzerCore) -> None:
    """Every later sum is infinite too."""
    dummies = ItemDummies(trials=4, extra_weight=2**30, most=3)
    bare = await _publish(
        core,
        protocol="aue",
        domain_size=4,
        buckets=0,
        local_epsilon=math.inf,
        dummies_per_user=0.0,
        dummies=dummies,
        n_min=1000,
        target_size=1000,
        budget_epsilon=19.0,
    )
    later = await _publish(core, budget_epsilon=19.0)
    guarantee = claimed_guarantee(PrivacyParameters.of(Task.from_bytes(bare.task_bytes)), 1)
    assert math.inf == guarantee.epsilon
    cost = {"epsilon": guarantee.epsilon, "delta": guarantee.delta, "n_users": 1, "n_refused": 0}
    await core.store.release(b"", b"", first_entry(task_digest=bare.digest(), **cost))

    with pytest.raises(BudgetError, match="cost a central epsilon of inf"):
        await core.release(_USERS, later)
