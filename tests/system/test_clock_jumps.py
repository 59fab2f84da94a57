"""Real services whose wall clock jumps, while they run and between their starts."""

import asyncio
import random
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import grpc
import pytest

from shuffledp.common.crypto.key_ring import KeyRing
from shuffledp.common.crypto.signing import SignedTask
from shuffledp.common.messages.batch import BatchState
from shuffledp.common.messages.submission import Outcome
from shuffledp.common.runtime.rpc import open_channel, reply
from shuffledp.common.wire.batches import status_from_wire
from shuffledp.common.wire.submissions import outcomes_from_wire
from shuffledp.deploy.clients.analyzer import OperatorClient
from shuffledp.deploy.clients.issuer import IssuerClient
from shuffledp.deploy.clients.local_cluster import Cluster
from shuffledp.deploy.clients.local_parties import Child
from shuffledp.protos.shuffledp.v1 import shuffler_pb2, shuffler_pb2_grpc
from tests.support.clients import envelopes
from tests.support.faked_time import FakedTime
from tests.support.tasks import draft

_DAY: Final = 86_400
_JUMPS: Final = [
    sign * size for sign in (-1, 1) for size in (5, 90, 7200, 3 * _DAY, 400 * _DAY, 3650 * _DAY)
]
_CALLS: Final = 20
_PER_CALL: Final = 3
_PARTIES: Final = ("analyzer", "shuffler", "issuer", "user_agent", "witness")
_TOLD: Final = '"event": "clock disagrees'


class _Plain(Cluster):
    """The parties and a witness without certificates, which a wrong clock would call expired."""

    witness: Child

    async def start_user_agent(self, **changes: Any) -> None:
        """Start the user agent, and a witness the first time."""
        if not hasattr(self, "witness"):
            await self.start_witness()
        await super().start_user_agent(**changes)

    async def start_witness(self, **changes: str) -> None:
        """Start the witness."""
        self.witness = await self._start(
            "witness", **{"analyzer_identity": self.identity, **changes}
        )

    async def stop(self) -> None:
        """Stop all."""
        await super().stop()
        if hasattr(self, "witness"):
            await self.witness.stop()

    def operator(self) -> OperatorClient:
        """Return a client of the analyzer."""
        token = self.directory / "analyzer" / "operator.token"
        return OperatorClient.connect(self.analyzer.address, None, token)

    async def create_task(self, n_users: int, seconds: int) -> SignedTask:
        """Publish a task that ends when `n_users` have answered, or expires after `seconds`."""
        fields = {"n_min": n_users, "target_size": n_users, "local_epsilon": 4.0}
        deadline = int(time.time()) + seconds
        async with self.operator() as operator:
            signed, _ = await operator.publish_task(
                draft(self.shuffler_key, deadline=deadline, **fields)
            )
            return signed

    async def create_key(self, seconds: int) -> None:
        """Create a token key that ends after `seconds`."""
        token = self.directory / "issuer" / "operator.token"
        async with IssuerClient.connect(self.issuer.address, None, token) as client:
            await client.create_key(int(time.time()) + seconds)

    async def submit(self, signed: SignedTask, submissions: list[bytes]) -> list[Outcome]:
        """Submit envelopes in one call."""
        request = shuffler_pb2.SubmitBulkRequest(task_digest=signed.digest(), envelopes=submissions)
        async with self._channel() as channel:
            stub = shuffler_pb2_grpc.ShufflerStub(channel)
            answer = await reply(stub.SubmitBulk(request, timeout=20), "the shuffler")
        return list(outcomes_from_wire(answer))

    async def state_of(self, signed: SignedTask) -> BatchState:
        """Return the state of a task's batch."""
        request = shuffler_pb2.GetBatchStatusRequest(task_digest=signed.digest())
        async with self._channel() as channel:
            stub = shuffler_pb2_grpc.ShufflerStub(channel)
            return status_from_wire(await stub.GetBatchStatus(request, timeout=20)).state

    async def restart(self, party: str) -> None:
        """Stop a party, and start it at the same address."""
        child = getattr(self, party)
        assert 0 == await child.stop()
        settings = {} if party == "user_agent" else {"listen": child.address}
        await getattr(self, f"start_{party}")(**settings)

    def keys(self) -> set[str]:
        """Return the names of all private keys."""
        return {f"{path.parent.name}/{path.name}" for path in self.directory.glob("*/*.key")}

    async def confirm_clocks(self, faked: FakedTime) -> None:
        """Confirm the clock to all parties."""
        for party in _PARTIES:
            status, printed, _ = await asyncio.to_thread(
                faked.run, "keys", "confirm-clock", str(self.directory / party)
            )
            assert (0, True) == (status, printed.startswith("Confirmed: "))

    def told(self) -> list[str]:
        """Return the parties whose operators are told of a wrong clock."""
        logs = {party: self.directory / f"{party}.log" for party in _PARTIES}
        return [party for party, log in logs.items() if _TOLD in log.read_text(encoding="utf-8")]

    def _channel(self) -> grpc.aio.Channel:
        return open_channel(self.shuffler.address, "shuffler", None)


