"""A task's life as its operators see it, against real servers."""

import asyncio
import json
import signal
import sqlite3
import sys
import urllib.request
from contextlib import closing, suppress
from pathlib import Path

import grpc
import numpy as np
import pytest

from common.crypto.signing import SignedTask
from common.errors import UnknownTaskError
from common.messages.batch import BatchState
from common.messages.task_summary import TaskState
from common.task.task import Task
from common.task_digest import TaskDigest
from deploy.clients.shuffler import ShufflerClient
from protos.shuffledp.v1 import shuffler_pb2
from tests.support.command_line import run_command
from tests.support.services import Services
from user_agent.contribution import Contributor

_DEADLINE = 60.0
_AT_A_TERMINAL = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler);"
    "from deploy.cli import main; main()"
)
"""A command that Ctrl-C ends, where these tests are a shell's background job too: such a job, and
whatever it starts, ignores SIGINT."""


def _envelopes(signed: SignedTask, count: int) -> list[bytes]:
    contributor = Contributor(Task.from_bytes(signed.task_bytes), signed.digest())
    rng = np.random.default_rng(2)
    return [contributor.prepare(0, rng) for _ in range(count)]


def _shuffler(services: Services, token: str = "shuffler") -> ShufflerClient:  # noqa: S107  # a folder
    return ShufflerClient.connect(
        services.shuffler.address,
        services.directory / "tls" / "authority.pem",
        services.directory / token / "operator.token",
    )


async def _run(services: Services, *arguments: str) -> tuple[int | None, str, str]:
    """Run a command as the analyzer's operator does: its status, and what it said."""
    return await run_command(
        *(*arguments, "--analyzer", services.analyzer.address),
        *("--token-file", str(services.directory / "analyzer" / "operator.token")),
        *("--authority", str(services.directory / "tls" / "authority.pem")),
    )


async def _command(services: Services, *arguments: str) -> str:
    status, printed, complaint = await _run(services, *arguments)
    assert 0 == status, complaint
    return printed


async def test_the_shufflers_operator_sees_how_far_a_batch_is(services: Services) -> None:
    """Users so far, and what was refused by cause, of submissions alone and in bulk."""
    signed = await services.publish(n_min=4, target_size=9)
    digest, [first, second, third] = signed.digest(), _envelopes(signed, 3)
    broken = first[:-1] + bytes([first[-1] ^ 1])
    async with services.stubs() as (_, shuffler, _analyzer):
        for envelope in (first, broken, first[:-1]):
            request = shuffler_pb2.SubmitRequest(task_digest=digest, envelope=envelope)
            with suppress(grpc.aio.AioRpcError):
                await shuffler.Submit(request, timeout=_DEADLINE)
        bulk = [first, second, third, broken, third + b"x"]
        await shuffler.SubmitBulk(
            shuffler_pb2.SubmitBulkRequest(task_digest=digest, envelopes=bulk), timeout=_DEADLINE
        )
    async with _shuffler(services) as operator:
        progress = await operator.progress(digest)

    assert (BatchState.COLLECTING, 3, 4, 9) == (
        progress.state,
        progress.n_users,
        progress.n_min,
        progress.target_size,
    )
    assert ({"malformed": 4}, 1) == (progress.refused, progress.repeated)


async def test_nobody_else_sees_how_far_a_batch_is(services: Services) -> None:
    """Not with another service's token; what everybody may ask tells no number."""
    signed = await services.publish(n_min=4, target_size=9)
    async with services.stubs() as (_, shuffler, _analyzer):
        bulk = shuffler_pb2.SubmitBulkRequest(
            task_digest=signed.digest(), envelopes=_envelopes(signed, 3)
        )
        await shuffler.SubmitBulk(bulk, timeout=_DEADLINE)
        with pytest.raises(grpc.aio.AioRpcError, match="needs an operator's token"):
            await shuffler.GetBatchProgress(
                shuffler_pb2.GetBatchProgressRequest(task_digest=signed.digest()),
                timeout=_DEADLINE,
            )
    async with _shuffler(services, "analyzer") as stranger:
        with pytest.raises(Exception, match="is not this service"):
            await stranger.progress(signed.digest())
        status = await stranger.status_or_none(signed.digest())
        assert await stranger.status_or_none(TaskDigest(bytes(32))) is None

    assert status is not None
    assert 0 == status.n_users


async def test_a_list_tells_what_became_of_every_task(services: Services) -> None:
    """Open, and released with its users; found by the first digits of a digest."""
    waiting = await services.publish(n_min=4, target_size=9, population="staff", budget_epsilon=9.0)
    done = await services.publish(n_min=3, target_size=3)
    async with services.stubs() as (_, shuffler, _analyzer):
        bulk = shuffler_pb2.SubmitBulkRequest(
            task_digest=done.digest(), envelopes=_envelopes(done, 3)
        )
        await shuffler.SubmitBulk(bulk, timeout=_DEADLINE)
    async with services.operator() as operator, asyncio.timeout(_DEADLINE):
        await operator.wait_for_result(done.digest())
        summaries = {summary.task_digest: summary for summary in await operator.tasks()}
        found = await operator.find(done.digest().hex()[:8].upper())
        described, summary = await operator.describe(waiting.digest())
        with pytest.raises(UnknownTaskError, match="no task has a digest that begins with"):
            await operator.find("0" * 30)

    assert {waiting.digest(): TaskState.OPEN, done.digest(): TaskState.RELEASED} == {
        digest: summary.state for digest, summary in summaries.items()
    }
    assert (0, 3) == (summaries[waiting.digest()].n_users, summaries[done.digest()].n_users)
    assert done.digest() == found
    assert (waiting, "staff") == (described, summary.population)


