"""Settings of the user agent."""

from typing import Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass

from shuffledp.common.errors import SettingsError
from shuffledp.common.runtime.access import is_local
from shuffledp.common.runtime.pin_settings import PinSettings
from shuffledp.common.runtime.settings import FilePath
from shuffledp.common.runtime.validation import STRICT
from shuffledp.common.task.task import MIN_COMPOSED_DELTA
from shuffledp.common.transparency.witness_policy import WitnessPolicy


@dataclass(frozen=True, kw_only=True, config=STRICT)
class UserAgentSettings(PinSettings):
    """Settings of one device."""

    allow_unlogged_tasks: bool = False
    """Answer tasks without a proof that every device sees the same tasks."""
    total_delta_cap: Annotated[float, Field(ge=MIN_COMPOSED_DELTA, lt=1)] = (
        PinSettings.total_delta_cap
    )
    lasting_responses: bool = False
    """Answer questions that may be asked again with the same permanent noise. Their epsilon assumes
    that the person's answer stays the same; a change may become visible."""
    credential_file: FilePath | None = None
    """File of the credential that shows the issuer who asks: a secret of 64 hexadecimal digits or
    an ID token; for several persons, lines NAME CREDENTIAL."""
    several_persons: bool = False
    """Answer for several people, identified by their names. For tests and shared devices."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not is_local(self.listen):
            raise SettingsError(
                "the user agent receives true values; it must listen on unix: or loopback"
            )
        given = [each is not None for each in (self.issuer, self.issuer_identity)]
        given.append(self.credential_file is not None)
        if any(given) != all(given):
            raise SettingsError("issuer, issuer_identity and credential_file belong together")
        if not (any(given) or self.allow_tasks_without_tokens):
            raise SettingsError(
                "set issuer, issuer_identity and credential_file, or allow_tasks_without_tokens"
            )
        if bool(self.witnesses) == self.allow_unlogged_tasks:
            raise SettingsError(
                "pin witnesses, so that nobody can show this device tasks of its own; or set "
                "allow_unlogged_tasks = true, without witnesses"
            )

    def log_policy(self) -> WitnessPolicy | None:
        """Return the pins of the log, as `witness_policy`; None if tasks need not be logged."""
        return None if self.allow_unlogged_tasks else self.witness_policy()
