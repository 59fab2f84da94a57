"""Operators close batches and restrict who may submit, against real servers."""

import json

import pytest

from shuffledp.common.errors import PeerUnableError
from shuffledp.common.runtime.rpc import reply
from tests.support import clients
from tests.support.command_line import run_command
from tests.support.services import Services


async def _close(services: Services, digest: bytes, party: str) -> tuple[int | None, str, str]:
    return await run_command(
        *(
            "task",
            "close",
            digest.hex(),
            f"--address=shuffler={services.shuffler.address}",
            "--json",
        ),
        *clients.credentials(services, party),
    )


async def test_an_operator_closes_a_batch_and_nobody_else_does(services: Services) -> None:
    """Another service's token is refused, and so is a batch below n_min; a close releases it."""
    signed = await services.publish(n_min=10, target_size=100)
    *users, last = clients.envelopes(signed, 10)
    await clients.submit_bulk(services, signed, users)
    status, _, complaint = await _close(services, signed.digest(), "analyzer")
    assert (1, True) == (status, "wrong operator token" in complaint)
    status, _, complaint = await _close(services, signed.digest(), "shuffler")
    assert (1, True) == (status, "fewer users than n_min, which is 10" in complaint)
    await clients.submit(services, signed, last)
    for _ in range(2):
        status, printed, _ = await _close(services, signed.digest(), "shuffler")
        assert (0, True) == (status, json.loads(printed)["closed"])

    assert 10 == (await clients.result_of(services, signed)).n_users


@pytest.mark.own_services
async def test_a_connection_has_a_limit_without_tokens(services: Services) -> None:
    """The client is told the limit and may retry; another connection is still served."""
    address = services.shuffler.address
    await services.shuffler.stop()
    await services.start_shuffler(listen=address, submissions_per_connection=3)
    signed = await services.publish(n_min=10, target_size=10)
    users = clients.envelopes(signed, 5)
    with pytest.raises(PeerUnableError, match="may make 3 submissions; retry on a new"):
        await reply(clients.submit(services, signed, *users), "the shuffler")
    await clients.submit(services, signed, users[4])
