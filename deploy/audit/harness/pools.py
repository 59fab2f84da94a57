"""An HPKE pool without worker processes."""

from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from common.crypto.hpke import HpkePrivateKey, HpkePublicKey, SealContext
from common.crypto.hpke_pool import HpkePool, Opened, open_each, seal_each

T = TypeVar("T")


class InlinePool(HpkePool):
    """A pool that opens and seals in the caller's thread."""

    def __init__(self) -> None:
        self.processes = 2
        """Number of workers for which callers split their work."""
        self.opened = 0
        """Chunks opened so far."""

    def open(
        self, key: HpkePrivateKey, sealed: bytes, sealed_bytes: int, context: SealContext
    ) -> Future[Opened]:
        """Open one chunk."""
        self.opened += 1
        return finished(open_each(key, sealed, sealed_bytes, context))

    def open_and(
        self,
        key: HpkePrivateKey,
        work: Callable[[Opened], T],
        sealed: bytes,
        sealed_bytes: int,
        context: SealContext,
    ) -> Future[T]:
        """Open one chunk, then run `work` on it."""
        return finished(work(self.open(key, sealed, sealed_bytes, context).result()))

    def seal(
        self, key: HpkePublicKey, plaintexts: bytes, plaintext_bytes: int, context: SealContext
    ) -> Future[bytes]:
        """Seal one chunk."""
        return finished(seal_each(key, plaintexts, plaintext_bytes, context))


def finished(result: T) -> Future[T]:
    """Return a completed future."""
    future: Future[T] = Future()
    future.set_result(result)
    return future
