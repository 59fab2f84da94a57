"""
The services as child processes on loopback, on free ports or those of an earlier run.

With a page to take part: HTTP for browsers, and a publisher.
"""

import asyncio
import json
import os
import random
import signal
import socket
import sys
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple, Self

from shuffledp.common.errors import PeerError, PeerRefusalError, SettingsError, UnknownTaskError
from shuffledp.common.messages.batch import BatchProgress
from shuffledp.common.runtime import certificates, service, validation
from shuffledp.common.runtime.state_directory import StateDirectory
from shuffledp.common.runtime.witness_service import load_witness_key
from shuffledp.common.task_digest import TaskDigest
from shuffledp.deploy.clients.issuer import invitation
from shuffledp.deploy.clients.local_parties import LOOPBACK, PARTIES, Child, LocalParties
from shuffledp.user_agent.credentials import CredentialFile

_START_SECONDS: Final = 60.0
MOST_EPSILON: Final = 20.0
"""Largest ε of an answer, against the analyzer with a shuffler, that the user agent accepts."""
_POLL_SECONDS: Final = 0.05
_FIXED_PORTS: Final = range(20_000, 32_000)
"""Below the ports that systems choose themselves."""
PAGE_CAP: Final = 4.0
"""The page's cap of an answer's local ε, as of devices by default."""
_WATCH_SECONDS: Final = 1.0


class Cluster(LocalParties[Child]):
    """The parties as processes, with the shuffler and the issuer as witnesses of the log."""

    _modules: ClassVar[Mapping[str, str]] = {"relay": "shuffledp.shuffler"}
    """Modules that are run in place of one of the party's name."""
    _process_group: ClassVar[int | None] = None
    """0 for groups of their own, which a terminal's Ctrl-C does not reach."""

    def __init__(
        self,
        directory: Path,
        environment: Mapping[str, str] = service.GRPC_SILENCE,
        people: Sequence[str] = (),
        *,
        two_shufflers: bool = False,
        **shared: Any,  # noqa: ANN401  # any setting
    ) -> None:
        """`shared` are settings of all parties, None for an unset one; see `LocalParties`."""
        super().__init__(directory, people)
        self._two_shufflers = two_shufflers
        self._environment = environment
        witnesses = ("shuffler", "issuer") if people else ("shuffler",)
        self._witnesses = {each: kept_address(directory / each / "address") for each in witnesses}
        agent = f"unix:{(directory / 'user_agent.sock').resolve()}"
        self._listen = {**self._witnesses, "user_agent": agent}
        self._shared = {"tls_directory": str(directory / "tls"), **shared}

    async def __aenter__(self) -> Self:
        try:
            await self.start_analyzer()
            if self._two_shufflers:
                await self.start_relay()
            await self.start_shuffler()
            if self.people:
                await self.start_issuer()
            await self.start_user_agent()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start_analyzer(self, **changes: Any) -> None:  # noqa: ANN401
        """Start the analyzer, which knows its log's witnesses before they start."""
        witnesses = []
        for party, address in self._witnesses.items():
            _, key = load_witness_key(StateDirectory.open(self.directory / party), party)
            witnesses.append({"address": address, "key": key.to_text()})
        self._witness_keys = [one["key"] for one in witnesses]
        await super().start_analyzer(**{"witnesses": witnesses} | changes)

    async def start_issuer(self, **changes: Any) -> None:  # noqa: ANN401
        """Start the issuer, with new secrets of the people."""
        await super().start_issuer(**{"analyzer_identity": self.identity} | changes)

    async def start_user_agent(self, **changes: Any) -> None:  # noqa: ANN401
        """Start the user agent, on a Unix socket."""
        own = dict.fromkeys(("local_epsilon_cap", "coalition_epsilon_cap"), MOST_EPSILON)
        own |= {"inclusion_check_seconds": 1.0}
        changes = {**own, "witnesses": self._witness_keys, **changes}
        await super().start_user_agent(**changes)

    async def _start(self, party: str, name: str = "", **settings: Any) -> Child:  # noqa: ANN401
        """Start a service with files under `name`, by default the party, and await its address."""
        name = name or party
        state = self.directory / name
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        published = state / "address"
        published.unlink(missing_ok=True)
        listen = self._listen.get(name, LOOPBACK)
        own = {"listen": listen, "state_directory": str(state), **self._shared}
        file, log = self.directory / f"{name}.toml", self.directory / f"{name}.log"
        # JSON with " = " in tables is also valid TOML.
        lines = ["# Rewritten at each start.\n"]
        lines += [
            f"{key} = {json.dumps(value, separators=(', ', ' = '), ensure_ascii=False)}\n"
            for key, value in (own | settings).items()
            if value is not None
        ]
        file.write_text("".join(lines), encoding="utf-8")
        module = self._modules.get(party, f"shuffledp.{party}")
        with log.open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", module, "--settings", str(file)),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, "PYTHONUNBUFFERED": "1", **self._environment},
                process_group=self._process_group,
            )
        try:
            async with asyncio.timeout(_START_SECONDS):
                while process.returncode is None and not published.exists():  # noqa: ASYNC110  # a file has no event to await
                    await asyncio.sleep(_POLL_SECONDS)
            if process.returncode is None:
                return Child(party, process, state, published.read_text(encoding="utf-8"), log)
        except BaseException:
            process.kill()
            await process.wait()
            raise
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        raise SettingsError(f"the {name} did not start: {(lines or ['its log is empty'])[-1]}")


def kept_address(published: Path) -> str:
    """
    Return an address for a service that others must know before it starts.

    Its port is the one that an earlier run has published, if that is free.
    """
    port = 0
    if published.exists():
        port = int(published.read_text(encoding="utf-8").rpartition(":")[2])
    while True:
        port = port or random.SystemRandom().choice(_FIXED_PORTS)
        with socket.socket() as probe, suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return f"127.0.0.1:{port}"
        port = 0


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
        certificate = certificates.Certificate.read(self.certificate)
        names = [name.lower() for name in certificate.names]
        if not {self.name.strip("[]"), f"*.{self.name.partition('.')[2]}"} & {*names}:
            raise SettingsError(
                f"--host is {self.name}; it must be one of the names that {self.certificate} is "
                f"for, without scheme and port: {', '.join(names) or 'it has none'}"
            )
        if not certificate.matches_key(validation.read_file(self.key)):
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
        super().__init__(directory, service.GRPC_SILENCE, people, two_shufflers=two_shufflers)
        self._host = host
        earlier = directory / "publisher" / "address"
        known = earlier.read_text(encoding="utf-8").rpartition(":")[2] if earlier.exists() else ""
        files = {"shuffler": "http_address", "issuer": "http_address", "publisher": "address"}
        self._web = {party: kept_address(directory / party / name) for party, name in files.items()}
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
        # What a person's own client pins, and where it calls, to be handed over.
        pins = {party: self.url(party) for party in ("shuffler", "issuer")} | pinned
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
            if child and (code := child.process.returncode) is not None:
                how = f"by {signal.Signals(-code).name}" if code < 0 else f"with status {code}"
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
                await asyncio.sleep(_WATCH_SECONDS)

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
        return {"http_listen": self._web[party], "http_origins": [self.url("publisher")], **tls}
