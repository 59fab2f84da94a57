"""Settings of the analyzer."""

from typing import Annotated, Final, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from shuffledp.common.errors import SettingsError
from shuffledp.common.runtime.settings import KeyHolderSettings, Processes, TcpAddress
from shuffledp.common.runtime.validation import STRICT

MAX_WITNESSES: Final = 16


@dataclass(frozen=True, kw_only=True, config=STRICT)
class WitnessAddress:
    """A witness of the log: its address, and its key as in witness.pub."""

    address: TcpAddress
    key: str
    checking: bool = False
    """Whether it checks every task: it is sent them, before they are published too."""


@dataclass(frozen=True, kw_only=True, config=STRICT)
class AnalyzerSettings(KeyHolderSettings):
    """Settings of an analyzer."""

    opening_processes: Processes = 0
    """Worker processes that open reports; 0 means one per core."""
    most_refused_share: Annotated[float, Field(ge=0, le=1)] = 0.05
    """
    Maximum share of refused reports in a batch that is estimated at once; 1.0 for no limit.

    Reports are counted, not submissions: with one length, 158 junk submissions beside 3,000 honest
    ones exceed 0.05. The batch then waits for `shuffledp batch release` or `batch drop`. Unless
    tokens are required, one anonymous connection can send so many.
    """
    role: Literal["all", "coordinator", "worker"] = "all"
    """This process's share of the analyzer's work."""
    witnesses: Annotated[tuple[WitnessAddress, ...], Field(max_length=MAX_WITNESSES)] = ()
    """Witnesses that cosign the log of tasks. Devices answer only tasks that enough of their own
    pinned witnesses cosigned."""
    shuffler_identity: str | None = None
    """The shuffler's signing identity, which is then logged: 64 hexadecimal digits."""
    issuer_identity: str | None = None
    """The issuer's, which is then logged too."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if len({one.key for one in self.witnesses}) < len(self.witnesses):
            raise SettingsError("witnesses must each have a key of their own")
