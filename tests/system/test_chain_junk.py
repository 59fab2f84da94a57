"""A million layers that do not open, beside a thousand that do."""

import asyncio
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from shuffledp.common.crypto.hpke import split_every
from shuffledp.common.errors import PeerError
from tests.scale.chain_cluster import ChainCluster
from tests.support.chain_adversaries import deliver, first_shuffler, manifest_of, sealed
from tests.support.connections import tree_resident_bytes

_JUNK: Final = int(os.environ.get("SHUFFLEDP_JUNK_LAYERS", "1000000"))
_ITEMS: Final = 20
_HONEST: Final = 1000
_NOISE: Final = 25 * _ITEMS
_MOST_MIB: Final = 1024
"""Of the relay and its workers together."""
_LOW_ORDER: Final = [
    *(number.to_bytes(32, "little") for number in (0, 1, 2**255 - 20, 2**255 - 19, 2**255 - 18)),
    bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
    bytes.fromhex("5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157"),
]
"""X25519 keys with which every agreed secret is 0."""


class _Lenient(ChainCluster):
    """An analyzer that releases a batch whatever share of it was refused."""

    async def start_analyzer(self, **changes: Any) -> None:
        await super().start_analyzer(most_refused_share=1.0, **changes)


@pytest.mark.slow
async def test_junk_layers_cost_the_relay_time_and_no_memory(tmp_path: Path) -> None:
    """All are dropped and counted in one number, and every honest one is counted."""
    rng = np.random.default_rng(1)
    async with _Lenient(tmp_path) as cluster:
        assert cluster.relay
        other = await cluster.publish_chain(_HONEST, _ITEMS)
        signed = await cluster.publish_chain(_HONEST, _ITEMS)
        items = [*rng.integers(_ITEMS, size=_HONEST).tolist(), *[0] * _NOISE]
        honest, elsewhere = sealed(signed, items), sealed(other, [3] * min(5000, _JUNK // 3))
        size = len(honest[0])
        low = [
            _LOW_ORDER[number % len(_LOW_ORDER)] + rng.bytes(size - 32)
            for number in range(len(elsewhere))
        ]
        random = split_every(rng.bytes((_JUNK - 2 * len(low)) * size), size)
        layers = [*honest, *elsewhere, *low, *random]
        layers = [layers[place] for place in rng.permutation(len(layers))]
        n_users = len(layers) - _NOISE
        peaks = [0]
        watching = asyncio.create_task(_watch(cluster.relay.process.pid, peaks))
        started = time.monotonic()
        async with first_shuffler(cluster.directory / "tls", cluster.relay.address) as client:
            await deliver(client, manifest_of(signed.digest(), n_users, len(layers)), layers)
            received = time.monotonic()
            while True:
                with suppress(PeerError):  # it takes longer than a call may
                    await client.finish_delivery(signed.digest())
                    break
        staged = time.monotonic()
        async with cluster.operator() as operator, asyncio.timeout(900):
            result = await operator.wait_for_result(signed.digest())
        ended = time.monotonic()
        watching.cancel()
        [noise] = cluster.noise(signed)
        counted = cluster.cells(signed) - noise
        log = cluster.relay.log.read_text(encoding="utf-8")

    sys.stdout.write(
        f"{_JUNK} junk layers: received in {received - started:.1f} s, staged in "
        f"{staged - received:.1f} s, released {ended - staged:.1f} s later; peak {peaks[0]} MiB\n"
    )
    np.testing.assert_array_equal(np.bincount(items, minlength=_ITEMS), counted)
    assert {"discarded": _JUNK} == {cause: n for cause, n in result.refused.items() if n}
    assert f'"refused": {_JUNK}' in log
    assert peaks[0] < _MOST_MIB


async def _watch(pid: int, peaks: list[int]) -> None:
    """Record the peak resident memory of a process and its workers, in MiB."""
    while True:
        peaks[0] = max(peaks[0], tree_resident_bytes(pid) >> 20)
        await asyncio.sleep(0.1)
