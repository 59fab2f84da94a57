"""Clients with unread answers or unfinished requests are cut off and delay no other client."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from multiprocessing import get_context
from typing import Any

import grpc
import pytest

from shuffledp.common.errors import OverloadError, ShareError
from shuffledp.common.runtime.access import CALLS, CallKind, Connections, connections_of
from shuffledp.common.runtime.admission import Admission
from shuffledp.common.runtime.admission_interceptor import AdmissionInterceptor
from shuffledp.common.runtime.rpc import bind, make_server, open_channel, reply
from shuffledp.protos.shuffledp.v1 import shuffler_pb2, shuffler_pb2_grpc, task_pb2
from shuffledp.shuffler.servicer import ShufflerServicer
from tests.support.connections import RawConnection, connect, hold_calls, shuffler_stub

_FETCH = "/shuffledp.v1.Shuffler/FetchTask"
_SUBMIT = "/shuffledp.v1.Shuffler/Submit"
_BULK = "/shuffledp.v1.Shuffler/SubmitBulk"
_TASK_BYTES = 1_000_000
_WINDOW = 65_535
_ANNOUNCED = 4 * 2**20 - 1
"""Bytes of a message that does not arrive."""
_SOON = 5.0
_LIMITS = connections_of("shuffledp.v1.Shuffler")


class Answering(ShufflerServicer):
    """The shuffler's servicer without its core: returns a long task or a short receipt at once."""

    def __init__(self) -> None:
        self.tasks = 0

    async def FetchTask(  # noqa: N802  # named as in the .proto file
        self, _request: object, _context: object
    ) -> shuffler_pb2.FetchTaskResponse:
        """Return a task of a megabyte."""
        self.tasks += 1
        return shuffler_pb2.FetchTaskResponse(task=task_pb2.SignedTask(task=bytes(_TASK_BYTES)))

    async def Submit(  # noqa: N802  # named as in the .proto file
        self, _request: object, _context: object
    ) -> shuffler_pb2.SubmitResponse:
        """Return a receipt."""
        return shuffler_pb2.SubmitResponse(receipt=bytes(64))


@asynccontextmanager
async def _server(
    connections: Connections = _LIMITS, on_error: Callable[[BaseException], None] = lambda _: None
) -> AsyncIterator[tuple[str, Answering]]:
    """Run a plaintext server behind the admission interceptor."""
    interceptor = AdmissionInterceptor(Admission(on_error=on_error))
    server = make_server(interceptor, connections)
    servicer = Answering()
    shuffler_pb2_grpc.add_ShufflerServicer_to_server(servicer, server)
    address = bind(server, "127.0.0.1:0", None)
    await server.start()
    try:
        yield address, servicer
    finally:
        await server.stop(0)


@asynccontextmanager
async def _connections(address: str, count: int, window: int) -> AsyncIterator[list[RawConnection]]:
    """Open connections that answer pings."""
    opened = [await RawConnection.open(address, window) for _ in range(count)]
    staying = [asyncio.create_task(one.stay()) for one in opened]
    try:
        yield opened
    finally:
        for one in opened:
            one.close()
        await asyncio.gather(*staying)


async def _is_served(address: str) -> None:
    async with shuffler_stub(address, None) as stub:
        await stub.Submit(shuffler_pb2.SubmitRequest(), timeout=_SOON)
        await stub.FetchTask(shuffler_pb2.FetchTaskRequest(), timeout=_SOON)


async def test_clients_that_read_no_answer_hold_no_more_than_a_share() -> None:
    """Of thousands of calls on four connections, only those with a read slot make a long answer."""
    async with _server() as (address, servicer), _connections(address, 4, 0) as greedy:
        for _ in range(1024):
            for one in greedy:
                await one.call(_FETCH, b"")
                await one.call(_SUBMIT, b"")
        made = len(greedy) * CallKind.TASK.value.peer_reads
        async with asyncio.timeout(_SOON):
            while servicer.tasks < made:
                await asyncio.sleep(0.05)
        await asyncio.sleep(0.3)
        assert made == servicer.tasks
        await _is_served(address)


async def test_a_place_is_held_until_the_answer_is_read() -> None:
    """Unread answers count against their connection."""
    wide = replace(_LIMITS, streams=2 * CallKind.SHORT.value.peer_calls)
    async with _server(wide) as (address, _):
        greedy = await RawConnection.open(address, 0)
        for _ in range(CallKind.SHORT.value.peer_calls):
            await greedy.call(_SUBMIT, b"")
        await asyncio.sleep(0.3)
        await greedy.call(_SUBMIT, b"")
        said = bytearray()
        async with asyncio.timeout(_SOON):
            while b"no place is free in this connection's share" not in said:
                said += await greedy.read()
        greedy.close()


async def test_a_connection_with_unread_answers_is_ended_by_its_age() -> None:
    """Answers to pings do not keep it open; its read slots are then free for others."""
    short = replace(_LIMITS, age_seconds=0.3, grace_seconds=0.3)
    limits = CallKind.TASK.value
    count = limits.reads // limits.peer_reads
    async with _server(short) as (address, _):
        async with _connections(address, count, 0) as greedy:
            for one in greedy:
                for _ in range(limits.peer_reads):
                    await one.call(_FETCH, b"")
            async with asyncio.timeout(_SOON):
                while not all(one.is_over() for one in greedy):
                    await asyncio.sleep(0.05)
        await _is_served(address)


