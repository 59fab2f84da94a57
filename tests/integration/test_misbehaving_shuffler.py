"""Each way of cheating, and the mechanism that claims to notice it."""

from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest

from common.crypto.hpke import HpkePrivateKey
from common.errors import PeerError, UnusableBatchError
from common.messages.result import Result
from deploy.results.verification import check_fits, check_guarantees
from tests.support.analyzer_core import AnalyzerCore
from tests.support.clocks import ManualClock
from tests.support.dishonest_shufflers import (
    DishonestShuffler,
    Tampering,
    drops,
    duplicates,
    keeps_the_order,
    replaces,
    shuffles,
)
from tests.support.policies import generous
from user_agent.agent import Agent
from user_agent.budget import Budget, SubmissionState
from user_agent.contribution import Contributor
from user_agent.credentials import PersonalSecrets
from user_agent.evidence import Inclusion
from user_agent.inclusion_monitor import Watch

_USERS = 20
_SENTINELS = 20


class Line:
    """A device of several people, a shuffler that may cheat, and an analyzer."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.analyzer = AnalyzerCore(path / "analyzer")
        self.key = HpkePrivateKey.generate()
        self.clock = ManualClock()

    async def start(self) -> None:
        """Publish a task and let twenty people answer it."""
        await self.analyzer.start()
        await self.analyzer.publish(
            n_min=15, target_size=100, shuffler_key=self.key.public_key().raw
        )
        self.digest = self.analyzer.signed.digest()
        self.shuffler = DishonestShuffler(self.path / "inclusion", self.analyzer, self.key)
        self.budget = Budget(self.path / "budget.sqlite")
        identity = self.analyzer.keys.identity.public_identity()
        self.agent = Agent(
            shuffler=self.shuffler,
            budget=self.budget,
            policy=generous(identity),
            several_persons=True,
            clock=self.clock,
            rng=np.random.default_rng(1),
            secrets=PersonalSecrets(bytes(32)),
            shuffler_identity=self.shuffler.identity.public_identity(),
        )
        self.watch = Watch(
            shuffler=self.shuffler,
            budget=self.budget,
            identity=identity,
            clock=self.clock,
            rng=np.random.default_rng(2),
            pause=10.0,
        )

    async def contribute(self) -> None:
        """Let people answer."""
        for number in range(_USERS):
            await self.agent.contribute(self.digest, number % 5, f"person {number}")

    async def plant(self) -> None:
        """Let the operator send sentinels, one after the other."""
        contributor = Contributor(self.analyzer.task, self.digest)
        rng = np.random.default_rng(3)
        answers = [contributor.answer(0, rng) for _ in range(_SENTINELS)]
        leaves = [b"".join(answer.leaves) for answer in answers]
        await self.analyzer.sentinels.register(self.digest, leaves, acknowledged=False)
        for answer in answers:
            await self.shuffler.submit(self.digest, answer.envelope)
        await self.analyzer.sentinels.register(self.digest, leaves, acknowledged=True)

    async def inclusions(self) -> list[Inclusion]:
        """What each person's device comes to."""
        for _ in range(2):  # the first look draws a time
            await self.watch.check_due()
            self.clock.seconds += 20
        kept = [
            await self.budget.evidence(f"person {number}", self.digest) for number in range(_USERS)
        ]
        return [evidence.inclusion for evidence in kept if evidence is not None]

    async def result(self) -> Result:
        """What the operator gets; it always fits the task."""
        found = await self.analyzer.releases.result(self.digest)
        check_fits(found, self.analyzer.task)
        check_guarantees(found, self.analyzer.task)
        return found


@pytest.fixture
async def line(tmp_path: Path) -> AsyncIterator[Line]:
    """All three, started; nobody has answered yet."""
    started = Line(tmp_path)
    await started.start()
    yield started
    started.budget.close()
    await started.analyzer.stop()


async def test_an_honest_run_raises_no_alarm(line: Line, caplog: pytest.LogCaptureFixture) -> None:
    """Everybody is counted, every sentinel is there, and none of them counts as a user."""
    await line.contribute()
    await line.plant()
    await line.shuffler.deliver(shuffles)
    result = await line.result()

    assert [Inclusion.COUNTED] * _USERS == await line.inclusions()
    assert (_USERS, 2 * _USERS) == (result.n_users, result.n_reports)
    assert (20, 0, 0) == (
        result.n_sentinels,
        result.n_sentinels_missing,
        result.n_sentinels_repeated,
    )
    assert {"repeated": 0, "unreadable": 0, "malformed": 0} == result.refused
    assert _USERS == (await line.analyzer.store.ledger(0))[0].n_users
    assert [] == [record for record in caplog.records if record.levelname in {"ERROR", "WARNING"}]


