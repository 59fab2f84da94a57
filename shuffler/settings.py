"""Settings of the shuffler."""

from dataclasses import dataclass

from common.errors import SettingsError
from common.runtime.settings import ServiceSettings, check_processes


@dataclass(frozen=True, slots=True, kw_only=True)
class ShufflerSettings(ServiceSettings):
    """Of one shuffler."""

    analyzer: str
    """Address of the analyzer."""
    analyzer_identity: str
    """The analyzer's signing identity whose tasks are collected for: 64 hexadecimal digits."""
    minimum_batch: int = 1
    """Batches with fewer users are never released, whatever a task says; only raises its n_min."""
    opening_processes: int = 0
    """Worker processes that open bulk submissions; 0 means one for each core."""

    def __post_init__(self) -> None:
        ServiceSettings.__post_init__(self)
        if self.minimum_batch < 1:
            raise SettingsError(f"minimum_batch is {self.minimum_batch}; it must be at least 1")
        check_processes(self.opening_processes)
