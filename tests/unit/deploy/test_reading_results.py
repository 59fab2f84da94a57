"""An operator reads a result from an analyzer that does not tell the truth."""

import dataclasses

import grpc
import pytest

from common.accounting.coalitions import guarantees
from common.errors import WireError
from common.result import Result
from common.result_wire import result_to_bytes
from common.signing import SignedTask, SigningIdentity
from common.task import Task
from common.task_digest import TaskDigest
from common.task_summary import TaskState
from common.task_summary_wire import description_to_wire
from deploy.commands.result import read_checked
from deploy.operator_client import OperatorClient
from tests.support.result_pages import Collected, collected, guarantee
from tests.support.wire_parsers import _summary


def _analyzer(signed: SignedTask, told: Result) -> grpc.GenericRpcHandler:
    """Tell a task, and a result of one's own making, whatever is asked for."""

    async def result(_request: bytes, _context: object) -> bytes:
        return result_to_bytes(told)

    async def description(_request: bytes, _context: object) -> bytes:
        return description_to_wire(signed, _summary(TaskState.RELEASED)).SerializeToString()

    return grpc.method_handlers_generic_handler(
        "shuffledp.v1.Analyzer",
        {
            "GetResult": grpc.unary_unary_rpc_method_handler(result),
            "DescribeTask": grpc.unary_unary_rpc_method_handler(description),
        },
    )


def _true() -> Collected:
    found = collected(size=4)
    stated = guarantees(found.task, found.result.n_users, sum(found.result.refused.values()))
    return dataclasses.replace(found, result=dataclasses.replace(found.result, guarantees=stated))


async def _read(told: Result, task: Task) -> Result:
    signed = SigningIdentity.generate().sign(task.to_bytes())
    server = grpc.aio.server(handlers=[_analyzer(signed, told)])
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    try:
        async with OperatorClient(grpc.aio.insecure_channel(address), address, "token") as client:
            _, found = await read_checked(client, signed.digest().hex())
            return found
    finally:
        await server.stop(None)


async def test_a_true_result_is_read() -> None:
    """With the guarantees that hold."""
    true = _true()

    assert true.result.guarantees == (await _read(true.result, true.task)).guarantees


async def test_the_result_of_another_task_is_not_the_one_that_was_asked_for() -> None:
    """Whatever the digest of what came."""
    true = _true()
    other = dataclasses.replace(true.result, task_digest=TaskDigest(b"\xd1" * 32))

    with pytest.raises(WireError, match="another task than was asked for"):
        await _read(other, true.task)


async def test_a_result_whose_parameters_the_task_contradicts_is_not_printed() -> None:
    """The signed task says how strong the local noise is."""
    true = _true()

    with pytest.raises(WireError, match=r"local_epsilon is 4\.0, and the result says 0\.01"):
        await _read(dataclasses.replace(true.result, local_epsilon=0.01), true.task)


async def test_a_promise_that_does_not_hold_is_not_printed() -> None:
    """It is worked out again where the command runs."""
    true = _true()
    lies = (guarantee("analyzer", 0.001, 0.0), *true.result.guarantees[1:])

    with pytest.raises(WireError, match=r"against analyzer the result states epsilon 0\.001"):
        await _read(dataclasses.replace(true.result, guarantees=lies), true.task)
