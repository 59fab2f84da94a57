"""The parties with HTTP for browsers, and the page to take part, in an event loop of their own."""

import time
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import shuffledp.publisher.server
from shuffledp.common.crypto.randomness import new_seed
from shuffledp.common.crypto.signing import SignedTask
from shuffledp.common.runtime.state_directory import StateDirectory
from shuffledp.common.runtime.witness_service import load_witness_key
from shuffledp.common.task.task import Task
from shuffledp.deploy.clients.issuer import IssuerClient, fetch_tokens
from shuffledp.deploy.clients.local_parties import LOOPBACK
from shuffledp.protos.shuffledp.v1 import shuffler_pb2, shuffler_pb2_grpc
from shuffledp.publisher.settings import PublisherSettings
from shuffledp.user_agent.credentials import CredentialFile
from tests.support.clients import DEADLINE, envelopes
from tests.support.engines import free_port
from tests.support.loop_thread import LoopThread
from tests.support.services import Services
from tests.support.tasks import draft

_DAY: Final = 86_400
_PEOPLE: Final = tuple(f"person {number}" for number in range(40))
_SUITE: Final = "x25519-hkdf-sha256-aes128gcm"
_WITNESSES: Final = ("shuffler", "issuer")


class _Parties(Services):
    """Analyzer, shuffler, issuer and publisher; shuffler and issuer witness the log."""

    async def start(self) -> None:
        """Start each service after the one that it calls; the page's origin is known before."""
        page, self.other_page = (f"127.0.0.1:{free_port()}" for _ in range(2))
        places, witnesses = {}, []
        for party in _WITNESSES:
            places[party] = f"127.0.0.1:{free_port()}"
            _, key = load_witness_key(StateDirectory.open(self.directory / party), party)
            witnesses.append({"address": places[party], "key": key.to_text()})
        origins = [f"http://{page}", f"http://{self.other_page}"]
        http = {"http_listen": LOOPBACK, "http_plain": True, "http_origins": origins}
        await self.start_analyzer(witnesses=witnesses)
        await self.start_shuffler(listen=places["shuffler"], **http)
        await self.start_issuer(listen=places["issuer"], analyzer_identity=self.identity, **http)
        self.pins = PublisherSettings(
            state_directory=self.directory / "publisher",
            listen=page,
            plaintext=True,
            shuffler=f"http://{self.published('shuffler', 'http_address')}",
            issuer=f"http://{self.published('issuer', 'http_address')}",
            analyzer_identity=self.identity,
            shuffler_identity=self.shuffler_identity,
            issuer_identity=self.published("issuer", "identity.pub"),
            witnesses=tuple(each["key"] for each in witnesses),
            total_local_epsilon_cap=10.0,
            total_central_epsilon_cap=10.0,
            inclusion_check_seconds=0.5,
        )
        self.publisher = await shuffledp.publisher.server.start(self.pins)

    async def stop(self) -> None:
        """Stop all, callers first."""
        await self.publisher.stop()
        await super().stop()

    @asynccontextmanager
    async def another_page(self, **changes: Any) -> AsyncIterator[str]:
        """Yield the address of a page with other constants, whose origin the services accept."""
        given: dict[str, Any] = {"listen": self.other_page} | changes
        other = await shuffledp.publisher.server.start(replace(self.pins, **given))
        try:
            yield f"http://{other.address}/"
        finally:
            await other.stop()

    async def publish_with_tokens(self, **changes: Any) -> SignedTask:
        """Publish a task for people with tokens, in a suite that browsers have."""
        end = int(time.time()) + _DAY
        tokens = await self.create_token_key(end)
        key = bytes.fromhex(self.published("shuffler", f"envelope-{_SUITE}.pub"))
        fields: dict[str, Any] = {
            "deadline": end,
            "protocol": "mixdump",
            "domain_size": 4,
            "buckets": 0,
        }
        fields |= {"dummies_per_user": 3, "delta": 0.01}
        fields |= {"n_min": 2, "target_size": 2, "suite": _SUITE, "shuffler_key": key}
        fields |= {"labels": ("bus", "bicycle", "car", "on foot"), "title": "Ways to work"}
        fields |= {"prompt": "How did you come to work today?", "purpose": "A trial."}
        async with self.operator() as operator:
            signed, _ = await operator.publish_task(draft(**fields | changes, tokens=tokens))
            return signed

    async def answer_for_another(self, signed: SignedTask) -> None:
        """Let the last person answer a task."""
        tokens = Task.from_bytes(signed.task_bytes).tokens
        assert tokens is not None
        async with IssuerClient.connect(self.issuer.address, self.authority) as issuer:
            credentials = CredentialFile(self.credentials).all()[-1:]
            spent = await fetch_tokens(
                issuer, tokens, signed.digest(), credentials, seed=new_seed()
            )
        [envelope], [token] = envelopes(signed, 1), spent
        fields = {"task_digest": signed.digest(), "envelope": envelope, "token": token}
        async with self.channel("shuffler", self.shuffler.address) as channel:
            stub = shuffler_pb2_grpc.ShufflerStub(channel)
            await stub.Submit(shuffler_pb2.SubmitRequest(**fields), timeout=DEADLINE)


class PageParties:
    """Runs the parties in a thread; tests drive a browser in theirs."""

    def __init__(self, folder: Path) -> None:
        """Start the parties with all files in a folder."""
        self._thread = LoopThread()
        self.run = self._thread.run
        self.parties = _Parties(folder, _PEOPLE)
        self.run(self.parties.start())
        self._invited = 0

    def stop(self) -> None:
        """Stop the parties and the thread."""
        self.run(self.parties.stop())
        self._thread.stop()

    @property
    def page(self) -> str:
        """Address of the page without an invitation."""
        return f"http://{self.parties.publisher.address}/"

    def another_page(self, **changes: Any) -> AbstractContextManager[str]:
        """Serve a page with other constants, and yield its address."""
        return self._thread.within(self.parties.another_page(**changes))

    def publish(self, **changes: Any) -> SignedTask:
        """Publish a task of four labels, which two people complete."""
        return self.run(self.parties.publish_with_tokens(**changes))

    def invite(self, signed: SignedTask, page: str = "") -> str:
        """Return the address with which a person that has answered nothing yet takes part."""
        credential = CredentialFile(self.parties.credentials).all()[self._invited]
        self._invited += 1
        fragment = f"#task={signed.digest().hex()}&credential={credential.hex()}"
        return f"{page or self.page}{fragment}"
