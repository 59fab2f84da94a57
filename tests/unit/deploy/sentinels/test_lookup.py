"""Sentinels of a task with two shufflers: the one that loses or replaces one is found and named."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any, Final, cast

import pytest

from shuffledp.audit.harness.party_cores import part_header
from shuffledp.common.crypto.hpke import split_every
from shuffledp.common.crypto.signing import KeyUse, PublicIdentity, SignedTask, sign_receipt
from shuffledp.common.errors import ProofError, SettingsError
from shuffledp.common.messages.batch import BatchPart, TaskState
from shuffledp.common.messages.inclusion_proof import InclusionProof, leaf
from shuffledp.common.task.draft import RelayDraft
from shuffledp.common.task.sealing import report_sealer
from shuffledp.common.task.task import Task
from shuffledp.common.task_digest import TaskDigest
from shuffledp.deploy.clients.analyzer import OperatorClient
from shuffledp.deploy.results.verification import check_fits, recompute_guarantees
from shuffledp.deploy.sentinels.planting import Lookup, SentinelRun, look_up, show
from shuffledp.deploy.terminal.console import terminal
from shuffledp.user_agent.contribution import Contributor
from tests.support.analyzer_party import AnalyzerParty, Surroundings
from tests.support.chains import FLANKS, RELAY, chain
from tests.support.keys import SHUFFLER, signed_key
from tests.support.leaves import commitment_over, some_leaves
from tests.support.parties import RelayParty, ShufflerParty
from tests.support.tasks import draft

_USERS: Final = 3
_SENTINELS: Final = 13
_RELAY: Final = RELAY.public_identity()


class _Chain:
    """All parties of a task, whose users and sentinels have answered."""

    def __init__(self, path: Path) -> None:
        self.path, self.around = path, Surroundings(path)
        self.analyzer = AnalyzerParty(self.around)
        self.relay = RelayParty(self.around, self.analyzer)
        self.shuffler = ShufflerParty(self.around, self.analyzer, self.relay)

    async def begin(self, replaced: int | None = None) -> None:
        """Start; the first shuffler may store an invented user in the place of a sentinel."""
        for party in (self.analyzer, self.relay, self.shuffler):
            await party.start()
        key = signed_key(self.relay.keys.public_key(), RELAY, KeyUse.LAYERS)
        fields = chain() | {"relay": RelayDraft(name="second.example", key=key, noise=FLANKS)}
        fields |= {"domain_size": 6, "n_min": _USERS, "target_size": _USERS + _SENTINELS}
        own = signed_key(self.shuffler.keys.public_key())
        signed = await self.analyzer.registry.publish(draft(own, **fields))
        self.task, self.digest = Task.from_bytes(signed.task_bytes), signed.digest()
        rng, device = self.around.rng(), Contributor(self.task, self.digest)
        *users, invented = (device.prepare(value, rng).envelope for value in range(_USERS + 1))
        self.replaced, self.invented, self.sent = replaced, invented, -_USERS
        for envelope in users:
            await self.submit(self.digest, envelope)
        run = SentinelRun(
            digest=self.digest,
            analyzer=cast("OperatorClient", self.analyzer.registry),
            connect=lambda: nullcontext(self),
            file=self.path / "sentinels.jsonl",
            rng=rng,
        )
        self.planted = await run.plant(_SENTINELS, over=0.0)

    async def fetch_task(self, digest: TaskDigest) -> SignedTask:
        """Return the task, as the first shuffler does."""
        return await self.shuffler.fetch_task(digest)

    async def submit(self, digest: TaskDigest, envelope: bytes, token: bytes = b"") -> bytes:
        """Store an envelope at the first shuffler, or an invented one."""
        stored = self.invented if self.sent == self.replaced else envelope
        await self.shuffler.collection.submit(digest, stored, token)
        self.sent += 1
        return sign_receipt(SHUFFLER, digest, envelope)

    async def inclusion(self, digest: TaskDigest, prefix: int | None) -> InclusionProof:
        """Ask the first shuffler for a proof."""
        return await self.shuffler.inclusion(digest, prefix)

    def replace_behind_relay(self, number: int) -> None:
        """Let the relay send a report of its own in a sentinel's place."""
        size, lost = self.task.sealed_report_bytes, self.planted[number].leaves
        invented = report_sealer(self.task, self.digest, 2)(bytes(4))

        def replaced(reports: list[bytes]) -> list[bytes]:
            return [invented if leaf(each) == lost else each for each in reports]

        self.tamper(lambda content: replaced(split_every(content, size)))

    def tamper(self, change: Callable[[bytes], list[bytes]]) -> None:
        """Let the relay send other reports than it permuted."""
        deliver = self.relay.link.deliver_part

        async def dishonest(part: BatchPart, chunks: Iterable[memoryview]) -> None:
            reports = change(b"".join(chunks))
            header = part_header(part.task_digest, part.part, reports)
            await deliver(header, [memoryview(b"".join(reports))])

        vars(self.relay.link)["deliver_part"] = dishonest

    async def finish(self) -> tuple[TaskState, str]:
        """Let all parties go on; return the task's state at the analyzer, and the reason."""
        for act in (self.shuffler.advance, self.relay.advance, self.analyzer.settle):
            await act()
        _, summary = await self.analyzer.registry.describe(self.digest)
        return summary.state, summary.failure

    async def look_up(self, relay: PublicIdentity | None = _RELAY) -> Lookup:
        """Look the sentinels up, as their owner."""
        pinned = self.analyzer.keys.identity.public_identity()
        return await look_up(self, self.digest, self.planted, pinned, relay)


