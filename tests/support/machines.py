"""A machine whose clocks a test moves."""

from shuffledp.common.runtime.clock import Reading


class Machine:
    """A machine that runs, is suspended, is switched off, or has its wall clock set."""

    def __init__(self, wall: float = 1_800_000_000.0) -> None:
        self.wall = wall
        self.since_boot = 100.0
        self.boots = 0
        self.hides_boot = False

    def run(self, seconds: float) -> None:
        """Run, or be suspended: both clocks count."""
        self.wall += seconds
        self.since_boot += seconds

    def reboot(self, off: float) -> None:
        """Be off for some seconds, and boot."""
        self.wall += off
        self.since_boot = 10.0
        self.boots += 1

    def now(self) -> float:
        """Return the seconds since 1970 UTC."""
        return self.wall

    def elapsed(self) -> float:
        """Return the monotonic seconds since the boot."""
        return self.since_boot

    def reading(self) -> Reading:
        """Read both clocks."""
        boot = "" if self.hides_boot else f"boot {self.boots}"
        return Reading(wall=self.wall, since_boot=self.since_boot, boot=boot)
