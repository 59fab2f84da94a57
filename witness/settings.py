"""Settings of a third party's witness."""

from pydantic.dataclasses import dataclass

from shuffledp.common.runtime.settings import FilePath, ServiceSettings
from shuffledp.common.runtime.validation import STRICT


@dataclass(frozen=True, kw_only=True, config=STRICT)
class WitnessSettings(ServiceSettings):
    """Settings of one witness."""

    analyzer_identity: str
    """Signing identity of the analyzer whose log it cosigns: 64 hexadecimal digits."""
    state_key: FilePath | None = None
    """File of the 32-byte key that encrypts the secrets in state_directory; created on first start.
    By default, the directory's path with .key appended."""


@dataclass(frozen=True, kw_only=True, config=STRICT)
class CheckingWitnessSettings(WitnessSettings):
    """Settings of one checking witness."""

    earlier_identities: tuple[str, ...] = ()
    """Identities that the analyzer had before, which signed tasks that are in its log too."""
