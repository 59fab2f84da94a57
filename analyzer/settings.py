"""Settings of the analyzer."""

from dataclasses import dataclass

from common.errors import SettingsError
from common.runtime.settings import ServiceSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalyzerSettings(ServiceSettings):
    """Of one analyzer."""

    opening_processes: int = 0
    """Worker processes that open reports; 0 means one for each core."""

    def __post_init__(self) -> None:
        ServiceSettings.__post_init__(self)
        if self.opening_processes < 0:
            raise SettingsError(
                f"opening_processes is {self.opening_processes}; it must be at least 0"
            )
