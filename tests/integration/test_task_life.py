"""Commands about tasks, batches and budgets, against real servers."""

import asyncio
import json
import signal
import sys
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest

from shuffledp.common.errors import PeerRefusalError, ShuffleDpError
from shuffledp.common.messages.batch import BatchState
from shuffledp.common.messages.guarantee import rounded_down
from shuffledp.common.task_digest import TaskDigest
from shuffledp.deploy.clients.shuffler import ShufflerClient
from tests.support import clients
from tests.support.command_line import run_command
from tests.support.ledger_entries import releases
from tests.support.services import Services

_AT_A_TERMINAL = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler);"
    "from shuffledp.deploy.cli import main; main()"
)
"""Ends on Ctrl-C even in a shell's background job, which ignores SIGINT by default."""


def _shuffler(services: Services, token: str = "shuffler") -> ShufflerClient:  # noqa: S107  # a folder
    return ShufflerClient.connect(
        services.shuffler.address,
        services.directory / "tls" / "authority.pem",
        services.directory / token / "operator.token",
    )


async def test_the_shufflers_operator_alone_sees_how_far_a_batch_is(services: Services) -> None:
    """The operator sees users and refusals by cause; others see only the state."""
    signed = await services.publish(n_min=4, target_size=9)
    first, second, third = clients.envelopes(signed, 3)
    broken = first[:-1] + bytes([first[-1] ^ 1])
    await clients.submit(services, signed, first)
    for bad in (broken, first[:-1]):
        await clients.refusal(clients.submit(services, signed, bad))
    await clients.submit_bulk(services, signed, [first, second, third, broken, third + b"x"])
    async with _shuffler(services) as operator:
        progress = await operator.progress(signed.digest())
    async with _shuffler(services, "analyzer") as stranger:
        with pytest.raises(PeerRefusalError, match="wrong operator token"):
            await stranger.progress(signed.digest())
        status = await stranger.status_or_none(signed.digest())
        assert await stranger.status_or_none(TaskDigest(bytes(32))) is None

    assert (BatchState.COLLECTING, 3, 4, 9) == (
        progress.state,
        progress.n_users,
        progress.n_min,
        progress.target_size,
    )
    assert ({"malformed": 4}, 1) == (progress.refused, progress.repeated)
    assert status is not None
    assert 0 == status.n_users


async def test_an_operator_reads_the_life_of_a_task_at_the_command_line(
    services: Services, tmp_path: Path
) -> None:
    """`task list`, `task show` and `result` agree on the states; a result is a table or CSV."""
    waiting = await services.publish(n_min=4, target_size=9)
    signed = await services.publish(n_min=3, target_size=3, labels=tuple(map(str, range(100))))
    await clients.collect(services, signed, 3)
    digest = signed.digest().hex()
    listed = json.loads(await clients.command(services, "task", "list", "--json"))
    shown = await clients.command(
        services, "task", "show", digest, f"--address=shuffler={services.shuffler.address}"
    )
    table = await clients.command(services, "result", digest, "--csv", str(tmp_path / "result.csv"))

    states = {one["task_digest"]: one["state"] for one in listed}
    assert ("open", "released") == (states[waiting.digest().hex()], states[digest])
    assert "At the analyzer: released" in shown
    assert "At the shuffler: delivered" in shown
    assert "shuffler+analyzer" in shown
    assert "each of 100 values, the 20 largest" in " ".join(table.split())
    head, *lines = (tmp_path / "result.csv").read_text(encoding="utf-8").splitlines()
    assert "item,label,share,standard_error,interval_low,interval_high,refined" == head
    assert 100 == len(lines)


async def test_an_operator_checks_a_task_s_signature_and_saves_its_bytes(
    services: Services, tmp_path: Path
) -> None:
    """The check uses the given identity; nothing is written after a failed one."""
    signed = await services.publish()
    digest, agreed = signed.digest().hex(), tmp_path / "agreed"
    identity, another = tmp_path / "identity.pub", tmp_path / "another.pub"
    identity.write_text(services.identity, encoding="ascii")
    another.write_text(services.shuffler_identity, encoding="ascii")
    shown = ("task", "show", digest, "--save", str(agreed), "--analyzer-identity")
    refused = await clients.run_as_operator(services, *shown, str(another))
    unwritten = agreed.exists()
    verified = await clients.command(services, *shown, str(identity))
    unchecked = await clients.command(services, "task", "show", digest)

    assert (1, "") == (refused[0], refused[1])
    assert "not signed by the pinned analyzer identity" in refused[2]
    assert not unwritten
    assert "Signature verified with" in verified
    assert "Signature not verified" in unchecked
    assert (signed.task_bytes, signed.signature) == (
        (agreed / "task.json").read_bytes(),
        (agreed / "task.sig").read_bytes(),
    )


