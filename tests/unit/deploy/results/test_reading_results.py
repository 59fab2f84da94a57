"""`shuffledp result` against an analyzer that sends false results."""

import csv
import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import grpc
import numpy as np
import pytest
from pyarrow import parquet

from shuffledp.common.accounting.guarantees import guarantees
from shuffledp.common.crypto.signing import SignedTask, SigningIdentity
from shuffledp.common.messages.batch import TaskState
from shuffledp.common.messages.result import Histogram, Result
from shuffledp.common.task.task import Task
from shuffledp.common.task_digest import TaskDigest
from shuffledp.common.wire.results import result_to_wire
from shuffledp.common.wire.tasks import description_to_wire, summaries_to_wire
from tests.support.command_line import run_command
from tests.support.example_tasks import listed
from tests.support.kind_results import CANDIDATES, kind_collected, result_of
from tests.support.protocol_tasks import protocol_task
from tests.support.results import guarantee

_FILES: Final = ("csv", "parquet", "html")
_TEXTS: Final = kind_collected("string")


def _analyzer(signed: SignedTask, result: Result) -> grpc.GenericRpcHandler:
    """Return an analyzer with one task and this result."""
    summary = dataclasses.replace(listed(TaskState.RELEASED), task_digest=signed.digest())
    answers = {
        "GetResult": [result_to_wire(result).SerializeToString()],
        "DescribeTask": [description_to_wire(signed, summary).SerializeToString()],
        "ListTasks": [summaries_to_wire(each, 1).SerializeToString() for each in ([summary], [])],
    }

    def method(name: str) -> Any:
        async def answer(_request: bytes, _context: object) -> bytes:
            left = answers[name]
            return left.pop(0) if len(left) > 1 else left[0]

        return grpc.unary_unary_rpc_method_handler(answer)

    return grpc.method_handlers_generic_handler(
        "shuffledp.v1.Analyzer", {name: method(name) for name in answers}
    )


async def _run(
    folder: Path,
    result: Result,
    candidates: bytes | None = None,
    task: Task = _TEXTS.task,
    options: Sequence[str] = (),
) -> tuple[int | None, str, str]:
    """Run `shuffledp result`, and write every kind of file."""
    signed = SigningIdentity.generate().sign(task.to_bytes())
    (folder / "token").write_text("token", encoding="utf-8")
    asked = []
    if candidates is not None:
        (folder / "candidates.txt").write_bytes(candidates)
        asked = ["--candidates", str(folder / "candidates.txt")]
    server = grpc.aio.server(handlers=[_analyzer(signed, result)])
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    try:
        return await run_command(
            *("result", signed.digest().hex(), "--address", f"analyzer={address}"),
            *("--token-file", str(folder / "token"), *asked, *options),
            *(f"--{name}={folder / name}" for name in _FILES),
        )
    finally:
        await server.stop(None)


_TRUE: Final = dataclasses.replace(
    _TEXTS.result, guarantees=guarantees(_TEXTS.task, _TEXTS.result.n_users, 0)
)


@pytest.mark.parametrize("decoded", [True, False])
async def test_files_have_a_row_per_candidate(tmp_path: Path, *, decoded: bool) -> None:
    """If no candidates are given, there is a row per bit."""
    names = "\n".join(CANDIDATES).encode() if decoded else None
    stated = [dataclasses.replace(row, theorem="invented") for row in _TRUE.guarantees]
    found = dataclasses.replace(_TRUE, guarantees=tuple(stated))
    status, _, complaint = await _run(tmp_path, found, names)

    assert 0 == status, complaint
    page = (tmp_path / "html").read_text(encoding="utf-8")
    assert "integer weights" in page
    assert "invented" not in page
    first = ["text", "share"] if decoded else ["cohort", "bit"]
    table = parquet.read_table(tmp_path / "parquet")
    with (tmp_path / "csv").open(encoding="utf-8", newline="") as file:
        assert first == next(csv.reader(file))[:2] == table.column_names[:2]
    assert (3 if decoded else 8 * 32) == table.num_rows


@pytest.mark.parametrize(
    ("changes", "candidates", "sentence"),
    [
        ({}, b"Ohio\n" + b"x" * 65, "at most 64 bytes"),
        ({"task_digest": TaskDigest(b"\xd1" * 32)}, None, "the result of a different task"),
        ({"local_epsilon": 0.01}, None, "result's local_epsilon is 0.01"),
        (
            {"guarantees": (guarantee("analyzer", 0.001, 0.0), *_TRUE.guarantees[1:])},
            *(None, "against analyzer the result states epsilon 0.001"),
        ),
    ],
)
async def test_a_false_result_and_a_wrong_candidate_leave_no_file(
    tmp_path: Path, changes: dict[str, Any], candidates: bytes | None, sentence: str
) -> None:
    """A result of another task, or one that contradicts the signed task."""
    false = dataclasses.replace(_TRUE, **changes)
    status, _, complaint = await _run(tmp_path, false, candidates)

    assert 0 != status
    assert sentence in complaint
    assert [] == [name for name in _FILES if (tmp_path / name).exists()]


def _ordered() -> Result:
    """Return a released result of the hierarchy: 30 equal shares of 1,000 users."""
    task, shares = protocol_task("hierarchy"), np.full(30, 1 / 30)
    estimate = Histogram(
        frequencies=shares, standard_errors=shares / 10, refined=shares, mse_theory=1e-5
    )
    counts = {"n_users": 1000, "n_reports": 15_500, "n_dummies": 12_500}
    found = result_of(task, estimate=estimate, buckets=4, **counts)
    digest = SignedTask(task_bytes=task.to_bytes(), signature=b"").digest()
    return dataclasses.replace(
        found, task_digest=digest, guarantees=guarantees(task, 1000, 0), local_epsilon=np.inf
    )


async def test_quantiles_and_ranges_are_printed_and_written(tmp_path: Path) -> None:
    """In JSON beside the shares; files have edges and cumulative shares."""
    asked = ("--quantile", ".25,.5", "--range", "0:10", "--range", "3:4.5", "--json")
    task = protocol_task("hierarchy")
    status, printed, complaint = await _run(tmp_path, _ordered(), task=task, options=asked)
    assert 0 == status, complaint
    fields = json.loads(printed)

    assert [7.5, 15] == pytest.approx([row["estimate"] for row in fields["quantiles"]])
    assert [1 / 3, 0.05] == pytest.approx([row["estimate"] for row in fields["ranges"]])
    assert "ordered" == fields["kind"]
    table = parquet.read_table(tmp_path / "parquet")
    assert 1 == pytest.approx(table["cumulative_share"].to_pylist()[-1])
    assert [0, 1] == table["lower_edge"].to_pylist()[:2]
    assert 'class="curve"' in (tmp_path / "html").read_text(encoding="utf-8")


async def test_a_wrong_range_leaves_no_file(tmp_path: Path) -> None:
    """The message states the rule."""
    task, options = protocol_task("hierarchy"), ("--quantile", ".5", "--range", "3")
    status, _, complaint = await _run(tmp_path, _ordered(), task=task, options=options)

    assert 0 != status
    assert "--range must be two numbers, such as 18:65" in complaint
    assert [] == [name for name in _FILES if (tmp_path / name).exists()]
