"""Settings of the shuffler."""

from dataclasses import field, replace
from typing import Annotated

from pydantic import AfterValidator, Field
from pydantic.dataclasses import dataclass

from shuffledp.common.crypto.key_ring import Schedule
from shuffledp.common.errors import SettingsError
from shuffledp.common.messages.inclusion_proof import PROOF_DAYS
from shuffledp.common.runtime.settings import HttpSettings, KeyHolderSettings, Processes
from shuffledp.common.runtime.validation import STRICT


def _postgresql_uri(uri: str) -> str:
    if not uri.startswith(("postgresql://", "postgres://")):
        raise ValueError("must be postgresql://…")
    return uri


@dataclass(frozen=True, kw_only=True, config=STRICT)
class ShufflerSettings(KeyHolderSettings, HttpSettings):
    """Settings of one shuffler."""

    analyzer: str
    """Address of the analyzer."""
    analyzer_identity: str
    """Signing identity of the analyzer whose tasks are collected: 64 hexadecimal digits."""
    relay: str | None = None
    """Address of the second shuffler of tasks with two; None to refuse such tasks."""
    relay_identity: str | None = None
    """The relay's signing identity: 64 hexadecimal digits."""
    minimum_batch: Annotated[int, Field(ge=1)] = 1
    """Lower bound on every task's n_min: batches with fewer users are never released."""
    opening_processes: Processes = 0
    """Worker processes that open bulk submissions and seal dummies; 0 means one per core."""
    most_dummies: Annotated[int, Field(ge=0)] = 10_000_000
    """Refuse tasks that expect more dummies from this shuffler. A dummy takes about 50 bytes and a
    tenth of a millisecond of one core."""
    submissions_per_connection: Annotated[int, Field(ge=0)] = 100
    """Maximum submissions per connection to tasks without tokens; 0 for no limit. It bounds the
    junk of one connection, for which a batch may be quarantined; tokens bound that of a person."""
    keep_inclusion_days: Annotated[int, Field(ge=PROOF_DAYS)] = 30
    """Days for which inclusion proofs are kept after delivery or deadline, whichever is later; at
    least PROOF_DAYS, for which devices request them."""
    store: Annotated[str, AfterValidator(_postgresql_uri)] | None = field(default=None, repr=False)
    """libpq URI of a PostgreSQL database that all front-ends share; None for a SQLite database in
    the state directory. It may hold a password."""

    def relay_schedule(self) -> Schedule:
        """Return the schedule of a relay's keys: tasks may name a key until the end of its life."""
        usual = self.schedule()
        kept = usual.lifetime + usual.retention
        return replace(usual, retention=kept, longest_task=usual.lifetime)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.role == "front-end" and self.store is None:
            raise SettingsError("the role front-end needs store")
        if (self.relay is None) != (self.relay_identity is None):
            raise SettingsError("relay and relay_identity go together")
        collecting = ("minimum_batch", "submissions_per_connection", "keep_inclusion_days")
        for name in ("store", "http_listen", "relay", *collecting):
            if self.role == "relay" and getattr(self, name) != getattr(ShufflerSettings, name):
                raise SettingsError(f"{name} has no use in the role relay")
        if self.role == "relay" and not self.key_lifetime_days:
            raise SettingsError("key_lifetime_days is 0; the keys of a relay need a limit")
