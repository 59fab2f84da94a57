"""A clock under manual control."""


class ManualClock:
    """A clock that changes only when `seconds` is set."""

    def __init__(self, seconds: float = 1_000_000_000.0) -> None:
        self.seconds = seconds
        self.set_back_by = 0.0

    def now(self) -> float:
        """Seconds since 1970 UTC."""
        return self.seconds - self.set_back_by

    def elapsed(self) -> float:
        """Seconds on a monotonic clock."""
        return self.seconds
