"""Opens and seals where it is asked to: a rehearsal is too small for workers."""

from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from common.crypto.hpke import HpkePrivateKey, HpkePublicKey, SealContext
from common.crypto.hpke_pool import Opened, open_each, seal_each

T = TypeVar("T")


class InPlace:
    """A pool without processes; see common.crypto.hpke_pool.Pool."""

    processes: int = 1

    def open(
        self, key: HpkePrivateKey, sealed: bytes, sealed_bytes: int, context: SealContext
    ) -> Future[Opened]:
        """Open one chunk."""
        return _done(open_each(key, sealed, sealed_bytes, context))

    def open_and(
        self,
        key: HpkePrivateKey,
        work: Callable[[Opened], T],
        sealed: bytes,
        sealed_bytes: int,
        context: SealContext,
    ) -> Future[T]:
        """Open one chunk, and do the work."""
        return _done(work(self.open(key, sealed, sealed_bytes, context).result()))

    def seal(
        self, key: HpkePublicKey, plaintexts: bytes, plaintext_bytes: int, context: SealContext
    ) -> Future[bytes]:
        """Seal one chunk."""
        return _done(seal_each(key, plaintexts, plaintext_bytes, context))


def _done(found: T) -> Future[T]:
    future: Future[T] = Future()
    future.set_result(found)
    return future
