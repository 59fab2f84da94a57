"""A shuffler's core over a fake analyzer and a manual clock."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from shuffledp.audit.harness.party_cores import InProcessShuffler
from shuffledp.common.crypto.hpke import HpkePrivateKey, Opener, SealContext
from shuffledp.common.crypto.hpke_pool import HpkePool
from shuffledp.common.messages.batch import BatchState
from shuffledp.common.messages.submission import Outcome
from shuffledp.shuffler.delivery_client import ReceivingParty
from shuffledp.user_agent.contribution import Contributor
from tests.support.analyzers import MemoryAnalyzer
from tests.support.keys import SHUFFLER
from tests.support.tasks import PublishedTask, published

P = ParamSpec("P")
T = TypeVar("T")
CASE = published(n_min=3, target_size=5)
DIGEST = CASE.signed.digest()


class InlinePool(HpkePool):
    """A pool that opens in the caller's thread."""

    def __init__(
        self, opener: Callable[[HpkePrivateKey, SealContext], Opener] = HpkePrivateKey.opener
    ) -> None:
        """`opener` replaces the function that returns one to open ciphertexts."""
        self._opener = opener
        self.processes = 2
        """Number of workers for which callers split their work."""

    def open_and(
        self,
        key: HpkePrivateKey,
        work: Callable[[Sequence[bytes | None]], T],
        sealed: Sequence[bytes],
        context: SealContext,
    ) -> Future[T]:
        """Open ciphertexts, then run `work` on the plaintexts."""
        return self.submit(work, list(map(self._opener(key, context), sealed)))

    def submit(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run `work`."""
        future: Future[T] = Future()
        future.set_result(work(*args, **kwargs))
        return future


class Shuffler(InProcessShuffler):
    """A shuffler's core with one task."""

    analyzer: MemoryAnalyzer

    def __init__(
        self,
        path: Path,
        case: PublishedTask = CASE,
        pool: HpkePool | None = None,
        relay: ReceivingParty | None = None,
        **limits: Any,
    ) -> None:
        """`limits` are settings; by default, `pool` works in this thread."""
        super().__init__(
            path,
            analyzer=MemoryAnalyzer(case.signed, case.identity),
            pinned=case.identity.public_identity(),
            identity=SHUFFLER,
            pool=pool or InlinePool(),
            relay=relay,
            key=case.shuffler_key,
            **limits,
        )
        self.case = case
        self._contributor = Contributor(case.task, case.signed.digest())

    async def advance(self) -> None:
        """Perform every due event, and wait until it is done."""
        await self.deliveries.advance()

    def envelope(self, value: int = 0) -> bytes:
        """Prepare one user's envelope."""
        return self._contributor.prepare(value, self.rng).envelope

    async def submit(self, count: int) -> None:
        """Submit for some users, all of whom are stored."""
        digest = self.case.signed.digest()
        outcomes = await self.collection.submit_bulk(
            digest, [self.envelope() for _ in range(count)]
        )
        assert [Outcome.STORED] * count == outcomes

    async def batch_state(self) -> BatchState:
        """Return the batch's state."""
        return (await self.collection.status(self.case.signed.digest())).state

    async def users(self) -> int:
        """Count the stored submissions."""
        return (await self.store.get(self.case.signed.digest())).n_users

    def key_files(self) -> list[Path]:
        """List the keys of unfinished batches."""
        return list(self.path.glob("batch-*.key"))
