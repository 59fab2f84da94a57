"""Settings of the analyzer."""

from dataclasses import dataclass

from common.runtime.settings import KeyHolderSettings, check_processes


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalyzerSettings(KeyHolderSettings):
    """Of one analyzer."""

    opening_processes: int = 0
    """Worker processes that open reports; 0 means one for each core."""

    def __post_init__(self) -> None:
        KeyHolderSettings.__post_init__(self)
        check_processes(self.opening_processes)