def _plain(folder: Path, faked: FakedTime) -> _Plain:
    return _Plain(folder, faked.environment, ("Ada",), tls_directory=None, plaintext=True)


@pytest.fixture
def faked(tmp_path: Path) -> FakedTime:
    """The wall clock of the services."""
    return FakedTime(tmp_path)


@pytest.fixture
async def cluster(tmp_path: Path, faked: FakedTime) -> AsyncIterator[_Plain]:
    """The parties and a witness, without certificates."""
    async with _plain(tmp_path, faked) as started:
        yield started


@pytest.mark.slow
async def test_no_answer_and_no_key_is_lost_over_twenty_jumps(
    cluster: _Plain, faked: FakedTime
) -> None:
    """
    Every acknowledged answer is counted once, and all operators are told.

    The clock jumps by seconds, days and years, forwards and back, between calls; every party is
    restarted at a wrong time. The task needs every answer, so an early end would destroy them all.
    """
    moments = random.Random(1)  # noqa: S311  # moments of jumps are no secret
    jumps = moments.sample(_JUMPS, len(_JUMPS)) + moments.choices(_JUMPS, k=_CALLS - len(_JUMPS))
    signed = await cluster.create_task(_CALLS * _PER_CALL, _DAY)
    await cluster.create_key(_DAY)
    submissions = envelopes(signed, _CALLS * _PER_CALL)
    keys = cluster.keys()
    for number, jump in enumerate(jumps):
        faked.shift(jump)
        await asyncio.sleep(1.2)
        if number % 3 == 0:
            await cluster.restart(_PARTIES[number // 3 % len(_PARTIES)])
        call = submissions[number::_CALLS]
        assert [Outcome.STORED] * _PER_CALL == await cluster.submit(signed, call)
        assert keys <= cluster.keys()
    faked.shift(0)
    async with cluster.operator() as operator, asyncio.timeout(60):
        result = await operator.wait_for_result(signed.digest())

    assert (_CALLS * _PER_CALL, 0) == (result.n_users, sum(result.refused.values()))
    assert list(_PARTIES) == cluster.told()


@pytest.mark.slow
async def test_a_year_off_destroys_nothing_before_the_clock_is_confirmed(
    cluster: _Plain, faked: FakedTime
) -> None:
    """Then the ordinary rules run: the batch expires, and the ended token key is destroyed."""
    signed = await cluster.create_task(10, _DAY)
    await cluster.create_key(_DAY)
    [stored] = await cluster.submit(signed, envelopes(signed, 1))
    keys = cluster.keys()
    faked.shift(365 * _DAY)
    for party in _PARTIES:
        await cluster.restart(party)
    await asyncio.sleep(2)

    assert Outcome.STORED is stored
    assert BatchState.COLLECTING is await cluster.state_of(signed)
    assert keys <= cluster.keys()
    assert list(_PARTIES) == cluster.told()

    await cluster.confirm_clocks(faked)
    async with asyncio.timeout(30):
        while await cluster.state_of(signed) is BatchState.COLLECTING:
            await asyncio.sleep(0.1)
    await cluster.restart("issuer")

    assert BatchState.EXPIRED is await cluster.state_of(signed)
    gone = {name.partition("-")[0] for name in keys - cluster.keys()}
    assert {"issuer/token", "shuffler/batch"} == gone


@pytest.mark.slow
async def test_a_first_start_years_ahead_closes_nothing_once_the_clock_is_right(
    tmp_path: Path, faked: FakedTime
) -> None:
    """All go on at the right time, also over a restart; keys are not dated ahead for years."""
    faked.shift(3650 * _DAY)
    async with _plain(tmp_path, faked) as cluster:
        faked.shift(0)
        signed = await cluster.create_task(2, _DAY)
        await cluster.create_key(_DAY)
        first, last = envelopes(signed, 2)
        keys = cluster.keys()
        assert [Outcome.STORED] == await cluster.submit(signed, [first])
        await asyncio.sleep(2)
        assert BatchState.COLLECTING is await cluster.state_of(signed)
        assert list(_PARTIES) == cluster.told()

        await cluster.confirm_clocks(faked)
        for party in _PARTIES:
            await cluster.restart(party)
        assert keys <= cluster.keys()
        assert [Outcome.STORED] == await cluster.submit(signed, [last])
        async with cluster.operator() as operator, asyncio.timeout(60):
            result = await operator.wait_for_result(signed.digest())
        for party in ("analyzer", "shuffler"):
            ring = KeyRing.from_json(cluster.published(party, "keys.json"))
            assert all(entry.since <= time.time() for entry in ring.entries)
    assert (2, 0) == (result.n_users, sum(result.refused.values()))
