"""
Either of two shufflers cheats over gRPC, and the honest one's noise stays in the histogram.

The honest one records its noise, so that its part in the released counts is known exactly.
"""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any, Final

import numpy as np
import pytest
import pytest_asyncio
from numpy.typing import NDArray
from scipy import stats

from shuffledp.audit.statistics import p_rank
from shuffledp.common.crypto.signing import SignedTask
from shuffledp.common.errors import PeerError, PeerRefusalError
from shuffledp.common.messages.batch import BatchId
from shuffledp.common.messages.result import Result
from shuffledp.common.runtime.rpc import open_channel, reply
from shuffledp.protos.shuffledp.v1 import shuffler_pb2, shuffler_pb2_grpc
from tests.scale.chain_cluster import ChainCluster
from tests.support.chain_adversaries import (
    DishonestRelay,
    Reports,
    deliver,
    first_shuffler,
    manifest_of,
    sealed,
)
from tests.support.chains import FLANKS

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

_ITEMS: Final = 20
_VICTIM: Final = 7
"""Item of the user whom the dishonest shufflers are after."""
_KNOWN: Final = 3
"""Item of users whom they made up."""
_NOISE: Final = 25 * _ITEMS
"""Reports of a first shuffler's noise that the relay expects; here, all are of _KNOWN."""
_SEED: Final = 1
_PATIENCE: Final = 60.0


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def chained(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ChainCluster]:
    """An analyzer, which releases whatever was refused, and two shufflers."""

    class Lenient(ChainCluster):
        async def start_analyzer(self, **changes: Any) -> None:
            await super().start_analyzer(most_refused_share=1.0, **changes)

    async with Lenient(tmp_path_factory.mktemp("chain")) as started:
        yield started


async def _released(cluster: ChainCluster, signed: SignedTask) -> tuple[Result, NDArray[np.int64]]:
    """Wait for the result; return it with the counts less the honest shuffler's noise."""
    async with cluster.operator() as operator, asyncio.timeout(_PATIENCE):
        result = await operator.wait_for_result(signed.digest())
    [noise] = cluster.noise(signed)
    return result, cluster.cells(signed) - noise


def _count(*items: int) -> list[int]:
    counts: list[int] = np.bincount(items, minlength=_ITEMS).tolist()
    return counts


# --- a dishonest first shuffler, with the analyzer


async def _forward(
    cluster: ChainCluster, signed: SignedTask, layers: Reports, batch_id: BatchId | None = None
) -> None:
    """Deliver layers as a first shuffler, the last _NOISE of them as its noise."""
    assert cluster.relay
    async with first_shuffler(cluster.directory / "tls", cluster.relay.address) as client:
        n_users = len(layers) - _NOISE
        manifest = manifest_of(signed.digest(), n_users, len(layers), batch_id=batch_id)
        await deliver(client, manifest, layers)
        await client.finish_delivery(signed.digest())


@pytest.mark.parametrize(
    ("behaviour", "dropped", "made_up"),
    [
        (lambda victim, known: [victim, *known[20:]], 0, 0),
        (lambda victim, known: [*[victim] * 50, *known[20:]], 49, 0),
        (lambda victim, known: [victim, *known], 0, 20),
    ],
    ids=["alone", "50 times", "among made-up users"],
)
async def test_a_victim_is_counted_once_beside_the_relays_noise(
    chained: ChainCluster,
    behaviour: Callable[[bytes, Reports], Reports],
    dropped: int,
    made_up: int,
) -> None:
    """The first shuffler forwards only what it likes, as often as it likes."""
    signed = await chained.publish_chain(1, _ITEMS)
    victim, *known = sealed(signed, [_VICTIM, *[_KNOWN] * (20 + _NOISE)])
    await _forward(chained, signed, behaviour(victim, known))
    result, rest = await _released(chained, signed)

    assert _count(_VICTIM, *[_KNOWN] * (made_up + _NOISE)) == rest.tolist()
    assert dropped == sum(result.refused.values())


async def test_the_noise_around_a_victim_has_the_tasks_distribution(chained: ChainCluster) -> None:
    """
    Whatever the victim holds: it is forwarded alone in half of 40 tasks, another item in the rest.

    A chi-square test over 800 draws by the relay's process, and one over the 40 of the victim's
    item less its own report; one of them fails by chance with probability 2e-9.
    """
    drawn = []
    for number in range(40):
        signed = await chained.publish_chain(1, _ITEMS)
        item = (_VICTIM, _KNOWN)[number % 2]
        items = [item, *[_KNOWN] * _NOISE]
        await _forward(chained, signed, sealed(signed, items))
        _, rest = await _released(chained, signed)
        assert _count(*items) == rest.tolist()
        drawn.append(chained.noise(signed)[0])
    law = FLANKS.probabilities()
    for low, high, counts in ((22, 28, np.ravel(drawn)), (24, 26, np.array(drawn)[:, _VICTIM])):
        found = np.bincount(np.clip(counts, low, high), minlength=high + 1)[low:]
        expected = np.add.reduceat(law, [0, *range(low + 1, high + 1)])
        assert stats.chisquare(found, counts.size * expected).pvalue > 1e-9


