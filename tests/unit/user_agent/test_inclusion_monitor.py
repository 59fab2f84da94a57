import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest

from common.crypto.merkle import prefix_of, salted, split
from common.crypto.receipt import envelope_hash, receipt_holds
from common.crypto.signing import SigningIdentity
from common.errors import UnknownTaskError
from common.task.shuffler_spec import ShufflerSpec
from deploy.audit.harness.clock import ManualClock
from tests.support.devices import agent_of
from tests.support.leaves import SALT, commitment_over, some_leaves, tree_over
from tests.support.policies import generous
from tests.support.shufflers import MemoryShuffler
from tests.support.tasks import PublishedTask, published
from user_agent.budget import Budget
from user_agent.evidence import Evidence, InclusionState
from user_agent.inclusion_monitor import MOST_ASKED, InclusionMonitor, to_ask

_CASE = published()
_DAY = 24 * 3600


class Device:
    """A device whose shuffler shows what a test says."""

    def __init__(self, path: Path, case: PublishedTask = _CASE) -> None:
        self.case, self.digest = case, case.signed.digest()
        self.path = path
        self.shuffler = MemoryShuffler(case.signed)
        self.clock = ManualClock()
        self.agent = agent_of(
            path,
            case,
            self.shuffler,
            clock=self.clock,
            policy=generous(case.identity.public_identity(), float("inf")),
            shuffler_identity=self.shuffler.identity.public_identity(),
        )
        self.budget = self.agent.budget
        self.watch = InclusionMonitor(
            shuffler=self.shuffler,
            budget=self.budget,
            identity=case.identity.public_identity(),
            clock=self.clock,
            rng=np.random.default_rng(2),
            pause=100.0,
        )

    async def evidence(self) -> Evidence:
        """What is kept of the answer."""
        kept = await self.budget.evidence("", self.digest)
        assert kept is not None
        return kept

    def show(self, leaves: list[bytes], signer: SigningIdentity | None = None) -> None:
        """Let the shuffler show a batch of these leaves, signed by the analyzer."""
        signer = signer or self.case.identity
        self.shuffler.tree = tree_over(leaves)
        self.shuffler.commitment = commitment_over(leaves, signer, self.digest)

    async def check(self) -> InclusionState:
        """Let some time pass, and see what the device makes of it."""
        for _ in range(2):
            await self.watch.check_due()
            self.clock.seconds += 200
        return (await self.evidence()).inclusion


@pytest.fixture
async def device(tmp_path: Path) -> AsyncIterator[Device]:
    """A device that has answered."""
    started = Device(tmp_path)
    await started.agent.contribute(started.digest, 3, "")
    yield started
    started.budget.close()


async def test_an_answer_that_was_counted_is_forgotten_but_for_that(device: Device) -> None:
    """Leaves name reports among all that the analyzer received: none is kept for longer."""
    own = split((await device.evidence()).leaves)
    device.show([*some_leaves(1500), *own])

    assert InclusionState.COUNTED is await device.check()
    assert b"" == (await device.evidence()).leaves
    device.budget.close()
    stored = b"".join(path.read_bytes() for path in device.path.glob("budget.sqlite"))
    assert own[0] not in stored
    device.budget = Budget(device.path / "budget.sqlite")


async def test_an_answer_of_which_a_report_is_missing_is_kept_as_evidence(device: Device) -> None:
    """One of two is enough, and nothing overwrites the finding."""
    own = split((await device.evidence()).leaves)
    device.show([*some_leaves(1500), own[0]])

    assert InclusionState.MISSING is await device.check()
    device.show([*some_leaves(1500), *own])
    assert InclusionState.MISSING is await device.check()
    assert own == split((await device.evidence()).leaves)


async def test_only_prefixes_are_asked_for(device: Device) -> None:
    """First the commitment alone, then a bucket of some 375 leaves for each own one."""
    own = split((await device.evidence()).leaves)
    device.show([*some_leaves(1500), *own])
    await device.check()

    assert device.shuffler.asked[0] is None
    assert sorted(prefix_of(salted(SALT, leaf), 2) for leaf in own) == sorted(
        prefix for prefix in device.shuffler.asked if prefix is not None
    )


async def test_what_proves_nothing_concludes_nothing(
    device: Device, caplog: pytest.LogCaptureFixture
) -> None:
    """A stranger's signature, or a tree beside the signed root; a later proof still counts."""
    own = split((await device.evidence()).leaves)
    device.show([*some_leaves(1500), *own], signer=SigningIdentity.generate())
    assert InclusionState.UNCHECKED is await device.check()
    assert [None] == sorted(set(device.shuffler.asked), key=str)  # no prefix was told

    device.show([*some_leaves(1500), *own])
    device.shuffler.tree = tree_over(some_leaves(1502))
    assert InclusionState.UNCHECKED is await device.check()
    assert "proof does not hold" in caplog.messages

    device.show([*some_leaves(1500), *own])
    assert InclusionState.COUNTED is await device.check()


