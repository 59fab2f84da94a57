"""Settings of the publisher."""

import re
from dataclasses import fields
from typing import Annotated, Final

from pydantic import AfterValidator, Field
from pydantic.dataclasses import dataclass

from shuffledp.common.errors import SettingsError
from shuffledp.common.runtime.access import is_local
from shuffledp.common.runtime.pin_settings import PinSettings
from shuffledp.common.runtime.settings import FilePath, Host, ServiceSettings
from shuffledp.common.runtime.validation import STRICT
from shuffledp.common.version import VERSION

_PUBLISHED: Final = (
    *sorted(
        {each.name for each in fields(PinSettings)}
        - {each.name for each in fields(ServiceSettings)}
    ),
    "checking_witnesses",
    "trial",
)
"""Settings that become constants of the page; every other one stays with the server."""
_URL: Final = re.compile(r"(https://[a-z0-9.-]+|http://(localhost|127\.0\.0\.1))(:\d{1,5})?")


def _service_url(url: str) -> str:
    if not _URL.fullmatch(url):
        raise ValueError(
            "must be https:// and a name in small letters, with or without a port and without a "
            "path; or http:// and localhost or 127.0.0.1"
        )
    return url


ServiceUrl = Annotated[str, AfterValidator(_service_url)]


@dataclass(frozen=True, kw_only=True, config=STRICT)
class PublisherSettings(PinSettings):
    """Settings of the publisher. Its pins and limits become constants of the page."""

    hosts: tuple[Host, ...] = ()
    """Names, without a port, under which browsers reach the page; by default that of `listen`.

    A browser has an account, with limits of its own, under each name.
    """
    behind_proxy: bool = False
    """Whether a proxy on a private network ends TLS, so that `plaintext` is allowed anywhere."""
    bundle: FilePath | None = None
    """Directory of the page's files; by default user_agent/web/dist of this checkout."""
    shuffler: ServiceUrl
    """Address of the shuffler's HTTP, as browsers reach it."""
    issuer: ServiceUrl | None = None
    """Address of the issuer's HTTP, for tasks that require tokens."""
    witnesses: Annotated[tuple[str, ...], Field(min_length=1)]
    checking_witnesses: tuple[str, ...] = ()
    """Those of the witnesses that recompute every claim before they cosign."""
    checking_quorum: Annotated[int, Field(ge=0)] = 0
    """How many of them must have cosigned a task whose claim the page cannot check; 0 for all."""
    trial: bool = False
    """Tell people that one operator runs all parties, the publisher among them."""

    def __post_init__(self) -> None:
        pair = [file is not None for file in (self.tls_certificate, self.tls_key)]
        ways = [self.tls_directory is not None, any(pair), self.plaintext]
        if sum(ways) != 1 or any(pair) != all(pair) or self.tls_authority is not None:
            raise SettingsError(
                "protect the page in exactly one way: tls_directory, or tls_certificate with "
                "tls_key, which browsers trust without tls_authority, or plaintext = true"
            )
        if self.listen.startswith("unix:") or self.metrics_listen is not None:
            raise SettingsError("the publisher listens on host:port, and has no metrics")
        if self.plaintext and not (self.behind_proxy or is_local(self.listen)):
            raise SettingsError("plaintext is allowed on loopback, or with behind_proxy = true")
        if self.listen.startswith(("0.0.0.0:", "[::]:")) and not self.hosts:
            raise SettingsError("listen on all addresses needs hosts")
        if (self.issuer is None) != (self.issuer_identity is None):
            raise SettingsError("issuer and issuer_identity belong together")
        if self.issuer is None and not self.allow_tasks_without_tokens:
            raise SettingsError("set issuer and issuer_identity, or allow_tasks_without_tokens")
        if not set(self.checking_witnesses) <= set(self.witnesses):
            raise SettingsError("checking_witnesses must be among the witnesses")
        if self.checking_quorum > len(self.checking_witnesses):
            raise SettingsError(
                f"checking_quorum is {self.checking_quorum}; checking_witnesses has "
                f"{len(self.checking_witnesses)}"
            )

    def accepted_hosts(self) -> tuple[str, ...]:
        """Return the accepted Host names, without a port."""
        return self.hosts or (self.listen.rpartition(":")[0].lower(),)

    def constants(self) -> dict[str, object]:
        """
        Return the constants of the page: user_agent/web/page/constants.d.ts.

        Raises WireError for a malformed key, and SettingsError for another breach of a rule.
        """
        self.identities()
        quorum = self.witness_policy().quorum
        checking = self.checking_quorum or len(self.checking_witnesses)
        own = {name: getattr(self, name) for name in _PUBLISHED}
        return own | {"witness_quorum": quorum, "checking_quorum": checking, "version": VERSION}