async def test_a_second_delivery_without_the_victim_is_refused(chained: ChainCluster) -> None:
    """Two releases of one noise would show the victim exactly; so would another batch id."""
    signed = await chained.publish_chain(1, _ITEMS)
    victim, *others = sealed(signed, [_VICTIM, *[_KNOWN] * (4 + _NOISE)])
    with pytest.raises(PeerRefusalError, match="does not follow from the task's digest"):
        await _forward(chained, signed, others, batch_id=BatchId(bytes(16)))
    await _forward(chained, signed, others)
    with pytest.raises(PeerRefusalError, match="does not follow from the task's digest"):
        await _forward(chained, signed, [victim, *others], batch_id=BatchId(bytes(16)))
    with pytest.raises(PeerRefusalError, match="one task, one release"):
        await _forward(chained, signed, [victim, *others])
    _, rest = await _released(chained, signed)
    with pytest.raises(PeerRefusalError, match="one task, one release"):
        await _forward(chained, signed, [victim, *others])

    assert _count(*[_KNOWN] * (4 + _NOISE)) == rest.tolist()


@pytest.mark.parametrize("seed", range(8))
async def test_of_two_inputs_that_race_one_is_released(chained: ChainCluster, seed: int) -> None:
    """
    Both begin, send parts and finish at once, many times, and hang up at random moments.

    Parts do not name their input; the numbers of reports are such that no mixture adds up.
    """
    moments = random.Random((seed << 8) + _SEED)  # noqa: S311  # no secret
    signed = await chained.publish_chain(1, _ITEMS)
    items = [_VICTIM, *[_KNOWN] * (4 + _NOISE)]
    layers = sealed(signed, items)
    inputs = [layers, layers[2:]]

    async def race(which: int) -> None:
        with suppress(PeerError, PeerRefusalError, TimeoutError):
            async with asyncio.timeout(moments.uniform(0.0, 0.08)):
                await _forward(chained, signed, inputs[which])

    for _ in range(10):
        await asyncio.gather(*(race(which) for which in (0, 1, 0, 1)))
    taken = []
    for which in (0, 1):  # one of which has finished, or finishes now
        with suppress(PeerRefusalError):
            await _forward_at_last(chained, signed, inputs[which])
            taken.append(which)
    _, rest = await _released(chained, signed)

    assert 1 == len(taken)
    assert _count(*items[2 * taken[0] :]) == rest.tolist()


async def _forward_at_last(cluster: ChainCluster, signed: SignedTask, layers: Reports) -> None:
    """Deliver once the relay has ended the calls that hung up."""
    async with asyncio.timeout(_PATIENCE):
        while True:
            with suppress(PeerError):
                return await _forward(cluster, signed, layers)
            await asyncio.sleep(0.1)


# --- a dishonest second shuffler, with the analyzer

