"""The health check of containers, against real services."""

import asyncio
import os
import re
import sys

import pytest

import shuffledp.user_agent.server
from shuffledp.common.errors import PeerError
from shuffledp.common.runtime.health_check import check
from shuffledp.common.runtime.settings import ServiceSettings
from shuffledp.user_agent.settings import UserAgentSettings
from tests.support.services import Services


def _settings(services: Services, party: str) -> ServiceSettings:
    """Return the settings of a running service."""
    return ServiceSettings(
        state_directory=services.directory / party, tls_directory=services.directory / "tls"
    )


@pytest.mark.own_services
async def test_only_a_running_service_is_healthy(services: Services) -> None:
    """The check finds it wherever it listens, and fails for another party or a stopped service."""
    for party in ("analyzer", "shuffler", "user_agent"):
        await check(_settings(services, party), party)
    port = services.shuffler.address.rpartition(":")[2]
    published = services.directory / "shuffler" / "address"
    for listening in (f"0.0.0.0:{port}", f"127.0.0.1:{port}\n"):
        published.write_text(listening, encoding="ascii")
        await check(_settings(services, "shuffler"), "shuffler")
    published.write_text(services.user_agent.address, encoding="ascii")
    with pytest.raises(PeerError, match="does not answer"):
        await check(_settings(services, "shuffler"), "shuffler")
    published.write_text(services.shuffler.address, encoding="ascii")
    await services.shuffler.stop()
    with pytest.raises(PeerError, match="does not answer"):
        await check(_settings(services, "shuffler"), "shuffler")
    await services.start_shuffler()


async def test_a_service_on_a_unix_socket_is_checked_there(services: Services) -> None:
    """A service on a socket needs no certificate."""
    settings = UserAgentSettings(
        state_directory=services.directory / "device",
        listen=f"unix:{services.directory}/agent.sock",
        tls_authority=services.directory / "tls" / "authority.pem",
        shuffler=services.shuffler.address,
        analyzer_identity=services.identity,
        shuffler_identity=services.shuffler_identity,
        allow_tasks_without_tokens=True,
        allow_unlogged_tasks=True,
    )
    device = await shuffledp.user_agent.server.start(settings)
    await check(settings, "user_agent")
    await device.stop()


async def test_the_command_reads_what_the_service_reads(services: Services) -> None:
    """It reads the settings file and environment; the error names the missing address file."""
    file = services.directory / "shuffler.toml"
    file.write_text(
        f"state_directory = '{services.directory}/nowhere'\n"
        f"tls_directory = '{services.directory}/tls'\n"
        "minimum_batch = 7\n"
        "analyzer = '127.0.0.1:1'\n",
        encoding="utf-8",
    )
    right = {"SHUFFLEDP_SHUFFLER_STATE_DIRECTORY": str(services.directory / "shuffler")}

    for environment, exit_status, sentence in (
        (right, 0, ""),
        ({}, 1, "shuffler: .*address does not hold the service's address.*\n"),
    ):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "shuffledp.common.runtime.health_check"),
            *("shuffler", "--settings", str(file)),
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "GRPC_VERBOSITY": "NONE", **environment},
        )
        _, said = await process.communicate()
        assert exit_status == process.returncode
        assert re.fullmatch(sentence, said.decode())