@asynccontextmanager
async def _started(path: Path, replaced: int | None = None) -> AsyncIterator[_Chain]:
    started = _Chain(path)
    await started.begin(replaced)
    yield started
    for party in (started.shuffler, started.relay, started.analyzer):
        await party.end()


@pytest.fixture
async def parties(tmp_path: Path) -> AsyncIterator[_Chain]:
    """Yield parties that are about to deliver."""
    async with _started(tmp_path) as started:
        yield started


async def test_every_sentinel_passes_two_honest_shufflers(
    parties: _Chain, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are looked up as layers at the first hop; the analyzer matches what is inside."""
    with pytest.raises(ProofError, match="not been delivered"):
        await parties.look_up()
    assert (TaskState.RELEASED, "") == await parties.finish()
    result = await parties.analyzer.releases.result(parties.digest)
    check_fits(result, parties.task)
    recompute_guarantees(result, parties.task)
    found = await parties.look_up()

    assert (_USERS, _SENTINELS, 0) == (
        *(result.n_users, result.n_sentinels),
        result.n_sentinels_missing,
    )
    assert Lookup(signer="relay", checked=_SENTINELS, missing=[]) == found
    assert all(one.layers and one.layers != one.leaves for one in parties.planted)
    for identity, error in ((None, SettingsError), (SHUFFLER.public_identity(), ProofError)):
        with pytest.raises(error):
            await parties.look_up(identity)
    show(found, terminal())
    assert (
        "13 of 13 acknowledged sentinels are in the batch that the second shuffler signed for"
        in (" ".join(capsys.readouterr().out.split()))
    )


_MISSING: Final = "1 of 13 sentinels are missing; the first shuffler acknowledged all of them, and"


@pytest.mark.parametrize("first", [True, False])
async def test_the_shuffler_that_replaces_a_sentinel_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], *, first: bool
) -> None:
    """The analyzer quarantines the batch; whether the layer arrived tells who lost the report."""
    async with _started(tmp_path, 4 if first else None) as parties:
        if not first:
            parties.replace_behind_relay(4)
        state, why = await parties.finish()
        found = await parties.look_up()
        await parties.analyzer.releases.decide(parties.digest, "release", "looked into")
        await parties.analyzer.settle()
        result = await parties.analyzer.releases.result(parties.digest)
        recompute_guarantees(result, parties.task)

    assert (TaskState.QUARANTINED, True) == (state, why.startswith(_MISSING))
    assert [4] * first == found.missing
    assert 1 == result.n_sentinels_missing
    # One of the two is still taken to be honest: not both.
    epsilon = result.guarantees[0].epsilon
    assert parties.task.central_epsilon < epsilon <= parties.task.coalition_epsilon
    show(found, terminal())
    told = " ".join(capsys.readouterr().out.split())
    assert first == ("The first shuffler lost the others, in the file's order from 0: 4." in told)
    assert "Any of those that the analyzer misses (see result --json; in quarantine, task" in told


async def test_a_second_shuffler_that_keeps_the_order_is_named(parties: _Chain) -> None:
    """Whatever the first one did."""
    order = {one.leaves: number for number, one in enumerate(parties.planted)}

    def in_order(content: bytes) -> list[bytes]:
        reports = split_every(content, parties.task.sealed_report_bytes)
        return sorted(reports, key=lambda each: order.get(leaf(each), -1))

    parties.tamper(in_order)
    state, why = await parties.finish()

    assert TaskState.QUARANTINED is state
    assert why.endswith("is 1.00: the second shuffler did not permute")


async def test_an_analyzer_that_loses_a_report_is_named_by_the_second_shuffler(
    parties: _Chain, caplog: pytest.LogCaptureFixture
) -> None:
    """It signs for other reports than it got; the relay compares. No first shuffler is accused."""
    finish: Callable[[TaskDigest], Awaitable[Any]] = parties.relay.link.finish_delivery

    async def forget(digest: TaskDigest) -> Any:
        await finish(digest)
        return commitment_over(some_leaves(200), parties.analyzer.keys.identity, digest)

    vars(parties.relay.link)["finish_delivery"] = forget
    await parties.finish()

    assert "analyzer signed other reports than were sent" in caplog.messages
    assert [] == (await parties.look_up()).missing
