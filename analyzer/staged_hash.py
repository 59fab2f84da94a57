"""
A hash over a batch as it was staged: what the disk gives back later is this, or it is damaged.

SQLite has no checksums of its own: a flipped bit in a page of ciphertexts passes it, and would pass
the analyzer as reports that do not open, or as fewer of them.
"""

import hashlib
from typing import Final

from common.errors import UnusableBatchError

_BYTES: Final = 32


class StagedHash:
    """Takes a batch's chunks in order; cost: a nanosecond or two a byte."""

    def __init__(self, report_bytes: int) -> None:
        self._report_bytes = report_bytes
        self._hash = hashlib.blake2b(digest_size=_BYTES)
        self._n_reports = 0

    def add(self, chunk: bytes) -> None:
        """Take the next chunk: whole reports, however they are cut into chunks."""
        self._hash.update(chunk)
        self._n_reports += len(chunk) // self._report_bytes

    def digest(self) -> bytes:
        """Give the hash of all that was taken."""
        return self._hash.digest()

    def check(self, n_reports: int, expected: bytes | None) -> None:
        """
        Check what was read of a batch, after its last chunk.

        Args:
            n_reports: What was staged.
            expected: Its hash then; None where an earlier version staged it.

        Raises:
            UnusableBatchError: It is not what was staged, and the shuffler has no copy any more.
        """
        if self._n_reports != n_reports:
            raise UnusableBatchError(
                f"{n_reports} reports of the batch were staged; the disk gives {self._n_reports} "
                "of them back"
            )
        if expected not in {None, self.digest()}:
            raise UnusableBatchError("the batch's staged reports are damaged on the disk")
