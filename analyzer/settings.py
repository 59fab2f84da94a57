"""Settings of the analyzer."""

from dataclasses import dataclass

from common.errors import SettingsError
from common.runtime.settings import KeyHolderSettings, check_processes


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalyzerSettings(KeyHolderSettings):
    """Of one analyzer."""

    opening_processes: int = 0
    """Worker processes that open reports; 0 means one for each core."""
    most_refused_share: float = 0.05
    """A batch of whose reports more are refused is not estimated; 1.0 for no limit."""

    def __post_init__(self) -> None:
        KeyHolderSettings.__post_init__(self)
        check_processes(self.opening_processes)
        if not 0 <= self.most_refused_share <= 1:
            raise SettingsError(
                f"most_refused_share is {self.most_refused_share}; it must lie between 0 and 1"
            )
