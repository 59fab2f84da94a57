"""An operator reads a result from an analyzer that does not tell the truth."""

import csv
import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import grpc
import pytest
from pyarrow import parquet

from common.accounting.guarantees import guarantees
from common.crypto.signing import SignedTask, SigningIdentity
from common.errors import WireError
from common.messages.result import Result
from common.messages.task_summary import TaskState
from common.task.task import Task
from common.task_digest import TaskDigest
from common.wire.results import result_to_bytes
from common.wire.tasks import description_to_wire
from deploy.clients.analyzer import OperatorClient
from deploy.commands.result import read_checked
from tests.support.command_line import run_command
from tests.support.kind_results import CANDIDATES, kind_collected
from tests.support.result_pages import Collected, collected, guarantee
from tests.support.wire_parsers import _summary

_FILES: Final = ("csv", "parquet", "html")


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


@asynccontextmanager
async def _serving(told: Result, task: Task) -> AsyncIterator[tuple[str, str]]:
    """Serve a result: give the address, and the task's digest."""
    signed = SigningIdentity.generate().sign(task.to_bytes())
    server = grpc.aio.server(handlers=[_analyzer(signed, told)])
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    try:
        yield address, signed.digest().hex()
    finally:
        await server.stop(None)


async def _read(told: Result, task: Task) -> Result:
    async with (
        _serving(told, task) as (address, digest),
        OperatorClient(grpc.aio.insecure_channel(address), address, "token") as client,
    ):
        _, found = await read_checked(client, digest)
        return found


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


async def _write(folder: Path, candidates: bytes | None) -> tuple[int | None, str, str]:
    """Let the command write the result of a task for texts as every kind of file."""
    texts = kind_collected("string")
    result = dataclasses.replace(
        texts.result, guarantees=guarantees(texts.task, texts.result.n_users, 0)
    )
    (folder / "token").write_text("token", encoding="utf-8")
    looked_for = []
    if candidates is not None:
        (folder / "candidates.txt").write_bytes(candidates)
        looked_for = ["--candidates", str(folder / "candidates.txt")]
    written = [f"--{name}={folder / name}" for name in _FILES]
    async with _serving(result, texts.task) as (address, digest):
        return await run_command(
            *("result", digest, "--analyzer", address, "--token-file", str(folder / "token")),
            *looked_for,
            *written,
        )


def _headings(path: Path) -> list[str]:
    with path.open(encoding="utf-8", newline="") as file:
        return next(csv.reader(file))


@pytest.mark.parametrize("decoded", [True, False])
async def test_files_hold_what_candidates_were_found(tmp_path: Path, *, decoded: bool) -> None:
    """A row each; without candidates, a row a bit."""
    names = "\n".join(CANDIDATES).encode() if decoded else None
    status, _, complaint = await _write(tmp_path, names)

    assert 0 == status, complaint
    first = ["text", "share"] if decoded else ["cohort", "bit"]
    rows = 3 if decoded else 8 * 32
    table = parquet.read_table(tmp_path / "parquet")
    assert first == _headings(tmp_path / "csv")[:2] == table.column_names[:2]
    assert rows == table.num_rows


async def test_candidates_that_cannot_be_decoded_leave_no_file(tmp_path: Path) -> None:
    """Neither of candidates nor of bits: a reader would take the one for the other."""
    status, _, complaint = await _write(tmp_path, b"Ohio\n" + b"x" * 65)

    assert 0 != status
    assert "at most 64 bytes" in complaint
    assert [] == [name for name in _FILES if (tmp_path / name).exists()]
