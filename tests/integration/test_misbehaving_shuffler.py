"""Each way in which a shuffler cheats, and the mechanism that detects it."""

from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio

from shuffledp.audit.harness.in_process_run import (
    DishonestShuffler,
    InProcessRun,
    Tampering,
    Users,
    drops,
    duplicates,
    replaces,
    shuffles,
)
from shuffledp.audit.harness.party_cores import part_header
from shuffledp.common.accounting.assumptions import HONEST_SHUFFLER
from shuffledp.common.crypto.signing import SigningIdentity
from shuffledp.common.errors import PeerError, UnusableBatchError
from shuffledp.common.messages.batch import BatchPart
from shuffledp.common.messages.guarantee import claimed
from shuffledp.common.messages.result import Result
from shuffledp.deploy.results.verification import check_fits, recompute_guarantees
from shuffledp.user_agent.device_store import InclusionState, SubmissionState
from tests.support.ledger_entries import releases
from tests.support.tasks import draft

_USERS = 20
_SENTINELS = 20


@pytest_asyncio.fixture(loop_scope="session")
async def line(tmp_path: Path) -> AsyncIterator[InProcessRun]:
    """All parties, started; no user has answered."""
    started = InProcessRun(tmp_path)
    await started.start(draft(n_min=15, target_size=100))
    yield started
    await started.stop()


async def _contribute(line: InProcessRun) -> None:
    """Let twenty people answer."""
    await line.contribute([number % 5 for number in range(_USERS)])


async def _result(line: InProcessRun) -> Result:
    """Return the released result, after the operator's checks."""
    released = await line.analyzer.releases.result(line.digest)
    check_fits(released, line.analyzer.task)
    recompute_guarantees(released, line.analyzer.task)
    return released


def _alarms(line: InProcessRun, caplog: pytest.LogCaptureFixture) -> list[dict[str, str]]:
    """Return the fields of this task's warnings and errors: other tests' services may still log."""
    alarms = [each for each in caplog.records if each.levelname in {"ERROR", "WARNING"}]
    fields = [vars(each)["fields"] for each in alarms]
    return [each for each in fields if each.get("task_digest") == line.digest.hex()]


async def test_an_honest_run_raises_no_alarm(
    line: InProcessRun, caplog: pytest.LogCaptureFixture
) -> None:
    """Every user is counted, and no sentinel, in the result and in the ledger."""
    await _contribute(line)
    await line.plant(_SENTINELS)
    await line.shuffler.deliver(shuffles)
    result = await _result(line)

    assert [InclusionState.COUNTED] * _USERS == await line.inclusions(_USERS)
    assert (_USERS, 2 * _USERS, 20) == (result.n_users, result.n_reports, result.n_sentinels)
    assert not any(result.refused.values())
    [entry] = releases(await line.analyzer.store.ledger(0))
    assert (_USERS, claimed(result.guarantees).epsilon) == (entry.n_users, entry.composed_epsilon)
    assert [] == _alarms(line, caplog)


@pytest.mark.parametrize("tampering", [drops(7), replaces(7)], ids=["drops", "replaces"])
async def test_a_user_who_is_dropped_or_replaced_has_proof_of_it(
    line: InProcessRun, tampering: Tampering, caplog: pytest.LogCaptureFixture
) -> None:
    """Only that device holds a signed receipt and a signed commitment without the answer."""
    await _contribute(line)
    await line.shuffler.deliver(tampering)
    states = await line.inclusions(_USERS)
    kept = await line.store.find("person 7", line.digest)

    assert InclusionState.MISSING is states.pop(7)
    assert {InclusionState.COUNTED} == set(states)
    assert kept is not None
    assert kept.receipt
    assert 64 == len(kept.leaves)
    assert [{"task_digest": line.digest.hex(), "state": "missing"}] == _alarms(line, caplog)


def _unshuffled(shuffler: DishonestShuffler, users: Users) -> Users:
    """Deliver the reports of a small batch, which is one part, in the order of sending."""
    deliver, reports = shuffler.analyzer.deliver_part, shuffler.reports_of(users)

    async def in_order(part: BatchPart, _: Iterable[bytes | memoryview]) -> None:
        await deliver(part_header(part.task_digest, part.part, reports), reports)

    vars(shuffler.analyzer)["deliver_part"] = in_order
    return users


