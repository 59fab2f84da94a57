"""Settings of the shuffler."""

from dataclasses import dataclass

from common.errors import SettingsError
from common.messages.inclusion_proof import PROOF_DAYS
from common.runtime.settings import KeyHolderSettings, check_processes


@dataclass(frozen=True, slots=True, kw_only=True)
class ShufflerSettings(KeyHolderSettings):
    """Of one shuffler."""

    analyzer: str
    """Address of the analyzer."""
    analyzer_identity: str
    """The analyzer's signing identity whose tasks are collected for: 64 hexadecimal digits."""
    minimum_batch: int = 1
    """Batches with fewer users are never released, whatever a task says; only raises its n_min."""
    opening_processes: int = 0
    """Worker processes that open bulk submissions and seal dummies; 0 means one for each core."""
    most_dummies: int = 10_000_000
    """Tasks that expect this shuffler to make more dummies are not collected for: some 50 bytes and
    a tenth of a millisecond of one core each."""
    token_identity: str | None = None
    """Every submission needs a token by this key (64 hexadecimal digits), which counts once a
    task."""
    submissions_per_connection: int = 10_000
    """Without tokens: a connection may make so many, 0 for no limit."""
    keep_inclusion_days: int = 30
    """For how long after a delivery, or its deadline, devices can ask whether they were counted;
    at least for as long as they do."""

    def __post_init__(self) -> None:
        KeyHolderSettings.__post_init__(self)
        if self.minimum_batch < 1:
            raise SettingsError(f"minimum_batch is {self.minimum_batch}; it must be at least 1")
        if self.most_dummies < 0:
            raise SettingsError(f"most_dummies is {self.most_dummies}; it must be at least 0")
        if self.submissions_per_connection < 0:
            raise SettingsError(
                f"submissions_per_connection is {self.submissions_per_connection}; it must be at "
                "least 0"
            )
        if self.keep_inclusion_days < PROOF_DAYS:
            raise SettingsError(
                f"keep_inclusion_days is {self.keep_inclusion_days}; it must be at least "
                f"{PROOF_DAYS}: for so many days after a task's deadline devices ask"
            )
        check_processes(self.opening_processes)
