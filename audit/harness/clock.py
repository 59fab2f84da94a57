"""A clock under manual control."""

from shuffledp.common.runtime.clock import Reading


class ManualClock:
    """A clock that changes only when `seconds` is set."""

    def __init__(self, seconds: float = 1_000_000_000.0) -> None:
        self.seconds = seconds

    def now(self) -> float:
        """Seconds since 1970 UTC."""
        return self.seconds

    confirmed_now = elapsed = now

    def reading(self) -> Reading:
        """Read both clocks of a machine that never stopped."""
        return Reading(wall=self.seconds, since_boot=self.seconds, boot="")