_MISSING: Final = "1 of 20 sentinels are missing"


@pytest.mark.parametrize(
    ("tampering", "sentinels", "reason"),
    [
        pytest.param(drops(_USERS + 4), 20, _MISSING, id="drops a sentinel"),
        pytest.param(replaces(_USERS + 4), 20, _MISSING, id="replaces a sentinel"),
        pytest.param(duplicates(_USERS + 4), 20, _MISSING, id="duplicates over a sentinel"),
        pytest.param(_unshuffled, 20, "tau with the order of sending is 1", id="no shuffle"),
        pytest.param(drops(*range(6)), 20, "14 users besides 20 sentinels", id="below n_min"),
        pytest.param(
            duplicates(3, times=2), 0, "4 of the batch's 40 reports were refused", id="copies"
        ),
    ],
)
async def test_a_tampered_batch_is_not_estimated(
    line: InProcessRun,
    tampering: Tampering,
    sentinels: int,
    reason: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Nothing is released or charged; the reason is kept."""
    await _contribute(line)
    await line.plant(sentinels)
    await line.shuffler.deliver(tampering)

    with pytest.raises(UnusableBatchError, match=reason):
        await _result(line)
    assert [] == await line.analyzer.store.ledger(0)
    assert (line.analyzer.executor.parts["count"] == 0) == (sentinels > 0)
    assert {"batch quarantined", "batch unusable"} & set(caplog.messages)


@pytest.mark.parametrize(
    ("tampering", "users"),
    [
        pytest.param(drops(_USERS + 4), _USERS - 1, id="drops a sentinel"),
        pytest.param(replaces(_USERS + 4), _USERS, id="replaces a sentinel"),
        pytest.param(_unshuffled, _USERS, id="no shuffle"),
    ],
)
async def test_a_tampered_batch_can_be_released_nevertheless(
    line: InProcessRun, tampering: Tampering, users: int
) -> None:
    """
    Its result passes the operator's checks, and warns; a lost sentinel costs a user.

    No guarantee assumes an honest shuffler: the local ε is stated and charged.
    """
    await _contribute(line)
    await line.plant(_SENTINELS)
    await line.shuffler.deliver(tampering)
    entry = await line.analyzer.releases.decide(line.digest, "release", "looked into")
    await line.analyzer.settle()
    result = await _result(line)

    assert users == result.n_users
    assert entry.reason in result.warnings[0]
    assert result.n_sentinels_missing == ("missing" in entry.reason)
    assert not [row for row in result.guarantees if HONEST_SHUFFLER in row.assumptions]
    [charged] = releases(await line.analyzer.store.ledger(0))
    assert line.analyzer.task.local_epsilon == charged.epsilon == result.guarantees[0].epsilon


async def test_copies_of_a_sentinel_are_counted(line: InProcessRun) -> None:
    """A copy of a sentinel replaces a user, and no sentinel is missing."""
    await _contribute(line)
    await line.plant(_SENTINELS)

    await line.shuffler.deliver(lambda own, users: [*users[1:], own.copy_of(users[-1])])
    result = await _result(line)

    assert (20, 0) == (result.n_sentinels, result.n_sentinels_missing)
    assert (2, 2) == (result.n_sentinels_repeated, result.refused["repeated"])
    assert _USERS == result.n_users


async def test_a_shuffler_that_denies_what_it_took_is_held_to_its_receipt(
    line: InProcessRun,
) -> None:
    """A receipt by another key does not count: the answer stays pending, and is resent."""
    own = line.shuffler.identity
    line.shuffler.identity = SigningIdentity.generate()
    with pytest.raises(PeerError, match="not signed by the pinned shuffler identity"):
        await line.agent.contribute(line.digest, 0, "person 0")
    line.shuffler.identity = own
    saved = await line.store.find("person 0", line.digest)

    assert saved is not None
    assert SubmissionState.PENDING is saved.state
    await line.agent.resend_pending()
    assert [] == await line.store.pending()
