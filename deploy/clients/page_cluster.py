"""The parties on this machine with HTTP for browsers, and the publisher's page to take part."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from common.errors import PeerError
from common.runtime.service import GRPC_SILENCE
from common.task_digest import TaskDigest
from deploy.clients.local_cluster import Cluster, kept_address
from deploy.clients.local_parties import PARTIES, Child
from deploy.tasks.invitations import invitation
from user_agent.credentials import CredentialFile

_ON_HTTP: Final = ("shuffler", "issuer", "publisher")
_STOPPING_SECONDS: Final = 1.0
"""Time for a signal that ends all processes to reach this one too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebHost:
    """The name under which browsers reach the parties: this machine alone, or with TLS."""

    name: str = "127.0.0.1"
    certificate: Path | None = None
    key: Path | None = None

    def url(self, address: str) -> str:
        """Return the origin of a party that listens at host:port."""
        scheme = "https" if self.certificate else "http"
        return f"{scheme}://{self.name}:{address.rpartition(':')[2]}"

    def settings(self, prefix: str) -> dict[str, Any]:
        """Return the settings of a TLS listener, whose names begin with `prefix`."""
        files = {"certificate": str(self.certificate), "key": str(self.key)}
        return {f"{prefix}{name}": file for name, file in files.items()}


class PageCluster(Cluster):
    """The parties and a publisher, which a terminal's Ctrl-C does not reach; see `Cluster`."""

    publisher: Child
    _process_group = 0

    def __init__(self, directory: Path, people: Sequence[str], host: WebHost | None = None) -> None:
        """Use the folder's keys, people and ports, if there are any; `people` may be more."""
        super().__init__(directory, GRPC_SILENCE, people)
        self.host = host or WebHost()
        names = {"publisher": "address"}
        interface = "0.0.0.0" if self.host.certificate else "127.0.0.1"  # noqa: S104  # for phones
        self._web = {
            party: kept_address(directory / party / names.get(party, "http_address")).replace(
                "127.0.0.1", interface
            )
            for party in _ON_HTTP
        }

    async def start_shuffler(self, **changes: Any) -> None:  # noqa: ANN401
        """Start the shuffler, with HTTP for the page."""
        await super().start_shuffler(**self._http("shuffler") | changes)

    async def start_issuer(self, **changes: Any) -> None:  # noqa: ANN401
        """Start the issuer, with HTTP for the page."""
        await super().start_issuer(**self._http("issuer") | changes)

    async def start_user_agent(self, **changes: Any) -> None:  # noqa: ANN401
        """Start the user agent, and the publisher, whose page pins the same identities."""
        await super().start_user_agent(**changes)
        own: dict[str, Any] = {"plaintext": True}
        if self.host.certificate:
            own = {"hosts": [self.host.name], **self.host.settings("tls_")}
        pinned = {
            f"{party}_identity": self.published(party, "identity.pub")
            for party in ("analyzer", "shuffler", "issuer")
        }
        self.publisher = await self._start(
            "publisher",
            listen=self._web["publisher"],
            tls_directory=None,
            shuffler=self.url("shuffler"),
            issuer=self.url("issuer"),
            witnesses=self._witness_keys,
            total_central_epsilon_cap=10.0,  # small batches have hardly any amplification
            inclusion_check_seconds=2.0,
            **pinned,
            **own,
        )

    async def failure(self) -> PeerError:
        """Return the error of the first process that ends although nobody has stopped it."""
        children: list[Child] = [getattr(self, party) for party in PARTIES]
        ends = {asyncio.ensure_future(each.process.wait()): each for each in children}
        try:
            done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for end in ends:
                end.cancel()
        await asyncio.sleep(_STOPPING_SECONDS)
        ended = done.pop()
        return PeerError(
            f"the {ends[ended].party} has ended with status {ended.result()}; its log is "
            f"{ends[ended].log}"
        )

    def addresses(self) -> dict[str, str]:
        """Return the parties' addresses, and those for browsers."""
        names = ("analyzer", "shuffler", "issuer", "agent")
        own = {
            name: getattr(self, party).address for name, party in zip(names, PARTIES, strict=False)
        }
        return own | {f"{party}_url": self.url(party) for party in _ON_HTTP}

    def url(self, party: str) -> str:
        """Return the origin of a party, of the publisher's page too."""
        return self.host.url(self._web[party])

    def invitations(self, digest: TaskDigest) -> dict[str, str]:
        """Return each person's address to take part in a task, by name."""
        people = CredentialFile(self.credentials).people()
        page = self.url("publisher")
        return {name: invitation(page, digest, credential) for name, credential in people}

    def _http(self, party: str) -> dict[str, Any]:
        own: dict[str, Any] = {"http_plain": True}
        if self.host.certificate:
            own = {"http_hosts": [self.host.name], **self.host.settings("http_")}
        origins = [self.url("publisher")]
        return {"http_listen": self._web[party], "http_origins": origins, **own}