async def test_the_shufflers_operator_watches_a_batch_in_a_browser(services: Services) -> None:
    """`live` serves the page and its numbers, and ends on Ctrl-C."""
    signed = await services.publish(n_min=4, target_size=9)
    await clients.submit_bulk(services, signed, clients.envelopes(signed, 3))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-u", "-c", _AT_A_TERMINAL, "live"),
        *(signed.digest().hex(), f"--address=shuffler={services.shuffler.address}"),
        *clients.credentials(services, "shuffler"),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(clients.DEADLINE):
            address = (await process.stdout.readline()).decode().split()[-1]
            page = await asyncio.to_thread(_read, address)
            progress = '"batch": null'
            while '"batch": null' in progress:
                await asyncio.sleep(0.1)
                progress = await asyncio.to_thread(_read, f"{address}progress.json")
            process.send_signal(signal.SIGINT)
            await process.wait()
    finally:
        with suppress(ProcessLookupError):
            process.kill()

    assert 130 == process.returncode
    assert signed.digest().hex()[:12] in page
    assert "3" == json.loads(progress)["batch"]["users"]


def _read(address: str) -> str:
    with urllib.request.urlopen(address, timeout=clients.DEADLINE) as answer:  # noqa: S310  # our own page
        return str(answer.read().decode())


_USERS = 50


@pytest.mark.own_services
async def test_a_batch_over_its_populations_budget_is_quarantined(services: Services) -> None:
    """The ledger holds only the first release; commands erase the second batch at both services."""
    fields = {"n_min": _USERS, "target_size": _USERS, "population": "staff", "budget_epsilon": 0.75}
    first, second = await services.publish(**fields), await services.publish(**fields)
    result = await clients.collect(services, first, _USERS)
    assert BatchState.ERASED is await clients.final_state(services, first)
    await clients.submit_bulk(services, second, clients.envelopes(second, _USERS))
    assert BatchState.QUARANTINED is await clients.final_state(services, second)
    async with services.operator() as operator:
        entries, head = await operator.ledger()
        with pytest.raises(ShuffleDpError, match=r"the budget is 0\.75"):
            await operator.result(second.digest())
        with pytest.raises(PeerRefusalError, match=r"the budget is 0\.75") as caught:
            await services.publish(**fields)

    assert "RESOURCE_EXHAUSTED" == caught.value.status
    [entry] = releases(entries)
    assert (first.digest(), "staff", _USERS) == (entry.task_digest, entry.population, entry.n_users)
    assert result.guarantees[0].epsilon == entry.epsilon
    assert entry.composed_epsilon <= 0.75
    printed = json.loads(await clients.command(services, "ledger", "--json"))
    assert {"entry": 1, "entry_hash": head.entry_hash.hex()} == printed["head"]
    [budget] = printed["populations"][0]["budgets"]
    assert entry.composed_epsilon == budget["spent_epsilon"] == 0.75 - budget["left_epsilon"]
    shown = await clients.command(services, "task", "show", second.digest().hex())
    assert f" {rounded_down(budget['left_epsilon'])} " in shown
    await clients.command(services, "batch", "drop", second.digest().hex(), "--note", "too dear")
    erase = (
        "batch",
        "erase",
        second.digest().hex(),
        f"--address=shuffler={services.shuffler.address}",
    )
    status, _, complaint = await run_command(*erase, *clients.credentials(services))
    assert (1, True) == (status, "wrong operator token" in complaint)
    status, printed, _ = await run_command(
        *erase, *clients.credentials(services, "shuffler"), "--json"
    )
    assert (0, True) == (status, json.loads(printed)["erased"])
    async with asyncio.timeout(clients.DEADLINE):
        while [*services.directory.glob("*/batch-*")]:
            await asyncio.sleep(0.1)
    async with _shuffler(services) as operator:
        assert BatchState.DROPPED is (await operator.progress(second.digest())).state