@pytest.mark.parametrize("tampering", [drops(7), replaces(7)], ids=["drops", "replaces"])
async def test_a_user_who_is_dropped_or_replaced_has_proof_of_it(
    line: Line, tampering: Tampering, caplog: pytest.LogCaptureFixture
) -> None:
    """That person's device alone, by a signed receipt and a signed batch that lacks the answer."""
    await line.contribute()
    await line.shuffler.deliver(tampering)
    found = await line.inclusions()
    kept = await line.budget.evidence("person 7", line.digest)

    assert [7] == [number for number, one in enumerate(found) if one is Inclusion.MISSING]
    assert [Inclusion.COUNTED] * 19 == [one for one in found if one is not Inclusion.MISSING]
    assert kept is not None
    assert kept.receipt_verified
    assert 64 == len(kept.leaves)
    [record] = [record for record in caplog.records if record.levelname == "ERROR"]
    assert {"task_digest": line.digest.hex(), "state": "missing"} == vars(record)["fields"]


@pytest.mark.parametrize(
    "tampering",
    [drops(_USERS + 4), replaces(_USERS + 4), duplicates(_USERS + 4)],
    ids=["drops", "replaces", "duplicates over another"],
)
async def test_a_batch_that_lacks_a_sentinel_is_not_estimated(
    line: Line, tampering: Tampering, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is released or charged; the reports and the reason are kept."""
    await line.contribute()
    await line.plant()
    await line.shuffler.deliver(tampering)

    with pytest.raises(UnusableBatchError, match="1 of 20 sentinels are missing"):
        await line.result()
    assert [] == await line.analyzer.store.ledger(0)
    assert line.analyzer.pool.opened == 0
    assert "batch quarantined" in caplog.messages


async def test_an_order_that_was_kept_is_noticed(line: Line) -> None:
    """Sentinels stand as they were sent: their order says that nothing was shuffled."""
    await line.contribute()
    await line.plant()
    await line.shuffler.deliver(keeps_the_order)

    with pytest.raises(UnusableBatchError, match="tau with the order of sending is 1"):
        await line.result()


async def test_a_duplicated_user_is_counted_once_and_the_copy_as_refused(line: Line) -> None:
    """One of twenty users' places is taken by a copy: 2 of 40 reports, just what is allowed."""
    await line.contribute()
    await line.shuffler.deliver(duplicates(3))
    result = await line.result()

    assert 2 == result.refused["repeated"]
    assert Inclusion.MISSING is (await line.inclusions())[4]


async def test_more_copies_than_are_allowed_stop_the_release(line: Line) -> None:
    """Two of twenty places: 4 of 40 reports are refused, and at most 5 % may be."""
    await line.contribute()
    await line.shuffler.deliver(duplicates(3, times=2))

    with pytest.raises(UnusableBatchError, match="4 of the batch's 40 reports were refused"):
        await line.result()
    assert [] == await line.analyzer.store.ledger(0)


async def test_copies_of_a_sentinel_are_counted(line: Line) -> None:
    """A user's place is taken by a copy of a sentinel: the sentinels are all there."""
    await line.contribute()
    await line.plant()

    await line.shuffler.deliver(lambda _, users: ([*users[1:], users[-1]], True))
    result = await line.result()

    assert (20, 0, 2) == (
        result.n_sentinels,
        result.n_sentinels_missing,
        result.n_sentinels_repeated,
    )
    assert 2 == result.refused["repeated"]
    assert _USERS == result.n_users


async def test_a_shuffler_that_denies_what_it_took_is_held_to_its_receipt(line: Line) -> None:
    """Another key's receipt is none: the answer stays pending, and is sent again."""
    line.agent._shuffler_identity = line.analyzer.keys.identity.public_identity()
    with pytest.raises(PeerError, match="not by the shuffler identity"):
        await line.agent.contribute(line.digest, 0, "person 0")
    saved = await line.budget.find("person 0", line.digest)

    assert saved is not None
    assert SubmissionState.PENDING is saved.state
    line.agent._shuffler_identity = line.shuffler.identity.public_identity()
    await line.agent.resend_pending()
    assert [] == await line.budget.pending()


async def test_sentinels_do_not_make_up_for_users(line: Line) -> None:
    """Fourteen people and twenty sentinels are fourteen people: n_min is fifteen."""
    await line.contribute()
    await line.plant()
    await line.shuffler.deliver(lambda _, users: (users[6:], True))

    with pytest.raises(UnusableBatchError, match="14 users beside 20 sentinels"):
        await line.result()
