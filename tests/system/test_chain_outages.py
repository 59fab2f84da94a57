"""A second shuffler that is restored or set back, and parties of a chain that are away for long."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Final

import numpy as np
import pytest

from shuffledp.common.crypto.signing import SignedTask
from shuffledp.common.errors import PeerError, PeerRefusalError, SettingsError, ShuffleDpError
from shuffledp.common.messages.batch import BatchState
from shuffledp.deploy.clients.user_agent import ask_for_receipt, send
from tests.scale.chain_cluster import ChainCluster
from tests.scale.cluster import kill
from tests.support.chain_adversaries import deliver, first_shuffler, manifest_of, sealed

pytestmark = pytest.mark.slow

_ITEMS: Final = 20
_USERS: Final = 40
_VALUES: Final = [user % 7 for user in range(_USERS)]
_NOISE: Final = 25 * _ITEMS
_PATIENCE: Final = 60.0
_AWAY: Final = 8.0
"""Seconds: several tries, and more than a call's usual pause."""


@pytest.fixture
async def chained(tmp_path: Path) -> AsyncIterator[ChainCluster]:
    """An analyzer, two shufflers and a user agent."""
    async with ChainCluster(tmp_path) as started:
        yield started


async def _count(cluster: ChainCluster, signed: SignedTask) -> list[int]:
    """Wait for the result; return the counts less both shufflers' noise."""
    async with cluster.operator() as operator, asyncio.timeout(_PATIENCE):
        await operator.wait_for_result(signed.digest())
    counts: list[int] = (cluster.cells(signed) - sum(cluster.noise(signed))).tolist()
    return counts


def _expected(*values: int) -> list[int]:
    counts: list[int] = np.bincount(values, minlength=_ITEMS).tolist()
    return counts


async def _collect(cluster: ChainCluster, users: int = _USERS) -> SignedTask:
    signed = await cluster.publish_chain(users, _ITEMS)
    await cluster.submit(signed, _VALUES)
    return signed


