"""haproxy, as the scale deployment configures it, before three front-ends."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import grpc
import pytest
import pytest_asyncio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from shuffledp.common.errors import PeerError
from shuffledp.common.runtime.clock import SystemClock
from shuffledp.common.runtime.metrics import OF_ALL
from shuffledp.common.runtime.rpc import open_channel, reply
from shuffledp.common.runtime.service import Service
from shuffledp.common.runtime.settings import ServiceSettings
from shuffledp.common.runtime.tls import Tls, development_files
from tests.support.commands import ROOT
from tests.support.tools import tool

_CONFIGURATION: Final = ROOT / "deploy" / "docker" / "scale" / "haproxy.cfg"
_FRONT_ENDS: Final = (1, 2, 3)
_PATIENCE: Final = 20.0


class FrontEnds:
    """Three services of a shuffler that answer health checks only, and haproxy before them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        files = development_files(directory / "tls", "shuffler", SystemClock())
        self.tls = Tls.open(files, "shuffler", SystemClock())
        self.services: dict[int, Service] = {}
        self.address = ""

    async def start(self, number: int, listen: str = "127.0.0.1:0") -> None:
        """Start a front-end; its health check knows the service `front-end NUMBER`."""
        settings = ServiceSettings(
            state_directory=self.directory / str(number),
            listen=listen,
            tls_directory=self.directory / "tls",
        )
        async with Service.starting(settings, "shuffler", OF_ALL, SystemClock()) as service:
            await service.serve("shuffledp.v1.Shuffler", lambda _: None)
        self.services[number] = service
        await self.say(number, health_pb2.HealthCheckResponse.SERVING)

    async def say(
        self, number: int, status: "health_pb2.HealthCheckResponse.ServingStatus"
    ) -> None:
        """Let a front-end answer health checks with a status."""
        checks = self.services[number].checks
        await checks.set(_name(number), health_pb2.HealthCheckResponse.SERVING)
        await checks.set("", status)

    def configured(self) -> Path:
        """Write the configuration with this test's addresses and certificates."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        text = _CONFIGURATION.read_text(encoding="utf-8").replace(":7002\n", ":here\n", 1)
        text = text.replace("bind :here", f"bind {self.address}")
        text = text.replace("/run/secrets", str(self.directory / "tls"))
        for number, service in self.services.items():
            text = text.replace(f"front-end-{number}:7002", service.address)
        file = self.directory / "haproxy.cfg"
        file.write_text(text, encoding="utf-8")
        return file

    def connect(self) -> grpc.aio.Channel:
        """Open a new connection, as a device does."""
        return open_channel(self.address, "shuffler", self.tls.identity.authority)

    async def reached(self) -> int:
        """Return the front-end that a new connection reaches; 0 if there is none."""
        async with self.connect() as channel:
            return await _reached(channel)


def _name(number: int) -> str:
    return f"front-end {number}"


async def _reached(channel: grpc.aio.Channel) -> int:
    for number in _FRONT_ENDS:
        request = health_pb2.HealthCheckRequest(service=_name(number))
        try:
            await health_pb2_grpc.HealthStub(channel).Check(request)
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.NOT_FOUND:
                return 0
        else:
            return number
    return 0


@pytest_asyncio.fixture(loop_scope="session")
async def front_ends(tmp_path: Path) -> AsyncIterator[FrontEnds]:
    """Three front-ends, all of them in use."""
    started = FrontEnds(tmp_path)
    for number in _FRONT_ENDS:
        await started.start(number)
    haproxy = await asyncio.create_subprocess_exec(
        tool("haproxy"), "-db", "-f", str(started.configured())
    )
    try:
        await _until_reached(started, set(_FRONT_ENDS))
        yield started
    finally:
        haproxy.kill()
        await haproxy.wait()
        for service in started.services.values():
            await service.stop()


async def _until_reached(started: FrontEnds, wanted: set[int]) -> None:
    """Wait until new connections reach these front-ends, and no other."""
    async with asyncio.timeout(_PATIENCE):
        while wanted != {await started.reached() for _ in range(3 * len(_FRONT_ENDS))}:
            await asyncio.sleep(0.1)


@pytest.mark.slow
async def test_a_front_end_that_drains_gets_no_new_connection(front_ends: FrontEnds) -> None:
    """Its connections stay; it gets new ones as soon as it serves again."""
    async with AsyncExitStack() as held:
        channels: dict[int, grpc.aio.Channel] = {}
        while len(channels) < len(_FRONT_ENDS):  # one connection each, or it is not the least used
            channel = await held.enter_async_context(front_ends.connect())
            channels[await _reached(channel)] = channel
        await front_ends.say(1, health_pb2.HealthCheckResponse.NOT_SERVING)
        await _until_reached(front_ends, {2, 3})
        assert await _reached(channels[1]) == 1
        await front_ends.say(1, health_pb2.HealthCheckResponse.SERVING)
        await _until_reached(front_ends, {1, 2, 3})


async def test_no_call_is_refused_while_front_ends_are_replaced(front_ends: FrontEnds) -> None:
    """Connections that a stopping front-end refuses reach others; a call it cuts off is retried."""

    async def call(calls_per_connection: int) -> None:
        while True:
            async with front_ends.connect() as channel:
                for _ in range(calls_per_connection):
                    try:
                        await _check(channel)
                    except PeerError:  # in flight when its front-end stopped
                        await _check(channel)
                    await asyncio.sleep(0.005)

    async with asyncio.TaskGroup() as group:
        calls = [group.create_task(call(number)) for number in (1, 1, 200, 200)]
        for number in _FRONT_ENDS:
            service = front_ends.services[number]
            await service.stop()
            await asyncio.sleep(0.2)
            await front_ends.start(number, service.address)
            await _until_reached(front_ends, set(_FRONT_ENDS))
        for each in calls:
            each.cancel()


async def _check(channel: grpc.aio.Channel) -> None:
    """Call once, as the project's clients do."""
    answer = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
    await reply(answer, "the shuffler")
