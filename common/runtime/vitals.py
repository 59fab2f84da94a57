"""What every service tells of itself: that it runs, its certificates, disk and processes."""

import asyncio
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from common.errors import SettingsError
from common.key_ring import KeyRing, KeyState
from common.runtime.certificates import Certificate
from common.runtime.clock import Clock
from common.runtime.incidents import Incidents
from common.runtime.metric_table import Party
from common.runtime.metrics import Metrics
from common.runtime.tls import TlsFiles
from common.runtime.usage import measure, memory_limit
from common.version import VERSION

_DISK_STEPS: Final = 100
"""Free space is told in so many steps: a submission would move it otherwise."""


class Vitals:
    """The metrics of one process, with those filled in that all services have."""

    def __init__(self, party: Party, clock: Clock) -> None:
        self._clock = clock
        self.metrics: Final = Metrics(party)
        self.incidents: Final = Incidents(self.metrics, clock)
        self.metrics.set("shuffledp_up", 1, {"party": party, "version": VERSION})
        self.metrics.set("shuffledp_memory_limit_bytes", memory_limit())
        self.metrics.ask(self._measure_processes)

    def now(self) -> float:
        """Seconds since 1970 UTC."""
        return self._clock.now()

    def elapsed(self) -> float:
        """Seconds since some moment."""
        return self._clock.elapsed()

    def watch_keys(self, ring: Callable[[], KeyRing]) -> None:
        """Count the keys of a ring whenever the metrics are read."""

        async def count() -> None:
            states = [entry.state for entry in ring().entries]
            for state in KeyState:
                self.metrics.set("shuffledp_keys", states.count(state), {"state": state.value})

        self.metrics.ask(count)

    def watch_certificates(self, files: TlsFiles) -> None:
        """Look whenever the metrics are read how long the certificates last: they are renewed."""

        async def look() -> None:
            for name, path in (("own", files.certificate), ("authority", files.authority)):
                # What cannot be read is told as it was; the log says so when it is used.
                with suppress(SettingsError):
                    if path is not None:
                        certificate = await asyncio.to_thread(Certificate.read, path)
                        days = certificate.days_left(self._clock.now())
                        self.metrics.set(
                            "shuffledp_certificate_days_left", days, {"certificate": name}
                        )

        self.metrics.ask(look)

    def watch_disk(self, directory: Path) -> None:
        """Look whenever the metrics are read how much room there is."""
        if not self.metrics.tells("shuffledp_state_free_bytes"):
            return

        async def look() -> None:
            with suppress(OSError):
                found = await asyncio.to_thread(shutil.disk_usage, directory)
                step = max(1, found.total // _DISK_STEPS)
                self.metrics.set("shuffledp_state_free_bytes", found.free // step * step)
                self.metrics.set("shuffledp_state_size_bytes", found.total)

        self.metrics.ask(look)

    async def _measure_processes(self) -> None:
        usage = await asyncio.to_thread(measure)
        self.metrics.advance_to("shuffledp_process_cpu_seconds_total", usage.cpu_seconds)
        self.metrics.set("shuffledp_process_resident_memory_bytes", usage.resident_bytes)
