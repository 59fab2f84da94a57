"""Two shufflers' servers over TLS, from devices' submissions to the result."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import grpc
import pytest

from shuffledp.common.crypto.signing import PublicIdentity, SignedTask
from shuffledp.common.errors import PeerError, PeerRefusalError, SettingsError
from shuffledp.common.messages.batch import BatchManifest, BatchPart, chain_batch_id
from shuffledp.common.runtime.clock import SystemClock
from shuffledp.common.runtime.rpc import open_channel
from shuffledp.common.runtime.tls import TlsFiles
from shuffledp.common.task.draft import RelayDraft
from shuffledp.common.task.task import Task
from shuffledp.common.task_digest import TaskDigest
from shuffledp.common.wire.batches import proof_from_wire
from shuffledp.deploy.clients.key_folder import KeyFolder
from shuffledp.deploy.clients.local_parties import LOOPBACK
from shuffledp.deploy.docker.preparation import SECOND, prepare_certificates
from shuffledp.protos.shuffledp.v1 import shuffler_pb2, user_agent_pb2
from shuffledp.shuffler.delivery_client import AnalyzerClient, DeliveryClient
from shuffledp.shuffler.settings import ShufflerSettings
from tests.support.chains import FLANKS, chain
from tests.support.clients import DEADLINE, contribute, envelopes, refusal, result_of, submit_bulk
from tests.support.command_line import shown, shown_json
from tests.support.services import Services

_USERS = 5


class _TwoOrganizations(Services):
    """The parties with certificates as in containers: the relay's by another authority."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.secrets = directory / "secrets"
        self.secrets.mkdir()
        now = SystemClock().now()
        prepare_certificates(self.secrets, now, two_shufflers=True)
        KeyFolder(self.secrets).make(["user_agent"], (), now)  # to call it over TCP

    def files(self, party: str, *, second: bool = False) -> TlsFiles:
        """Return a party's TLS files, of the second organization's if it is the relay's."""
        side = self.secrets / SECOND if second or party == "relay" else self.secrets
        own = side / party / f"{party}.pem"
        return TlsFiles(
            certificate=own, key=own.with_suffix(".key"), authority=side / "authority.pem"
        )

    @property
    def authority(self) -> Path:
        """File of trust beside the operator's certificate."""
        return self.secrets / "operator" / "authority.pem"

    def channel_as(self, name: str) -> grpc.aio.Channel:
        """Open a channel to the analyzer, with a party's certificate."""
        own = self.files(name).read()
        return open_channel(self.analyzer.address, "analyzer", own.authority, own=own)

    def own_settings(self, party: str) -> dict[str, Any]:
        """Return where a party has its state and its TLS files."""
        files = self.files(party)
        return {
            "state_directory": self.directory / party,
            "tls_certificate": files.certificate,
            "tls_key": files.key,
            "tls_authority": files.authority,
        }

    def _settings(self, party: str) -> dict[str, Any]:
        return {"listen": LOOPBACK, **self.own_settings(party)}


def _refused_settings(services: Services, path: Path, **changes: object) -> ShufflerSettings:
    fields = {
        "role": "relay",
        "state_directory": path,
        "tls_directory": services.directory / "tls",
        "analyzer": services.analyzer.address,
        "analyzer_identity": services.identity,
        "opening_processes": 1,
        "key_lifetime_days": 36_500,
    }
    return ShufflerSettings(**fields | changes)  # type: ignore[arg-type]


async def test_a_batch_passes_both_shufflers(tmp_path: Path) -> None:
    """
    The first relays the second's commitment to devices; only it may call the second.

    Each side's authority certifies its own parties alone.
    """
    services = _TwoOrganizations(tmp_path)
    await services.start_analyzer()
    await services.start_relay()
    await services.start_shuffler()
    names = {"shuffler_name": "first.example", "relay_name": "second.example"}
    await services.start_user_agent(**names | {"relay_name": "third.example"})
    assert services.relay is not None
    pinned, relay = services.published("relay", "identity.pub"), services.relay
    second = RelayDraft(name="second.example", key=services.relay_key, noise=FLANKS)
    fields = chain() | {"relay": second, "domain_size": 6, "n_min": _USERS, "target_size": _USERS}
    signed = await services.publish(**fields)
    assert "relay_name in" in (await refusal(contribute(services, signed, "Ada")))[1]
    await services.user_agent.stop()
    await services.start_user_agent(**names)
    told = await contribute(services, signed, "Ada")
    await submit_bulk(services, signed, envelopes(signed, _USERS - 1))
    result = await result_of(services, signed)
    question = user_agent_pb2.GetReceiptRequest(task_digest=signed.digest(), person="Ada")
    async with services.stubs() as (agent, _, _analyzer), asyncio.timeout(DEADLINE):
        while (seen := await agent.GetReceipt(question, timeout=DEADLINE)).inclusion == "unchecked":
            await asyncio.sleep(0.05)

    assert told.coalition_epsilon == Task.from_bytes(signed.task_bytes).coalition_epsilon
    assert ("counted", "relay") == (seen.inclusion, seen.signer)
    assert (_USERS, 0) == (result.n_users, sum(result.refused.values()))
    assert 2 * 6 * 50 + _USERS >= result.n_reports > 6 * 25
    request = shuffler_pb2.GetInclusionRequest(task_digest=signed.digest(), prefix=bytes(4))
    async with services.stubs() as (_, shuffler, _analyzer):
        proof = proof_from_wire(await shuffler.GetInclusion(request, timeout=DEADLINE))
    identity = PublicIdentity.from_hex(pinned, "relay_identity")
    most = Task.from_bytes(signed.task_bytes).most_leaves
    proof.commitment.verify(identity, TaskDigest(signed.digest()), most)
    other = BatchManifest(
        task_digest=signed.digest(),
        batch_id=chain_batch_id(signed.digest()),
        n_users=_USERS,
        n_reports=150,
    )
    for name, error, sentence in (
        ("shuffler", PeerRefusalError, "one task, one release"),
        ("relay", PeerError, "the relay refuses this shuffler's certificate"),
    ):
        own = services.files(name).read()
        async with open_channel(relay.address, "relay", own.authority, own=own) as channel:
            with pytest.raises(error, match=sentence):
                await DeliveryClient(channel).begin_delivery(other, 1)
    await _check_senders(services, signed)
    await _check_operators(services, relay.address)
    await asyncio.to_thread(_check_commands, services, signed.digest().hex())
    await services.stop()


