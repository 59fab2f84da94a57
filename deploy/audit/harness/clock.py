"""A clock under manual control."""


class ManualClock:
    """A clock that changes only when `seconds` is set."""

    def __init__(self, seconds: float = 1_000_000_000.0) -> None:
        self.seconds = seconds

    def now(self) -> float:
        """Seconds since 1970 UTC."""
        return self.seconds

    def elapsed(self) -> float:
        """Seconds on a monotonic clock."""
        return self.seconds
