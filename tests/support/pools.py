"""A pool without processes."""

from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

import numpy as np

from common.hpke import HpkePrivateKey, HpkePublicKey, SealContext
from common.hpke_pool import Opened, open_each, seal_each
from common.suites import SUITES

T = TypeVar("T")


class InlinePool:
    """Opens and seals at once, in the caller's thread."""

    processes = 2

    def open(
        self, key: HpkePrivateKey, sealed: bytes, sealed_bytes: int, context: SealContext
    ) -> Future[Opened]:
        """Open one chunk; see HpkePool."""
        future: Future[Opened] = Future()
        future.set_result(open_each(key, sealed, sealed_bytes, context))
        return future

    def open_and(
        self,
        key: HpkePrivateKey,
        work: Callable[[Opened], T],
        sealed: bytes,
        sealed_bytes: int,
        context: SealContext,
    ) -> Future[T]:
        """Open one chunk and do the work; see HpkePool."""
        future: Future[T] = Future()
        opened = self.open(key, sealed, sealed_bytes, context).result()
        future.set_result(work(opened))
        return future

    def seal(
        self, key: HpkePublicKey, plaintexts: bytes, plaintext_bytes: int, context: SealContext
    ) -> Future[bytes]:
        """Seal one chunk; see HpkePool."""
        future: Future[bytes] = Future()
        future.set_result(seal_each(key, plaintexts, plaintext_bytes, context))
        return future


class StrippingPool(InlinePool):
    """
    Takes off what sealing adds, and opens nothing: for batches so large that opening would take
    longer than all that is looked at.
    """

    def open(
        self, key: HpkePrivateKey, sealed: bytes, sealed_bytes: int, context: SealContext
    ) -> Future[Opened]:
        """Strip one chunk."""
        del context
        rows = np.frombuffer(sealed, dtype=np.uint8).reshape(-1, sealed_bytes)
        future: Future[Opened] = Future()
        future.set_result(
            Opened(
                plaintexts=rows[:, SUITES[key.suite].overhead_bytes :].tobytes(),
                readable=b"\1" * len(rows),
            )
        )
        return future
