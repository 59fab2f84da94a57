"""Composition root of the shuffler: randomness, clock, keys, files and channels are made here."""

import asyncio
from typing import Final

import grpc

from common.hpke import HpkePrivateKey
from common.hpke_pool import HpkePool
from common.randomness import secure_generator
from common.runtime.clock import SystemClock
from common.runtime.process import Listener
from common.runtime.rpc import open_channel
from common.runtime.state import StateDirectory
from common.runtime.tls import identity_for
from common.signing import SigningIdentity, identity_from_hex
from protos.shuffledp.v1 import shuffler_pb2_grpc
from shuffler.client import AnalyzerClient
from shuffler.collection import Collection
from shuffler.delivery import Deliveries
from shuffler.inclusion import Inclusions
from shuffler.receipts import Receipts
from shuffler.rounds import Rounds
from shuffler.servicer import ShufflerServicer
from shuffler.settings import ShufflerSettings
from shuffler.spool import Spool

_DAY_SECONDS: Final = 24 * 3600


class ShufflerService:
    """A running shuffler."""

    def __init__(
        self,
        *,
        listener: Listener,
        deliveries: Deliveries,
        inclusions: Inclusions,
        spool: Spool,
        pool: HpkePool,
        channel: grpc.aio.Channel,
    ) -> None:
        self._listener = listener
        self._spool = spool
        self._pool = pool
        self._channel = channel
        self._running = [
            asyncio.create_task(deliveries.run()),
            asyncio.create_task(inclusions.keep_forgetting()),
        ]
        self.address = listener.address

    async def stop(self) -> None:
        """Finish calls in flight and close every file."""
        await self._listener.stop()
        for running in self._running:
            running.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        await self._channel.close()
        self._pool.close()
        self._spool.close()


async def start(settings: ShufflerSettings) -> ShufflerService:
    """Start a shuffler, and go on with the batches of an earlier run."""
    clock = SystemClock()
    state = StateDirectory.open(settings.state_directory)
    tls = identity_for(settings, "shuffler", clock)
    key = HpkePrivateKey(
        state.secret("envelope.key", lambda: HpkePrivateKey.generate().private_bytes())
    )
    state.publish("envelope.pub", key.public_key().raw.hex())
    identity = SigningIdentity(
        state.secret("identity.key", lambda: SigningIdentity.generate().private_bytes())
    )
    state.publish("identity.pub", identity.public_identity().raw.hex())
    channel = open_channel(settings.analyzer, "analyzer", tls.authority if tls else None)
    spool = Spool(state.path / "spool.sqlite")
    pool = HpkePool(key, settings.opening_processes)
    rng = secure_generator()
    analyzer = AnalyzerClient(channel)
    rounds = Rounds(
        spool=spool,
        state=state,
        analyzer=analyzer,
        identity=identity_from_hex(settings.analyzer_identity),
        key=key.public_key(),
        minimum_batch=settings.minimum_batch,
        most_dummies=settings.most_dummies,
        rng=rng,
    )
    await rounds.resume()
    collection = Collection(rounds=rounds, spool=spool, key=key, pool=pool, clock=clock)
    inclusions = Inclusions(
        directory=state.path / "inclusion",
        identity=identity_from_hex(settings.analyzer_identity),
        keep_seconds=settings.keep_inclusion_days * _DAY_SECONDS,
        clock=clock,
    )
    deliveries = Deliveries(
        rounds=rounds,
        spool=spool,
        analyzer=analyzer,
        pool=pool,
        clock=clock,
        rng=rng,
        inclusions=inclusions,
    )

    def add_services(server: grpc.aio.Server) -> None:
        servicer = ShufflerServicer(collection, Receipts(identity), inclusions)
        shuffler_pb2_grpc.add_ShufflerServicer_to_server(servicer, server)

    listener = await Listener.start(settings, tls, "shuffledp.v1.Shuffler", add_services)
    return ShufflerService(
        listener=listener,
        deliveries=deliveries,
        inclusions=inclusions,
        spool=spool,
        pool=pool,
        channel=channel,
    )
