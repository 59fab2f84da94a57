"""The parties on this machine with HTTP for browsers, and the publisher's page to take part."""

import asyncio
import json
import signal
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from common.errors import PeerError, PeerRefusalError, SettingsError, UnknownTaskError
from common.messages.batch import BatchProgress
from common.runtime.certificates import Certificate
from common.runtime.service import GRPC_SILENCE
from common.runtime.validation import read_file
from common.task_digest import TaskDigest
from deploy.clients.local_cluster import Cluster, kept_address
from deploy.clients.local_parties import PARTIES, Child
from deploy.tasks.invitations import invitation
from user_agent.credentials import CredentialFile

PAGE_CAP: Final = 4.0
"""The page's cap of an answer's local ε, as of devices by default."""
_POLL_SECONDS: Final = 1.0


class WebHost(NamedTuple):
    """The name by which browsers reach this machine, and its certificate and key."""

    name: str
    certificate: Path
    key: Path

    def settings(self, tls: str, hosts: str) -> dict[str, Any]:
        """Return a party's settings of TLS and of its accepted names."""
        files = {f"{tls}certificate": str(self.certificate), f"{tls}key": str(self.key)}
        return {**files, hosts: [self.name]}

    def check(self) -> None:
        """Raise SettingsError unless the certificate is of this name, and the key is its own."""
        certificate = Certificate.read(self.certificate)
        names = [name.lower() for name in certificate.names]
        if not {self.name.strip("[]"), f"*.{self.name.partition('.')[2]}"} & {*names}:
            raise SettingsError(
                f"--host is {self.name}; it must be one of the names that {self.certificate} is "
                f"for, without scheme and port: {', '.join(names) or 'it has none'}"
            )
        if not certificate.matches_key(read_file(self.key)):
            raise SettingsError(f"{self.key} is not the key of {self.certificate}")


class PageCluster(Cluster):
    """The parties and a publisher, for browsers on this machine or, with a host, on others."""

    publisher: Child
    _process_group = 0

    def __init__(
        self,
        directory: Path,
        people: Sequence[str],
        host: WebHost | None = None,
        *,
        two_shufflers: bool = False,
    ) -> None:
        """Use the folder's keys, people and ports, if there are any; see `Cluster`."""
        super().__init__(directory, GRPC_SILENCE, people, two_shufflers=two_shufflers)
        self._host = host
        earlier = directory / "publisher" / "address"
        known = earlier.read_text(encoding="utf-8").rpartition(":")[2] if earlier.exists() else ""
        published = {"shuffler": "http_address", "issuer": "http_address", "publisher": "address"}
        self._web = {
            party: kept_address(directory / party / name) for party, name in published.items()
        }
        self.moved = known not in {"", self._web["publisher"].rpartition(":")[2]}
        """Whether the page's earlier port is in use, so that earlier invitations lead nowhere."""
        if host is not None:
            self._web = {
                party: address.replace("127.0.0.1", "0.0.0.0")  # noqa: S104  # for other devices
                for party, address in self._web.items()
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
        tls = self._host.settings("tls_", "hosts") if self._host else {"plaintext": True}
        pinned = {
            f"{party}_identity": self.published(party, "identity.pub")
            for party in ("analyzer", "shuffler", "issuer")
        } | self._relay_pin
        self.publisher = await self._start(
            "publisher",
            listen=self._web["publisher"],
            tls_directory=None,
            shuffler=self.url("shuffler"),
            issuer=self.url("issuer"),
            witnesses=self._witness_keys,
            trial=True,
            total_central_epsilon_cap=10.0,  # small batches have hardly any amplification
            inclusion_check_seconds=2.0,
            local_epsilon_cap=PAGE_CAP,
            coalition_epsilon_cap=PAGE_CAP,
            **pinned,
            **tls,
        )
        self._publish_pins(pinned)

    def _publish_pins(self, identities: dict[str, str]) -> None:
        """Write what a person's own client pins, and where it calls, to be handed over."""
        pins = {party: self.url(party) for party in ("shuffler", "issuer")} | identities
        quorum = len(self._witness_keys)  # as in the page: all; none of them checks claims
        more = {"witnesses": self._witness_keys, "witness_quorum": quorum, "checking_witnesses": []}
        text = json.dumps(pins | more, indent=2)
        (self.directory / "pins.json").write_text(f"{text}\n", encoding="utf-8")

    async def stop(self) -> None:
        """Stop all that were started, at once, since an interruption leaves little time."""
        started = [getattr(self, party, None) for party in PARTIES]
        await asyncio.gather(*(child.stop() for child in started if child is not None))

    def check(self) -> None:
        """Raise PeerError if a party has ended by itself."""
        for party in PARTIES:
            child: Child | None = getattr(self, party)
            if child and (status := child.process.returncode) is not None:
                how = (
                    f"by {signal.Signals(-status).name}" if status < 0 else f"with status {status}"
                )
                raise PeerError(f"the {party} has ended {how}; see {child.log}")

    async def watch(
        self, digest: TaskDigest, failed: Callable[[str], object] = lambda _: None
    ) -> AsyncGenerator[BatchProgress]:
        """
        Yield a batch's progress each second; tell `failed` why the shuffler does not answer.

        Raises PeerError if a party has ended by itself, PeerRefusalError if the shuffler refuses.
        """
        async with self.shuffler_operator() as shuffler:
            while True:
                self.check()
                try:
                    yield await shuffler.progress(digest)
                except PeerRefusalError as error:
                    if error.status != UnknownTaskError.status:  # nobody has fetched the task yet
                        raise
                except PeerError as error:
                    failed(str(error))
                await asyncio.sleep(_POLL_SECONDS)

    def addresses(self) -> dict[str, str]:
        """Return the parties' addresses, by the names of options, and those for browsers."""
        own = {party: getattr(self, party).address for party in ("analyzer", "shuffler", "issuer")}
        web = {f"{party}_url": self.url(party) for party in self._web}
        return {**own, "agent": self.user_agent.address, **web}

    def url(self, party: str) -> str:
        """Return the address of a party for browsers."""
        port = self._web[party].rpartition(":")[2]
        return f"https://{self._host.name}:{port}" if self._host else f"http://127.0.0.1:{port}"

    def invitations(self, digest: TaskDigest) -> dict[str, str]:
        """Return each person's address to take part in a task, by name."""
        people, page = CredentialFile(self.credentials).people(), self.url("publisher")
        return {name: invitation(page, digest, credential) for name, credential in people}

    def _http(self, party: str) -> dict[str, Any]:
        tls = self._host.settings("http_", "http_hosts") if self._host else {"http_plain": True}
        return {
            "http_listen": self._web[party],
            "http_origins": [self.url("publisher")],
            **tls,
        }
