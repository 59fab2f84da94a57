"""Settings of the shuffler."""

from typing import Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass

from common.messages.inclusion_proof import PROOF_DAYS
from common.runtime.settings import KeyHolderSettings, Processes
from common.runtime.validation import STRICT


@dataclass(frozen=True, kw_only=True, config=STRICT)
class ShufflerSettings(KeyHolderSettings):
    """Settings of one shuffler."""

    analyzer: str
    """Address of the analyzer."""
    analyzer_identity: str
    """The analyzer's signing identity whose tasks are collected for: 64 hexadecimal digits."""
    minimum_batch: Annotated[int, Field(ge=1)] = 1
    """Batches with fewer users are never released, whatever a task says; only raises its n_min."""
    opening_processes: Processes = 0
    """Worker processes that open bulk submissions and seal dummies; 0 means one for each core."""
    most_dummies: Annotated[int, Field(ge=0)] = 10_000_000
    """Tasks that expect this shuffler to make more dummies are not collected for: some 50 bytes and
    a tenth of a millisecond of one core each."""
    token_identity: str | None = None
    """Every submission needs a token by this key (64 hexadecimal digits), which counts once a
    task."""
    submissions_per_connection: Annotated[int, Field(ge=0)] = 10_000
    """Without tokens: a connection may make so many, 0 for no limit."""
    keep_inclusion_days: Annotated[int, Field(ge=PROOF_DAYS)] = 30
    """For how long after a delivery, or its deadline, devices can ask whether they were counted;
    at least PROOF_DAYS, for which devices ask."""
