"""Clients that begin and do not finish: cut off, and nobody else waits for them."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest

import analyzer.server
import shuffler.server
from analyzer.settings import AnalyzerSettings
from common.runtime.access import CallKind
from common.task.task import Task
from deploy.clients.analyzer import OperatorClient
from protos.shuffledp.v1 import shuffler_pb2
from shuffler.settings import ShufflerSettings
from tests.support.connections import RawConnection, shuffler_stub
from tests.support.tasks import draft
from user_agent.contribution import Contributor

_SUBMIT = "/shuffledp.v1.Shuffler/Submit"
_BULK = "/shuffledp.v1.Shuffler/SubmitBulk"
_SOON = 5.0
_TURNS, _TURNS_SHARE = CallKind.SHORT.value.turns, CallKind.SHORT.value.turns_share


@pytest.fixture
async def waiting(tmp_path: Path) -> AsyncIterator[tuple[str, shuffler_pb2.SubmitRequest]]:
    """A plaintext shuffler's address, and a submission that it takes."""
    analyzing = await analyzer.server.start(
        AnalyzerSettings(state_directory=tmp_path / "a", plaintext=True, opening_processes=1)
    )
    shuffling = await shuffler.server.start(
        ShufflerSettings(
            state_directory=tmp_path / "s",
            plaintext=True,
            analyzer=analyzing.address,
            analyzer_identity=(tmp_path / "a" / "identity.pub").read_text(encoding="ascii"),
            opening_processes=1,
        )
    )
    key = bytes.fromhex((tmp_path / "s" / "envelope.pub").read_text(encoding="ascii"))
    token = tmp_path / "a" / "operator.token"
    async with OperatorClient.connect(analyzing.address, None, token) as operator:
        signed = await operator.create_task(draft(key))
    contributor = Contributor(Task.from_bytes(signed.task_bytes), signed.digest())
    envelope = contributor.prepare(1, np.random.default_rng(1))
    yield (
        shuffling.address,
        shuffler_pb2.SubmitRequest(task_digest=signed.digest(), envelope=envelope),
    )
    await shuffling.stop()
    await analyzing.stop()


@pytest.mark.slow
async def test_a_client_that_trickles_holds_up_itself_only_and_is_cut_off(
    waiting: tuple[str, shuffler_pb2.SubmitRequest],
) -> None:
    """
    More than its share is begun, 4 MiB announced and a byte sent now and then; another client is
    served at once, and the calls are ended when they should have been read.
    """
    address, submission = waiting
    slow = await RawConnection.open(address)
    streams = [await slow.begin(_SUBMIT, 4 * 2**20 - 1) for _ in range(3 * _TURNS_SHARE)]
    async with shuffler_stub(address, None) as stub:
        await stub.Submit(submission, timeout=_SOON)
    said = bytearray()
    async with asyncio.timeout(CallKind.SHORT.value.read_seconds + _SOON):
        while b"did not come whole within 10 seconds" not in said:
            for stream in streams:
                await slow.trickle(stream, b"x")
            said += await slow.read()
    slow.close()


async def test_many_slow_connections_leave_room_for_bulk_calls_of_others(
    waiting: tuple[str, shuffler_pb2.SubmitRequest],
) -> None:
    """One connection holds a quarter of the bulk places, whatever it announces."""
    address, submission = waiting
    slow = await RawConnection.open(address)
    for _ in range(CallKind.BULK.value.places):
        await slow.begin(_BULK, 4 * 2**20 - 1)
    bulk = shuffler_pb2.SubmitBulkRequest(
        task_digest=submission.task_digest, envelopes=[submission.envelope]
    )
    async with shuffler_stub(address, None) as stub:
        answer = await stub.SubmitBulk(bulk, timeout=_SOON)
    slow.close()

    assert [shuffler_pb2.SUBMISSION_OUTCOME_STORED] == answer.outcomes


async def test_those_who_wait_behind_slow_connections_are_served_in_time(
    waiting: tuple[str, shuffler_pb2.SubmitRequest],
) -> None:
    """Enough connections fill the line for reading; a call behind them waits, and gets in."""
    address, submission = waiting
    slow = [await RawConnection.open(address) for _ in range(_TURNS // _TURNS_SHARE)]
    for connection in slow:
        for _ in range(_TURNS_SHARE):
            await connection.begin(_SUBMIT, 4 * 2**20 - 1)
    await asyncio.sleep(0.2)
    async with shuffler_stub(address, None) as stub:
        first = stub.Submit(submission, timeout=30)
        await asyncio.sleep(2)
        assert not first.done()
        slow[0].close()
        await first
    for connection in slow[1:]:
        connection.close()


@pytest.mark.slow
async def test_a_connection_on_which_nothing_is_said_is_closed(
    waiting: tuple[str, shuffler_pb2.SubmitRequest],
) -> None:
    """Half open, it would hold a file and memory for ever."""
    address, _ = waiting
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    async with asyncio.timeout(30):
        while await reader.read(1024):
            pass
    writer.close()
