"""What a batch costs that its operator releases although it failed a check."""

import dataclasses
from contextlib import nullcontext
from typing import Any, Final, get_args

import pytest

from shuffledp.analyzer.batch_counts import Waiver
from shuffledp.analyzer.storage import ledger
from shuffledp.common.accounting.composition import composed_epsilon
from shuffledp.common.accounting.guarantees import charged_release, guarantees
from shuffledp.common.crypto.signing import SigningIdentity
from shuffledp.common.errors import SuspectBatchError
from shuffledp.common.messages.guarantee import NONE_WAIVED, Waived, claimed
from shuffledp.common.messages.ledger_entry import Decision, verify
from shuffledp.common.task.task import Task
from shuffledp.deploy.results.verification import check_fits, recompute_guarantees
from tests.support.analyzer_core import AnalyzerCore
from tests.support.ledger_entries import decision_entry, first_entry, releases

_USERS: Final = 50
_SHORT: Final = Waived(("lengths",), (_USERS, 0))
_SHARED: Final[dict[str, Any]] = {"population": "staff", "budget_epsilon": 9.0}


async def test_a_batch_without_its_long_submissions_is_charged_for_what_arrived(
    analyzer: AnalyzerCore,
) -> None:
    """Its row, its charge and the next composition are by its lengths; operators verify it."""
    signed = await analyzer.publish(dummies_per_user=0.5, **_SHARED)
    task = Task.from_bytes(signed.task_bytes)
    manifest = analyzer.manifest(_USERS)
    manifest = dataclasses.replace(manifest, n_reports=_USERS, by_length=_SHORT.by_length)
    await analyzer.deliver_parts(manifest, analyzer.sealed(_USERS)[:_USERS])
    await analyzer.settle()
    await analyzer.releases.decide(signed.digest(), "release", "a bad line")
    await analyzer.settle()
    result = await analyzer.result()
    check_fits(result, task)
    [entry] = releases(await analyzer.store.ledger(0))
    usual, stated = (claimed(guarantees(task, _USERS, 0, each)) for each in (NONE_WAIVED, _SHORT))

    assert usual.epsilon < stated.epsilon < task.local_epsilon
    assert (stated.epsilon, str(_SHORT)) == (entry.epsilon, entry.waived)
    assert stated.epsilon == entry.composed_epsilon == claimed(result.guarantees).epsilon
    assert guarantees(task, _USERS, 0, _SHORT) == result.guarantees
    assert result.guarantees == recompute_guarantees(result, task).guarantees
    assert "a batch that failed a check" in result.published_claim
    later = await analyzer.publish(**_SHARED)
    await analyzer.release(_USERS, later)
    both = [charged_release(task, _USERS, 0, _SHORT)]
    both.append(charged_release(Task.from_bytes(later.task_bytes), _USERS, 0))
    entries = await analyzer.store.ledger(0)
    assert composed_epsilon(both, task.delta) == releases(entries)[1].composed_epsilon
    assert await analyzer.store.run(ledger.check) == verify(entries)


@pytest.mark.parametrize("decision", get_args(Decision))
def test_only_a_decision_to_release_the_batch_waives_its_checks(decision: Decision) -> None:
    """A batch that is dropped while it is counted fails the check as before."""
    entry = decision_entry(SigningIdentity.generate(), first_entry(), decision=decision)
    waiver = Waiver(entry)

    def check() -> None:
        raise SuspectBatchError("too many refused")

    waives = decision == "release"
    with nullcontext() if waives else pytest.raises(SuspectBatchError, match="too many refused"):
        waiver.run("refusals", check)
    assert waives == bool(waiver.warnings())