async def test_a_steady_client_sees_no_error_when_its_connection_ages() -> None:
    """Calls move across ten connections in turn, without an error."""
    short = replace(_LIMITS, age_seconds=0.1, grace_seconds=1)
    async with _server(short) as (address, _), open_channel(address, "shuffler", None) as to:
        stub = shuffler_pb2_grpc.ShufflerStub(to)
        until = asyncio.get_running_loop().time() + 1

        async def submit() -> int:
            answers = 0
            while asyncio.get_running_loop().time() < until:
                await reply(stub.Submit(shuffler_pb2.SubmitRequest(), timeout=_SOON), "it")
                answers += 1
            return answers

        answered = await asyncio.gather(*(submit() for _ in range(8)))

    assert min(answered) > 0


@pytest.mark.parametrize(("method", "kind"), [(_SUBMIT, CallKind.SHORT), (_BULK, CallKind.BULK)])
async def test_calls_that_never_send_leave_room_for_others(method: str, kind: CallKind) -> None:
    """Four connections begin more calls than the limit, and each gets its own share."""
    async with _server() as (address, _), _connections(address, 4, _WINDOW) as greedy:
        for _ in range(kind.value.calls // 4):
            for one in greedy:
                await one.begin(method, _ANNOUNCED)
        await _is_served(address)


async def _served(address: str, method: str, times: int) -> int:
    """Call from a new connection each time; return the number of calls served within _SOON."""
    served = 0
    for _ in range(times):
        async with connect(address, None) as channel:
            call: Any = channel.unary_unary(method)
            try:
                await call(b"", timeout=_SOON)
            except grpc.aio.AioRpcError:
                continue
            served += 1
    return served


_ATTACKERS = 34


@pytest.mark.slow
@pytest.mark.parametrize("method", [_SUBMIT, _FETCH])
@pytest.mark.parametrize(
    "sources",
    [
        ["127.0.0.2"] * _ATTACKERS,
        [f"127.0.0.{2 + number}" for number in range(_ATTACKERS)],
        ["127.0.0.1"] * _ATTACKERS,
    ],
    ids=["one address", "many addresses", "the clients' address"],
)
async def test_calls_without_a_message_keep_nobody_out(method: str, sources: list[str]) -> None:
    """
    Each attacker holds 64 calls, and begins another one for each that is refused.

    Of the calls of 17 clients at once, nine in ten are served soon. The attackers' refusals are
    counted apart from overload.
    """
    noted: list[type] = []
    async with _server(on_error=lambda error: noted.append(type(error))) as (address, _):
        attack = (address, method, sources, CallKind.SHORT.value.peer_calls)
        attacker = get_context("spawn").Process(target=hold_calls, args=attack, daemon=True)
        attacker.start()
        async with asyncio.timeout(30):
            while not noted:
                await asyncio.sleep(0.1)
        served = await asyncio.gather(*(_served(address, method, 4) for _ in range(17)))
        attacker.kill()
        await asyncio.to_thread(attacker.join)

    assert sum(served) >= 0.9 * 4 * 17
    assert ShareError in noted
    assert OverloadError not in noted


async def test_a_call_behind_slow_connections_is_served_at_once() -> None:
    """Slow connections hold all read slots; a call of another one takes a slot of theirs."""
    limits = CallKind.SHORT.value
    count = limits.reads // limits.peer_reads
    async with _server() as (address, _), _connections(address, count, _WINDOW) as slow:
        for one in slow:
            for _ in range(limits.peer_reads):
                await one.begin(_SUBMIT, _ANNOUNCED)
        await asyncio.sleep(0.2)
        await _is_served(address)


@pytest.mark.slow
async def test_a_client_that_trickles_delays_only_itself_and_is_cut_off() -> None:
    """Calls that announce 4 MiB and send single bytes end at the time limit for reading."""
    limits = CallKind.SHORT.value
    async with _server() as (address, _):
        slow = await RawConnection.open(address)
        streams = [await slow.begin(_SUBMIT, _ANNOUNCED) for _ in range(3 * limits.peer_reads)]
        await _is_served(address)
        said = bytearray()
        async with asyncio.timeout(limits.read_seconds + _SOON):
            while b"did not arrive completely within 10 seconds" not in said:
                for stream in streams:
                    await slow.trickle(stream, b"x")
                said += await slow.read()
        slow.close()


@pytest.mark.slow
async def test_a_silent_connection_is_closed() -> None:
    """A half-open connection would hold a file and memory for ever."""
    async with _server() as (address, _):
        reader, writer = await asyncio.open_connection(*address.rsplit(":", 1))
        async with asyncio.timeout(30):
            while await reader.read(1024):
                pass
        writer.close()


async def test_a_message_is_not_parsed_before_its_call_has_ended() -> None:
    """A parsed message can take 20 times its bytes for as long as the call lasts."""
    async with _server() as (address, _), connect(address, None) as channel:
        call: grpc.aio.StreamUnaryCall[bytes, bytes] = channel.stream_unary(_BULK)()
        await call.write(b"no message")
        await asyncio.sleep(0.3)
        assert not call.done()
        await call.done_writing()
        with pytest.raises(grpc.aio.AioRpcError, match="not a message of this call"):
            await call


def test_strangers_have_a_small_share_of_everything() -> None:
    """Eight connections fill the read slots of a kind of call, and 32 its limit of calls."""
    kinds = {call.kind for name, call in CALLS.items() if ".Shuffler/" in name}
    for limits in [kind.value for kind in kinds - {CallKind.SHUFFLER_OPERATION}]:
        assert limits.calls >= 32 * limits.peer_calls
        assert limits.reads >= 8 * limits.peer_reads
