"""Read results from an analyzer that lies."""

import csv
import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import grpc
import pytest
from pyarrow import parquet

from common.accounting.guarantees import guarantees
from common.crypto.signing import SignedTask, SigningIdentity
from common.errors import WireError
from common.messages.batch import TaskState
from common.messages.result import Result
from common.task.task import Task
from common.task_digest import TaskDigest
from common.wire.results import result_to_bytes
from common.wire.tasks import description_to_wire, summaries_to_wire
from deploy.clients.analyzer import OperatorClient
from deploy.commands.result import read_checked
from tests.support.command_line import run_command
from tests.support.kind_results import CANDIDATES, kind_collected
from tests.support.result_pages import Collected, collected
from tests.support.results import guarantee
from tests.support.wire_parsers import _summary

_FILES: Final = ("csv", "parquet", "html")


def _analyzer(signed: SignedTask, result: Result) -> grpc.GenericRpcHandler:
    """Return an analyzer with one task and result."""
    summary = dataclasses.replace(_summary(TaskState.RELEASED), task_digest=signed.digest())
    answers = {
        "GetResult": [result_to_bytes(result)],
        "DescribeTask": [description_to_wire(signed, summary).SerializeToString()],
        "ListTasks": [summaries_to_wire(each).SerializeToString() for each in ([summary], [])],
    }

    def method(name: str) -> Any:
        async def answer(_request: bytes, _context: object) -> bytes:
            left = answers[name]
            return left.pop(0) if len(left) > 1 else left[0]

        return grpc.unary_unary_rpc_method_handler(answer)

    return grpc.method_handlers_generic_handler(
        "shuffledp.v1.Analyzer", {name: method(name) for name in answers}
    )


def _true() -> Collected:
    found = collected(size=4)
    stated = guarantees(found.task, found.result.n_users, sum(found.result.refused.values()))
    return dataclasses.replace(found, result=dataclasses.replace(found.result, guarantees=stated))


@asynccontextmanager
async def _serving(result: Result, task: Task) -> AsyncIterator[tuple[str, str]]:
    """Serve a result; yield the address, and the task's digest."""
    signed = SigningIdentity.generate().sign(task.to_bytes())
    server = grpc.aio.server(handlers=[_analyzer(signed, result)])
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    try:
        yield address, signed.digest().hex()
    finally:
        await server.stop(None)


async def _read(result: Result, task: Task) -> Result:
    async with (
        _serving(result, task) as (address, digest),
        OperatorClient(grpc.aio.insecure_channel(address), address, "token") as client,
    ):
        _, found = await read_checked(client, TaskDigest(bytes.fromhex(digest)))
        return found


async def test_a_true_result_is_read() -> None:
    """With the guarantees that hold."""
    true = _true()

    assert true.result.guarantees == (await _read(true.result, true.task)).guarantees


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"task_digest": TaskDigest(b"\xd1" * 32)}, "another task than was asked for"),
        ({"local_epsilon": 0.01}, r"local_epsilon is 4\.0, and the result says 0\.01"),
        (
            {"guarantees": (guarantee("analyzer", 0.001, 0.0), *_true().result.guarantees[1:])},
            r"against analyzer the result states epsilon 0\.001",
        ),
    ],
)
async def test_a_false_result_is_not_printed(changes: dict[str, Any], sentence: str) -> None:
    """Of another task, or with parameters or guarantees that the signed task contradicts."""
    true = _true()

    with pytest.raises(WireError, match=sentence):
        await _read(dataclasses.replace(true.result, **changes), true.task)


@pytest.mark.parametrize("decoded", [True, False])
async def test_files_hold_what_candidates_were_found(tmp_path: Path, *, decoded: bool) -> None:
    """A row for each; without candidates, one for each bit."""
    names = "\n".join(CANDIDATES).encode() if decoded else None
    status, _, complaint = await _write(tmp_path, names)

    assert 0 == status, complaint
    first = ["text", "share"] if decoded else ["cohort", "bit"]
    table = parquet.read_table(tmp_path / "parquet")
    with (tmp_path / "csv").open(encoding="utf-8", newline="") as file:
        assert first == next(csv.reader(file))[:2] == table.column_names[:2]
    assert (3 if decoded else 8 * 32) == table.num_rows


async def test_candidates_that_cannot_be_decoded_leave_no_file(tmp_path: Path) -> None:
    """Neither of candidates nor of bits."""
    status, _, complaint = await _write(tmp_path, b"Ohio\n" + b"x" * 65)

    assert 0 != status
    assert "at most 64 bytes" in complaint
    assert [] == [name for name in _FILES if (tmp_path / name).exists()]


async def _write(folder: Path, candidates: bytes | None) -> tuple[int | None, str, str]:
    """Write the result of a task for texts by the command, as every kind of file."""
    texts = kind_collected("string")
    stated = guarantees(texts.task, texts.result.n_users, 0)
    result = dataclasses.replace(texts.result, guarantees=stated)
    (folder / "token").write_text("token", encoding="utf-8")
    asked = []
    if candidates is not None:
        (folder / "candidates.txt").write_bytes(candidates)
        asked = ["--candidates", str(folder / "candidates.txt")]
    async with _serving(result, texts.task) as (address, digest):
        return await run_command(
            *("result", digest, "--analyzer", address, "--token-file", str(folder / "token")),
            *asked,
            *(f"--{name}={folder / name}" for name in _FILES),
        )
