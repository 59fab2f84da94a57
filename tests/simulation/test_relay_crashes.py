"""
Two shufflers deliver each acknowledged report exactly once, whichever party crashes and where.

A run without a crash records all boundaries from the end of collection on.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest

from shuffledp.common.crypto.hpke import envelope_context, layer_context, split_every
from shuffledp.common.crypto.signing import KeyUse
from shuffledp.common.errors import BatchStateError
from shuffledp.common.messages.batch import BatchState
from shuffledp.common.messages.inclusion_proof import BatchCommitment
from shuffledp.common.messages.submission import split_submission
from shuffledp.common.task.draft import RelayDraft
from shuffledp.common.task.task import Task
from shuffledp.user_agent.contribution import Contributor
from tests.support.analyzer_party import AnalyzerParty, Surroundings
from tests.support.chains import FLANKS, RELAY, chain
from tests.support.faults import Boundary, Crash, Life, Loss, Network
from tests.support.keys import signed_key
from tests.support.ledger_entries import releases
from tests.support.parties import RelayParty, ShufflerParty
from tests.support.tasks import draft

T = TypeVar("T")
_USERS = 3
_ITEMS = 6
_TRIES = 30


class _Chain:
    """An analyzer and two shufflers, whose batch has all its users."""

    def __init__(self, path: Path) -> None:
        path.mkdir()
        self.around = Surroundings(path)
        self.analyzer = AnalyzerParty(self.around)
        self.relay = RelayParty(self.around, self.analyzer)
        self.shuffler = ShufflerParty(self.around, self.analyzer, self.relay)
        self.parties = (self.analyzer, self.relay, self.shuffler)

    async def begin(self) -> None:
        """Start, publish a task, and let all users answer."""
        for party in self.parties:
            await party.start()
        key = signed_key(self.relay.keys.public_key(), RELAY, KeyUse.LAYERS)
        fields = chain() | {"relay": RelayDraft(name="second.example", key=key, noise=FLANKS)}
        fields |= {"domain_size": _ITEMS, "n_min": _USERS, "target_size": _USERS}
        own = signed_key(self.shuffler.keys.public_key())
        signed = await self.analyzer.registry.publish(draft(own, **fields))
        self.task, self.digest = Task.from_bytes(signed.task_bytes), signed.digest()
        device, rng = Contributor(self.task, self.digest), np.random.default_rng(5)
        envelopes = [device.prepare(value, rng).envelope for value in range(_USERS)]
        for envelope in envelopes:
            await self.shuffler.collection.submit(self.digest, envelope)
        first, second = (
            keys.private_key(self.task.suite, own.key, whose="")
            for keys, own in zip(
                (self.shuffler.keys, self.relay.keys), self.task.shufflers, strict=True
            )
        )
        plain = [first.open(each, envelope_context(self.digest)) for each in envelopes]
        self.layers = [split_submission(each)[1] for each in plain]
        self.reports = [second.open(each, layer_context(self.digest, 1)) for each in self.layers]

    async def finish(self) -> None:
        """Let all parties go on, restarted after a crash, until the result is there."""
        for _ in range(_TRIES):
            for act in (self.shuffler.advance, self.relay.advance, self.analyzer.settle):
                await act()
            for party in self.parties:
                while party.life.over.is_set():
                    await party.end()
                    with suppress(Crash):
                        await party.start()
            if self.around.faults.countdown is None and await self.ended():
                return
        raise AssertionError("it does not end")

    async def ended(self) -> bool:
        """Return whether both shufflers have finished their batch, and the analyzer its release."""
        faults = self.around.faults
        faults.suspended, ended = True, False
        with suppress(BatchStateError):
            await self.analyzer.releases.result(self.digest)
            ended = [] == self.shuffler.batches.unfinished() + self.relay.batches.unfinished()
        faults.suspended = ended
        return ended

    async def check(self) -> None:
        """Check that each report was sent and counted once, and that no secret is left."""
        for link, hop, own in (
            (self.shuffler.to_relay, 1, self.layers),
            (self.relay.link, 2, self.reports),
        ):
            assert link is not None
            [(manifest, parts)] = link.delivered.items()
            sent = b"".join(parts[number] for number in sorted(parts))
            sent_reports = split_every(sent, self.task.report_bytes_at(hop))
            assert [1] * _USERS == [sent_reports.count(each) for each in own]
            assert manifest.n_reports == len(sent_reports) == len(set(sent_reports))
            assert (_USERS, 0) == (manifest.n_users, manifest.n_discarded)
        [entry] = releases(await self.analyzer.store.ledger(0))
        result = await self.analyzer.releases.result(self.digest)
        assert (_USERS, 0, manifest.n_reports) == (
            *(entry.n_users, entry.n_refused, result.n_reports),
        )
        stored = await self.shuffler.store.get(self.digest)
        assert [BatchState.ERASED] * 2 == [stored.state, await self.relay.state_of(self.digest)]
        left = [*self.shuffler.path.glob("*-*.key"), *self.relay.state.path.glob("*-*.key")]
        assert {"hpke"} == {file.name.partition("-")[0] for file in left}
        commitment, _ = await self.shuffler.inclusions.relay(self.digest, None)
        assert isinstance(commitment, BatchCommitment)
        commitment.verify(RELAY.public_identity(), self.digest, manifest.n_reports * 2)


class _LossyNetwork(Network):
    """Loses the request or the response of one call, by its number."""

    calls = 0
    lost: tuple[int, Loss] | None = None

    async def call(
        self, caller: Life, callee: Life, act: str, work: Callable[[], Awaitable[T]]
    ) -> T:
        """See Network."""
        if self.lost is not None and self.calls == self.lost[0]:
            self.losses[callee.party] = self.lost[1]
        self.calls += 1
        return await super().call(caller, callee, act, work)


async def _run(
    path: Path, crash: int | None, lost: tuple[int, Loss] | None = None
) -> list[Boundary]:
    parties = _Chain(path)
    faults, network = parties.around.faults, _LossyNetwork()
    parties.around.network = network
    try:
        await parties.begin()
        faults.crossed.clear()
        faults.countdown = crash
        network.calls, network.lost = 0, lost
        await parties.finish()
        await parties.check()
    finally:
        for party in parties.parties:
            await party.end()
    assert (crash is None) == (not faults.crashes), "the crash was not reached"
    assert lost is None or network.calls > lost[0], "no call was lost"
    return faults.crossed


@pytest.mark.parametrize(
    "every",
    [pytest.param(False, id="a fortieth"), pytest.param(True, id="all", marks=pytest.mark.slow)],
)
async def test_a_crash_at_any_boundary_loses_and_doubles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, every: bool
) -> None:
    """Of the first shuffler, the relay or the analyzer; batches have several parts."""
    monkeypatch.setattr("shuffledp.shuffler.shuffle_job.PART_BYTES", 64 * 200)
    monkeypatch.setattr("shuffledp.shuffler.shuffle_job.BLOCK_BYTES", 1)
    boundaries = await _run(tmp_path / "no crash", None)
    assert {"shuffler", "relay", "analyzer"} == {each.party for each in boundaries}
    assert {"open", "scatter", "permute"} <= {
        each.act for each in boundaries if each.party == "relay"
    }
    first: dict[Boundary, int] = {}
    for number, boundary in enumerate(boundaries):
        first.setdefault(boundary, number)
    numbers = range(len(boundaries)) if every else list(first.values())[::40]
    for number in numbers:
        await _run(tmp_path / f"crash {number}", number)


@pytest.mark.parametrize("how", [pytest.param("request", marks=pytest.mark.slow), "response"])
async def test_a_lost_message_loses_and_doubles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: Loss
) -> None:
    """Of any call between the parties; a part whose answer was lost is not stored twice."""
    monkeypatch.setattr("shuffledp.shuffler.shuffle_job.PART_BYTES", 64 * 800)
    for number in range(8):
        await _run(tmp_path / f"call {number}", None, (number, how))
