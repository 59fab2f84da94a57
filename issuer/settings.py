"""Settings of the issuer."""

from typing import Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass

from shuffledp.common.crypto.key_ring import MAX_DAYS
from shuffledp.common.crypto.privacy_tokens import check_issuer_name
from shuffledp.common.errors import SettingsError, WireError
from shuffledp.common.runtime.settings import FilePath, HttpSettings, Processes
from shuffledp.common.runtime.validation import STRICT


@dataclass(frozen=True, kw_only=True, config=STRICT)
class IssuerSettings(HttpSettings):
    """Settings of one issuer. They choose exactly one kind of credential."""

    issuer_name: str
    """Host name of this issuer, which every token's challenge contains."""
    state_key: FilePath | None = None
    """File of the 32-byte key that encrypts the secrets in state_directory; created on first start.
    By default, the directory's path with .key appended."""
    people: FilePath | None = None
    """Accept secrets: file of lines NAME HASH, from `shuffledp issuer people`."""
    oidc_issuer: Annotated[str, Field(min_length=1)] | None = None
    """Accept OpenID Connect ID tokens by this identity provider, an https URL as in its tokens."""
    oidc_audience: Annotated[str, Field(min_length=1)] | None = None
    """Client id for which the ID tokens are issued."""
    oidc_keys: FilePath | None = None
    """File of the identity provider's keys, a JSON Web Key Set; read again when it changes."""
    analyzer_identity: str | None = None
    """Be a witness of this analyzer's log: 64 hexadecimal digits."""
    signing_threads: Processes = 0
    """Threads that sign; 0 means one per core."""

    tokens_per_person: Annotated[int, Field(ge=1)] | None = None
    """Most tokens that a person gets for one population in one period; None for no cap."""
    tokens_period_days: Annotated[int, Field(ge=1, le=MAX_DAYS)] | None = None
    """Length of the periods."""

    def __post_init__(self) -> None:
        super().__post_init__()
        try:
            check_issuer_name(self.issuer_name)
        except WireError as error:
            raise SettingsError(f"issuer_name: {error}") from error
        if (self.tokens_per_person is None) != (self.tokens_period_days is None):
            raise SettingsError("tokens_per_person and tokens_period_days go together")
        of_provider = (self.oidc_issuer, self.oidc_audience, self.oidc_keys)
        given = [one is not None for one in of_provider]
        if given != [self.people is None] * len(given):
            raise SettingsError(
                "accept credentials of exactly one kind: people, or oidc_issuer with oidc_audience "
                "and oidc_keys"
            )