_USERS: Final = 200
_VALUES: Final = [user * _ITEMS // _USERS for user in range(_USERS)]


@pytest_asyncio.fixture(loop_scope="module")
async def second(chained: ChainCluster) -> AsyncIterator[DishonestRelay]:
    """A dishonest second shuffler, which the first pins."""
    relay = DishonestRelay()  # type: ignore[abstract]  # its operator calls nothing
    analyzer, tls = chained.analyzer.address, chained.directory / "tls"
    await relay.start(tls, analyzer, chained.identity)
    await _pin(chained, relay)
    yield relay
    await chained.shuffler.stop()
    await chained.start_shuffler(listen=chained.shuffler.address)
    await relay.stop()


async def _pin(cluster: ChainCluster, relay: DishonestRelay) -> None:
    """Restart the first shuffler with another relay."""
    pin = relay.identity.public_identity().raw.hex()
    await cluster.shuffler.stop()
    await cluster.start_shuffler(
        listen=cluster.shuffler.address, relay=relay.address, relay_identity=pin
    )


async def _collect(cluster: ChainCluster, relay: DishonestRelay) -> SignedTask:
    """Publish a task of this relay, and let all users answer, in the order of their items."""
    signed = await cluster.publish_chain(_USERS // 2, _ITEMS, relay.signed_key, target_size=_USERS)
    await cluster.submit(signed, _VALUES)
    return signed


async def _arrived(relay: DishonestRelay) -> Reports:
    """Wait for the first shuffler's batch, and open it."""
    async with asyncio.timeout(_PATIENCE):
        while not relay.finished:
            await asyncio.sleep(0.05)
    return relay.reports()


@pytest.mark.parametrize(
    ("behaviour", "n_discarded", "refused"),
    [
        (lambda reports: reports, 0, {}),
        (lambda reports: reports[20:], 0, {}),
        (lambda reports: reports[20:], 20, {"discarded": 20}),
        (lambda reports: [*reports, *reports[:20]], 0, {"repeated": 20}),
    ],
    ids=["keeps the order", "drops", "drops and says so", "repeats"],
)
async def test_the_first_shufflers_noise_stays_in_what_the_second_delivers(
    chained: ChainCluster,
    second: DishonestRelay,
    behaviour: Callable[[Reports], Reports],
    n_discarded: int,
    refused: dict[str, int],
) -> None:
    """
    It cannot tell noise from users; the order says nothing about that of the answers.

    Items rise with the answers, so that an order of arrival would show; by chance the test of the
    order fails with probability 1e-7.
    """
    signed = await _collect(chained, second)
    reports = await _arrived(second)
    delivered = behaviour(reports)
    await second.release([*delivered, *_made_up(signed)], n_discarded)
    result, rest = await _released(chained, signed)

    assert refused == {cause: number for cause, number in result.refused.items() if number}
    lost = np.array(_count(*_VALUES, *[_KNOWN] * _NOISE)) - rest
    assert len(reports) - len(set(delivered)) == lost.sum()
    assert (lost >= 0).all()
    assert p_rank(_order(chained, signed, delivered)) > 1e-7


def _made_up(signed: SignedTask) -> Reports:
    """Return reports that a dishonest second shuffler adds in place of its noise."""
    return sealed(signed, [_KNOWN] * _NOISE, 2)


def _order(cluster: ChainCluster, signed: SignedTask, reports: Reports) -> NDArray[np.int64]:
    """Return the items of reports, opened by the analyzer, in an order without ties."""
    opened = cluster.opened(signed, b"".join(dict.fromkeys(reports)))
    ties = np.random.default_rng(_SEED).random(len(opened))
    return np.argsort(np.lexsort((ties, opened)))


async def test_a_first_shuffler_sends_the_same_reports_again(
    chained: ChainCluster, second: DishonestRelay
) -> None:
    """
    However often the second aborts, and though the first is killed meanwhile.

    Noise that was sealed again would stand out.
    """
    second.aborts = ["BeginDelivery", "DeliverPart", "FinishDelivery", "DeliverPart"]
    signed = await _collect(chained, second)
    async with asyncio.timeout(_PATIENCE):
        while len(second.parts) < 3:
            await asyncio.sleep(0.05)
    chained.shuffler.process.kill()
    await chained.shuffler.process.wait()
    second.aborts = ["BeginDelivery", "DeliverPart", "FinishDelivery"]
    await _pin(chained, second)
    reports = await _arrived(second)
    await second.release([*reports, *_made_up(signed)])
    _, rest = await _released(chained, signed)

    assert len(second.parts) > 3
    assert [] == second.aborts
    assert {number: 1 for number, _ in second.parts} == Counter(n for n, _ in set(second.parts))
    assert _count(*_VALUES, *[_KNOWN] * _NOISE) == rest.tolist()


async def test_the_analyzer_takes_one_of_a_second_shufflers_deliveries(
    chained: ChainCluster, second: DishonestRelay
) -> None:
    """It begins with some reports, hangs up, finishes with others, and begins again."""
    signed = await _collect(chained, second)
    reports = [*await _arrived(second), *_made_up(signed)]
    await deliver(second.client, second.manifest(len(reports) - 1), reports[1:])
    await second.release(reports[2:])
    for again in (reports, reports[1:], reports[3:]):
        with pytest.raises(PeerRefusalError, match="one task, one release"):
            await second.release(again)
    result, rest = await _released(chained, signed)

    assert len(reports) - 2 == result.n_reports
    assert _USERS + _NOISE - 2 == rest.sum()


async def test_a_first_shuffler_serves_no_forged_tree(
    chained: ChainCluster, second: DishonestRelay
) -> None:
    """With 2^40 leaves a device's request would name its leaf alone; the operator reads of it."""
    second.forged_leaves = 2**40
    signed = await _collect(chained, second)
    await _arrived(second)
    request = shuffler_pb2.GetInclusionRequest(task_digest=signed.digest())
    authority = chained.authority.read_bytes()
    async with asyncio.timeout(_PATIENCE):
        while "relay's commitment does not verify" not in chained.shuffler.log.read_text("utf-8"):
            await asyncio.sleep(0.05)
    async with open_channel(chained.shuffler.address, "shuffler", authority) as channel:
        with pytest.raises(PeerRefusalError, match="deliver"):
            await reply(shuffler_pb2_grpc.ShufflerStub(channel).GetInclusion(request), "it")