def _check_commands(services: _TwoOrganizations, digest: str) -> None:
    """Check a relay's health, and what its operator's commands say of the batch."""
    assert services.relay is not None
    settings = {"role": "relay", **services.own_settings("relay")}
    environment = {
        f"SHUFFLEDP_SHUFFLER_{name.upper()}": str(value) for name, value in settings.items()
    }
    command = [sys.executable, "-m", "shuffledp.common.runtime.health_check", "shuffler"]
    subprocess.run(command, env=os.environ | environment, check=True)
    tokens = [services.directory / party / "operator.token" for party in ("analyzer", "relay")]
    trusted = services.secrets / SECOND / "operator" / "authority.pem"
    at_relay = [digest, "--relay", "--address", f"relay={services.relay.address}"]
    at_relay += ["--authority", str(trusted)]
    found = shown_json("batch", "show", *at_relay, "--token-file", str(tokens[1]))
    assert ("erased", _USERS, 0, "") == (
        *(found[name] for name in ("state", "n_users", "n_discarded", "waits_for")),
    )
    assert 6 * 50 + _USERS >= found["n_layers"] > _USERS
    erase = ("batch", "erase", *at_relay)
    for token, error, sentence in (
        (tokens[0], PeerRefusalError, "wrong operator token"),
        (tokens[1], PeerRefusalError, "a batch that is erased cannot drop"),
    ):
        with pytest.raises(error, match=sentence):
            shown(*erase, "--token-file", str(token))


async def _check_operators(services: _TwoOrganizations, relay: str) -> None:
    """Check that the relay's operator needs a certificate and the token, for each call."""
    token = f"Bearer {services.published('relay', 'operator.token')}"
    for name, credential, status in (
        ("operator", "Bearer nonsense", "UNAUTHENTICATED"),
        ("operator", "", "UNAUTHENTICATED"),
        ("shuffler", token, "PERMISSION_DENIED"),
    ):
        own = services.files(name, second=name == "operator").read()
        async with open_channel(relay, "relay", own.authority, own=own) as channel:
            for method in ("GetBatchStatus", "DropBatch"):
                call: Any = channel.unary_unary(f"/shuffledp.v1.Relay/{method}")
                shown = (("authorization", credential),)
                assert status == (await refusal(call(b"", timeout=DEADLINE, metadata=shown)))[0]


async def _check_senders(services: _TwoOrganizations, chained: SignedTask) -> None:
    """Check that neither shuffler delivers the other's tasks to the analyzer."""
    single = await services.publish(n_min=3, target_size=5)
    for name, signed in (("relay", single), ("shuffler", chained)):
        digest, sentence = signed.digest(), "the analyzer refuses this shuffler's certificate"
        manifest = BatchManifest(
            task_digest=digest, batch_id=chain_batch_id(digest), n_users=5, n_reports=150
        )
        part = BatchPart(task_digest=digest, part=0, n_reports=0, content_hash=bytes(32))
        own = services.files(name).read()
        address = services.analyzer.address
        async with open_channel(address, "analyzer", own.authority, own=own) as channel:
            client = AnalyzerClient(channel)
            for call in (
                client.begin_delivery(manifest, 1),
                client.deliver_part(part, []),
                client.finish_delivery(digest),
            ):
                with pytest.raises(PeerError, match=sentence):
                    await call


async def test_a_shuffler_without_a_relay_refuses_tasks_with_two(shared_services: Services) -> None:
    """Devices learn why, before anybody answers."""
    signed = await shared_services.publish(**chain(), n_min=3, target_size=3)
    status, message = await refusal(submit_bulk(shared_services, signed, envelopes(signed, 1)))

    assert (grpc.StatusCode.INVALID_ARGUMENT.name, True) == (status, "setting relay" in message)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"http_listen": "127.0.0.1:0"}, "http_listen has no use in the role relay"),
        ({"minimum_batch": 2}, "minimum_batch has no use in the role relay"),
        ({"keep_inclusion_days": 31}, "keep_inclusion_days has no use in the role relay"),
        ({"relay": "127.0.0.1:1", "relay_identity": "00" * 32}, "relay has no use in the role"),
        ({"role": "all", "relay": "127.0.0.1:1"}, "relay and relay_identity go together"),
        ({"key_lifetime_days": 0}, "key_lifetime_days is 0; the keys of a relay need a limit"),
        ({"executor": "tls://127.0.0.1:1"}, "the role relay needs coordinator_listen"),
    ],
)
def test_settings_without_a_use_are_refused(
    shared_services: Services, tmp_path: Path, changes: dict[str, str], sentence: str
) -> None:
    """A relay takes no submissions."""
    with pytest.raises(SettingsError, match=sentence):
        _refused_settings(shared_services, tmp_path, **changes)