async def _until(is_true: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(_PATIENCE):
        while not await is_true():
            await asyncio.sleep(0.05)


async def _batch_is(cluster: ChainCluster, signed: SignedTask, state: BatchState) -> None:
    """Wait for a state of the first shuffler's batch."""

    async def reached() -> bool:
        async with cluster.shuffler_operator() as operator:
            return (await operator.progress(signed.digest())).state is state

    await _until(reached)


async def _refusal(
    cluster: ChainCluster, signed: SignedTask, kind: type[ShuffleDpError] = PeerRefusalError
) -> str:
    """Return the relay's answer to another delivery of a task by the first shuffler."""
    assert cluster.relay
    layers = sealed(signed, [0] * (_USERS + _NOISE))
    async with first_shuffler(cluster.directory / "tls", cluster.relay.address) as client:
        with pytest.raises(kind) as refused:
            await deliver(client, manifest_of(signed.digest(), _USERS, len(layers)), layers)
    return str(refused.value)


async def _restart_relay(cluster: ChainCluster, change: Callable[[Path], object]) -> None:
    """Stop the relay, change its files, and start it."""
    assert cluster.relay
    await cluster.relay.stop()
    await asyncio.to_thread(change, cluster.relay.state)
    await cluster.start_relay(listen=cluster.relay.address)


async def test_a_restored_relay_opens_no_layer_of_an_earlier_task(
    chained: ChainCluster, tmp_path: Path
) -> None:
    """
    Its backup has no keys: whatever was released is refused, and what is open waits for them.

    Both operators read of it in the log; the next task is not affected.
    """
    without = shutil.ignore_patterns("unsaved")
    backup, keys = tmp_path / "backup", tmp_path / "keys"

    def restore(state: Path) -> None:
        (state / "unsaved").rename(keys)
        shutil.rmtree(state)
        backup.rename(state)

    def put_right(state: Path) -> None:
        shutil.rmtree(state / "unsaved")
        keys.rename(state / "unsaved")

    released, waiting = await _collect(chained), await _collect(chained, _USERS + 1)
    assert _expected(*_VALUES) == await _count(chained, released)
    await _restart_relay(chained, lambda state: shutil.copytree(state, backup, ignore=without))
    later = await _collect(chained)
    assert _expected(*_VALUES) == await _count(chained, later)
    await _restart_relay(chained, restore)

    assert "one task, one release" in await _refusal(chained, released)
    for signed in (waiting, later):
        assert "is not a key of this party" in await _refusal(chained, signed, PeerError)
    await send(chained.user_agent.address, waiting.digest(), 1, "Ada")
    await _batch_is(chained, waiting, BatchState.PERMUTED)
    assert _expected(*_VALUES) == await _count(chained, await _collect(chained))
    assert chained.relay
    assert "no key in STATE/unsaved" in chained.relay.log.read_text(encoding="utf-8")
    assert "batch cannot move on yet" in chained.shuffler.log.read_text(encoding="utf-8")
    await _restart_relay(chained, put_right)
    assert _expected(*_VALUES, 1) == await _count(chained, waiting)


async def test_a_relay_whose_database_is_set_back_takes_no_other_input(
    chained: ChainCluster, tmp_path: Path
) -> None:
    """
    The mark of a task is beside the keys.

    While a batch is not delivered it does not start, and delivers once the right database is back.
    """
    before, right = tmp_path / "before", tmp_path / "right"

    def set_back(state: Path) -> None:
        right.mkdir(exist_ok=True)
        for file in state.glob("relay.sqlite*"):
            file.replace(right / file.name)
        shutil.copy(before, state / "relay.sqlite")

    def put_right(state: Path) -> None:
        for file in right.iterdir():
            file.replace(state / file.name)

    await _restart_relay(chained, lambda state: shutil.copy(state / "relay.sqlite", before))
    released = await _collect(chained)
    assert _expected(*_VALUES) == await _count(chained, released)
    await _restart_relay(chained, set_back)
    assert "its noise is drawn" in await _refusal(chained, released)

    await _restart_relay(chained, put_right)
    undelivered = await chained.publish_chain(_USERS, _ITEMS)
    await chained.submit(undelivered, _VALUES[:-1])
    await chained.analyzer.stop()
    await chained.submit(undelivered, _VALUES[-1:], seed=2)
    await _batch_is(chained, undelivered, BatchState.ERASED)
    with pytest.raises(SettingsError, match="store has no batch for the key file"):
        await _restart_relay(chained, set_back)
    await _restart_relay(chained, put_right)
    await chained.start_analyzer(listen=chained.analyzer.address)
    assert _expected(*_VALUES) == await _count(chained, undelivered)


async def test_nothing_is_lost_while_a_party_is_away_for_long(chained: ChainCluster) -> None:
    """Devices and the first shuffler wait, and say so; each goes on without another call."""
    assert chained.relay
    signed = await chained.publish_chain(_USERS + 1, _ITEMS)
    agent = chained.user_agent.address
    for party in (chained.relay, chained.analyzer, chained.shuffler):
        await kill(party)
    with pytest.raises(PeerError, match="Nothing was saved or charged; try again"):
        await send(agent, signed.digest(), 1, "Ada")
    await chained.start_shuffler(listen=chained.shuffler.address)
    with pytest.raises(PeerError, match="Nothing was saved or charged; try again"):
        await send(agent, signed.digest(), 1, "Ada")  # a new task, which the relay has to know
    await chained.start_analyzer(listen=chained.analyzer.address)
    await chained.start_relay(listen=chained.relay.address)
    await send(agent, signed.digest(), 1, "Ada")
    for party in (chained.relay, chained.analyzer):
        await kill(party)
    await chained.submit(signed, _VALUES)
    await asyncio.sleep(_AWAY)
    await _batch_is(chained, signed, BatchState.PERMUTED)
    assert "batch cannot move on yet" in chained.shuffler.log.read_text(encoding="utf-8")
    assert "unchecked" == (await ask_for_receipt(agent, signed.digest(), "Ada")).inclusion
    await chained.start_relay(listen=chained.relay.address)
    await _batch_is(chained, signed, BatchState.ERASED)
    await asyncio.sleep(_AWAY)
    assert "batch cannot move on yet" in chained.relay.log.read_text(encoding="utf-8")
    assert "counted" == (await ask_for_receipt(agent, signed.digest(), "Ada")).inclusion
    await chained.start_analyzer(listen=chained.analyzer.address)
    assert _expected(*_VALUES, 1) == await _count(chained, signed)
