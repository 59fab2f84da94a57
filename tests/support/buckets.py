"""In-memory buckets of an external permutation."""


class MemoryBuckets:
    """Keeps records, and counts the bytes added to each bucket."""

    def __init__(self) -> None:
        self._records: dict[int, list[bytes]] = {}
        self.filled: dict[int, int] = {}

    def append(self, bucket: int, reports: bytes) -> None:
        """Add a record to a bucket."""
        self._records.setdefault(bucket, []).append(reports)
        self.filled[bucket] = self.filled.get(bucket, 0) + len(reports)

    def take(self, bucket: int) -> list[bytes]:
        """Return a bucket's records, and forget them."""
        return self._records.pop(bucket, [])
