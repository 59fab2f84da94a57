"""A pool without processes."""

from concurrent.futures import Future

from common.hpke import HpkePrivateKey, HpkePublicKey, SealContext
from common.hpke_pool import Opened, open_each, seal_each


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

    def seal(
        self, key: HpkePublicKey, plaintexts: bytes, plaintext_bytes: int, context: SealContext
    ) -> Future[bytes]:
        """Seal one chunk; see HpkePool."""
        future: Future[bytes] = Future()
        future.set_result(seal_each(key, plaintexts, plaintext_bytes, context))
        return future