async def test_a_proof_is_checked_before_the_next_one_is_asked_for(device: Device) -> None:
    """A shuffler that shows long buckets of no worth shows one of them a time."""
    own = split((await device.evidence()).leaves)
    device.show([*some_leaves(1500), *own])
    device.shuffler.tree = tree_over(some_leaves(1502))
    await device.check()

    assert len(own) == 2
    assert len(device.shuffler.asked) == 2  # the commitment, and one bucket


async def test_long_after_the_deadline_a_proof_that_was_never_shown_is_missed(
    device: Device, caplog: pytest.LogCaptureFixture
) -> None:
    """Two weeks; until then the batch may be on its way."""
    assert InclusionState.UNCHECKED is await device.check()
    device.clock.seconds = float(_CASE.task.deadline + 14 * _DAY - 200)
    assert InclusionState.UNCHECKED is await device.check()
    device.clock.seconds = float(_CASE.task.deadline + 14 * _DAY + 1)
    assert InclusionState.UNPROVEN is await device.check()
    assert "answer checked" in caplog.messages


async def test_when_to_ask_is_drawn(device: Device) -> None:
    """Within a pause of the first look, not at once; then within half and one and a half."""
    await device.watch.check_due()
    assert [] == device.shuffler.asked
    [first] = device.watch._not_before.values()
    assert 0 < first - device.clock.seconds < 100

    device.clock.seconds = first
    await device.watch.check_due()
    [second] = device.watch._not_before.values()
    assert [None] == device.shuffler.asked
    assert 50 <= second - first < 150


async def test_where_the_shuffler_samples_nothing_is_asked_or_kept(tmp_path: Path) -> None:
    """A missing report proves nothing there, and whether it is there is to stay a secret."""
    case = published(
        protocol="sbin",
        buckets=0,
        dummies_per_user=0,
        local_epsilon=float("inf"),
        n_min=1000,
        target_size=2000,
        shuffler=ShufflerSpec(law="binomial", keep_weight=2**31, trials=4000, most=4000),
    )
    device = Device(tmp_path, case)
    await device.agent.contribute(device.digest, 3, "")
    device.show(some_leaves(100))

    assert InclusionState.SAMPLED is await device.check()
    assert b"" == (await device.evidence()).leaves
    assert [] == device.shuffler.asked
    device.budget.close()


async def test_a_person_is_told_what_is_known(device: Device) -> None:
    """State, finding, and a receipt that anybody can verify; of no other task."""
    record = await device.agent.record(device.digest, "")
    [envelope] = device.shuffler.received
    shuffler = device.shuffler.identity.public_identity()

    assert ("arrived", "unchecked", True) == (
        record.state,
        record.inclusion,
        record.receipt_verified,
    )
    assert envelope_hash(envelope) == record.envelope_hash
    assert receipt_holds(shuffler, device.digest, envelope, record.receipt)
    other = published().signed.digest()
    with pytest.raises(UnknownTaskError):
        await device.agent.record(other, "")


async def test_without_a_pinned_shuffler_a_receipt_is_kept_unverified(tmp_path: Path) -> None:
    """Whoever learns the identity later can still verify it."""
    device = Device(tmp_path)
    device.agent.shuffler_identity = None
    await device.agent.contribute(device.digest, 3, "")
    record = await device.agent.record(device.digest, "")

    assert not record.receipt_verified
    assert 64 == len(record.receipt)
    device.budget.close()


async def test_an_answer_of_an_earlier_version_is_told_without_evidence(device: Device) -> None:
    """Its file has no row of evidence."""
    device.budget.close()
    connection = sqlite3.connect(device.path / "budget.sqlite")
    with connection:
        connection.execute("DROP TABLE evidence")
    connection.close()
    device.budget = device.agent.budget = Budget(device.path / "budget.sqlite")
    record = await device.agent.record(device.digest, "")

    assert ("arrived", "unchecked", b"") == (record.state, record.inclusion, record.receipt)


def test_of_very_many_reports_some_drawn_at_random_are_asked_for() -> None:
    """64 of a thousand, others each time; all of few."""
    leaves = some_leaves(1000)
    rng = np.random.default_rng(1)
    first, second = to_ask(b"".join(leaves), rng), to_ask(b"".join(leaves), rng)

    assert MOST_ASKED == len(set(first)) == len(set(second))
    assert first != second
    assert set(leaves[:5]) == set(to_ask(b"".join(leaves[:5]), rng))


async def test_leaves_leave_the_disk_when_they_have_been_counted(device: Device) -> None:
    """With what the analyzer keeps they would name the person's reports."""
    evidence = await device.evidence()
    own = split(evidence.leaves)

    def left() -> list[bytes]:
        files = b"".join(file.read_bytes() for file in device.path.glob("budget.sqlite*"))
        return [leaf for leaf in own if leaf in files]

    assert own == left()
    await device.budget.conclude(evidence, InclusionState.COUNTED)

    assert [] == left()