async def test_tasks_of_an_earlier_version_are_listed_after_a_start(services: Services) -> None:
    """It kept no lines of tasks; the file that it left has no table for them."""
    signed = await services.publish()
    await services.analyzer.stop()
    with closing(sqlite3.connect(services.directory / "analyzer" / "analyzer.sqlite")) as left:
        left.execute("DROP TABLE task_lines")
    await services.start_analyzer()
    async with services.operator() as operator:
        listed = await operator.tasks()

    assert [signed.digest()] == [summary.task_digest for summary in listed]


async def test_an_operator_reads_the_life_of_a_task_at_the_command_line(
    services: Services, tmp_path: Path
) -> None:
    """List, show, and the result as a table and in files."""
    signed = await services.publish(n_min=3, target_size=3, labels=tuple(map(str, range(100))))
    async with services.stubs() as (_, shuffler, _analyzer):
        bulk = shuffler_pb2.SubmitBulkRequest(
            task_digest=signed.digest(), envelopes=_envelopes(signed, 3)
        )
        await shuffler.SubmitBulk(bulk, timeout=_DEADLINE)
    async with services.operator() as operator, asyncio.timeout(_DEADLINE):
        await operator.wait_for_result(signed.digest())
    digits = signed.digest().hex()[:6]
    listed = json.loads(await _command(services, "task", "list", "--json"))
    shown = await _command(
        services, "task", "show", digits, "--shuffler", services.shuffler.address
    )
    table = await _command(services, "result", digits, "--csv", str(tmp_path / "result.csv"))

    assert ["released"] == [task["state"] for task in listed]
    assert "At the analyzer: released" in shown
    assert "At the shuffler: delivered" in shown
    assert "shuffler+analyzer" in shown
    assert "each of 100 values, the 20 largest" in " ".join(table.split())
    lines = (tmp_path / "result.csv").read_text(encoding="utf-8").splitlines()
    assert (101, "item,label,share,standard_error,interval_low,interval_high,refined") == (
        len(lines),
        lines[0],
    )


async def test_an_operator_checks_a_task_s_signature_and_saves_its_bytes(
    services: Services, tmp_path: Path
) -> None:
    """By the identity that is named, or not at all, and then nothing is written."""
    signed = await services.publish()
    digest, agreed = signed.digest().hex(), tmp_path / "agreed"
    identity, another = tmp_path / "identity.pub", tmp_path / "another.pub"
    identity.write_text(services.identity, encoding="ascii")
    another.write_text(services.shuffler_identity, encoding="ascii")
    shown = ("task", "show", digest, "--save", str(agreed), "--analyzer-identity")
    refused = await _run(services, *shown, str(another))
    unwritten = agreed.exists()
    told = await _command(services, *shown, str(identity))
    programs = json.loads(await _command(services, *shown, str(identity), "--json"))
    unchecked = await _command(services, "task", "show", digest)

    assert (1, "") == (refused[0], refused[1])
    assert "signature is not by the analyzer identity" in refused[2]
    assert not unwritten
    assert "It is signed by the identity in" in told
    assert programs["signature_checked"] is True
    assert "Its signature is not checked" in unchecked
    assert (signed.task_bytes, signed.signature) == (
        (agreed / "task.json").read_bytes(),
        (agreed / "task.sig").read_bytes(),
    )


async def test_the_shufflers_operator_watches_a_batch_in_a_browser(services: Services) -> None:
    """The command serves the page and the numbers, and ends when it is told to."""
    signed = await services.publish(n_min=4, target_size=9)
    async with services.stubs() as (_, shuffler, _analyzer):
        bulk = shuffler_pb2.SubmitBulkRequest(
            task_digest=signed.digest(), envelopes=_envelopes(signed, 3)
        )
        await shuffler.SubmitBulk(bulk, timeout=_DEADLINE)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-u", "-c", _AT_A_TERMINAL, "live"),
        *(signed.digest().hex(), "--shuffler", services.shuffler.address),
        *("--token-file", str(services.directory / "shuffler" / "operator.token")),
        *("--authority", str(services.directory / "tls" / "authority.pem")),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(_DEADLINE):
            address = (await process.stdout.readline()).decode().split()[-1]
            page = await asyncio.to_thread(_read, address)
            told = '"batch": null'
            while '"batch": null' in told:
                await asyncio.sleep(0.1)
                told = await asyncio.to_thread(_read, f"{address}progress.json")
            process.send_signal(signal.SIGINT)
            await process.wait()
    finally:
        with suppress(ProcessLookupError):
            process.kill()

    assert 130 == process.returncode
    assert signed.digest().hex()[:12] in page
    assert "3" == json.loads(told)["batch"]["users"]


def _read(address: str) -> str:
    with urllib.request.urlopen(address, timeout=_DEADLINE) as answer:  # noqa: S310  # our own page
        return str(answer.read().decode())


async def test_a_wrong_token_is_said_before_a_page_is_served(services: Services) -> None:
    """In a sentence, on the terminal."""
    signed = await services.publish(n_min=4, target_size=9)
    status, _, complaint = await run_command(
        *("live", signed.digest().hex(), "--shuffler", services.shuffler.address),
        *("--token-file", str(services.directory / "analyzer" / "operator.token")),
        *("--authority", str(services.directory / "tls" / "authority.pem")),
    )

    assert 1 == status
    assert "is not this service" in complaint
