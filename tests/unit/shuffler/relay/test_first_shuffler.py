"""A first shuffler of tasks with two asks its relay before it collects."""

from pathlib import Path

import pytest

from audit.harness.memory_analyzer import MemoryAnalyzer
from common.crypto.signing import SigningIdentity
from common.errors import PeerRefusalError, ProofError, TaskError
from shuffler.delivery_client import ReceivingParty
from tests.support.chains import RELAY
from tests.support.keys import SHUFFLER
from tests.support.relays import CHAIN, Relay
from tests.support.shuffler_core import Shuffler


@pytest.mark.parametrize(
    ("pinned", "error", "sentence"),
    [
        (None, TaskError, "setting relay is missing"),
        (SHUFFLER, ProofError, "relay_key is not signed by the relay identity"),
    ],
    ids=["no relay", "another relay"],
)
async def test_a_first_shuffler_takes_only_tasks_of_its_relay(
    tmp_path: Path, pinned: SigningIdentity | None, error: type[Exception], sentence: str
) -> None:
    """Before any submission, which could never be delivered."""
    second = None
    if pinned is not None:
        client, identity = MemoryAnalyzer(CHAIN.signed), pinned.public_identity()
        second = ReceivingParty(name="relay", client=client, identity=identity)
    shuffler = Shuffler(tmp_path, CHAIN, relay=second)
    await shuffler.start()
    with pytest.raises(error, match=sentence):
        await shuffler.fetch_task(CHAIN.signed.digest())
    shuffler.store.close()


async def test_a_first_shuffler_collects_nothing_for_a_task_that_its_relay_refuses(
    tmp_path: Path,
) -> None:
    """As for a limit of the relay's own."""
    relay = Relay(tmp_path / "second", most_dummies=1)
    await relay.start()
    second = ReceivingParty(name="relay", client=relay, identity=RELAY.public_identity())
    shuffler = Shuffler(tmp_path / "first", CHAIN, relay=second)
    await shuffler.start()
    with pytest.raises(PeerRefusalError, match="most_dummies is 1"):
        await shuffler.fetch_task(CHAIN.signed.digest())

    assert {} == await shuffler.store.states()
    for party in (shuffler, relay):
        party.store.close()
