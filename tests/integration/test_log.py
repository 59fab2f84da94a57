"""The log of tasks over real services: who is shown which tasks, and what proves a fork."""

import asyncio
import shutil
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import grpc
import pytest
import pytest_asyncio

from shuffledp.common.crypto.signing import SignedTask
from shuffledp.deploy.tasks import drafts
from tests.support.clients import DEADLINE, contribute, refusal, run_as_operator
from tests.support.command_line import run_command
from tests.support.logged_services import N_WITNESSES, LoggedServices
from tests.support.tasks import draft

_KEYS = 2 + N_WITNESSES
"""Number of entries before the first task: the keys of analyzer, shuffler and witnesses."""


@pytest_asyncio.fixture(loop_scope="session")
async def logged(tmp_path: Path) -> AsyncIterator[LoggedServices]:
    """Services with three witnesses."""
    started = LoggedServices(tmp_path / "first")
    await started.start()
    yield started
    await started.stop()


async def _refused(services: LoggedServices, signed: SignedTask) -> tuple[str, str]:
    """Return the status and the sentence with which a device refuses a task, uncharged."""
    person = signed.digest().hex()
    answer = await refusal(contribute(services, signed, person))
    with closing(sqlite3.connect(services.directory / "user_agent" / "budget.sqlite")) as device:
        query = "SELECT count(*) FROM submissions WHERE person = ?"
        assert (0,) == device.execute(query, (person,)).fetchone()
    return answer


async def _fork(
    services: LoggedServices, tmp_path: Path, *, n_honest: int
) -> tuple[LoggedServices, SignedTask, SignedTask]:
    """Copy the services and all keys; each copy publishes a task of its own."""
    await contribute(services, await services.publish())
    await services.stop()
    other = services.copied(tmp_path / "second")
    await services.start()
    signed = await services.publish()
    await other.start(others=services, n_honest=n_honest)
    return other, signed, await other.publish()


async def _check(services: LoggedServices, *files: Path) -> tuple[int | None, str]:
    """Search the evidence of devices for forks; return the status and the output."""
    status, printed, complaint = await run_command(
        *("log", "check", *map(str, files)),
        *("--analyzer-identity", str(services.directory / "analyzer" / "identity.pub")),
        *(part for key in services.witness_keys() for part in ("--witness", key)),
    )
    assert "" == complaint
    return status, printed


async def _export(services: LoggedServices) -> Path:
    """Write a device's evidence to a file."""
    file, agent = services.directory / "evidence.json", services.user_agent.address
    status, _, complaint = await run_command(
        "log", "export", f"--address=agent={agent}", "--output", str(file)
    )
    assert 0 == status, complaint
    return file


async def test_a_task_is_answered_once_every_witness_cosigned(logged: LoggedServices) -> None:
    """And so is the next one, after a restart of everybody. All keys are logged before."""
    for number in range(2):
        signed = await logged.publish()
        assert (await contribute(logged, signed)).sent
        [*_, last] = await logged.evidence()
        head = last.checkpoint
        assert N_WITNESSES == sum(head.signed_at(key) is not None for key in logged.note_keys())
        assert (_KEYS + number, _KEYS + number + 1) == (last.index, head.checkpoint.size)
        await logged.stop()
        await logged.start()

    assert (0, "No key signed two histories. Valid evidence: 2 of 2.\n") == await _check(
        logged, await _export(logged)
    )


async def test_devices_wait_for_a_witness_that_is_away(
    logged: LoggedServices, tmp_path: Path
) -> None:
    """The operator reads which; a device with a lower quorum goes on, others once it is back."""
    away = logged.third_parties.pop()
    await away.stop()
    (tmp_path / "draft.toml").write_text(
        drafts.as_toml(draft(logged.shuffler_key)), encoding="utf-8"
    )
    key = ("--shuffler-key", str(logged.directory / "shuffler" / "envelope.pub"))
    status, printed, complaint = await run_as_operator(
        logged, "task", "create", str(tmp_path / "draft.toml"), *key
    )
    assert 0 == status, complaint
    assert f"{N_WITNESSES - 1} of {N_WITNESSES} witnesses have cosigned" in printed
    assert f"{logged.note_keys()[-1].name}: the witness does not answer" in printed
    async with logged.operator() as operator:
        [summary] = await operator.tasks()
        signed, _ = await operator.describe(summary.task_digest)

    assert ("UNAVAILABLE", True) == (
        (refused := await _refused(logged, signed))[0],
        "2 of 3 pinned witnesses" in refused[1],
    )
    await logged.user_agent.stop()
    await logged.start_device(witness_quorum=2)
    assert (await contribute(logged, signed, "someone")).sent
    await logged.user_agent.stop()
    await logged.start_device()
    logged.third_parties.append(await logged.start_witness(len(logged.third_parties), away.address))
    async with asyncio.timeout(DEADLINE):
        while True:
            try:
                assert (await contribute(logged, signed)).sent
            except grpc.aio.AioRpcError:
                await asyncio.sleep(0.2)
            else:
                break


async def test_devices_are_served_while_the_analyzer_is_away(logged: LoggedServices) -> None:
    """The shuffler proves from its copy, even to a device that never saw the log."""
    signed = await logged.publish()
    await contribute(logged, signed)
    await logged.analyzer.stop()
    await logged.user_agent.stop()
    shutil.rmtree(logged.directory / "user_agent")
    await logged.start_device()

    assert (await contribute(logged, signed, "someone")).sent
    await logged.start_logged_analyzer()


@pytest.mark.parametrize("n_honest", [1, 2])
async def test_a_task_for_one_device_alone_is_refused(
    logged: LoggedServices, tmp_path: Path, n_honest: int
) -> None:
    """Analyzer and shuffler collude, perhaps with a witness; an honest one cosigns one history."""
    other, signed, hidden = await _fork(logged, tmp_path, n_honest=n_honest)
    status, sentence = await _refused(other, hidden)

    assert "UNAVAILABLE" == status
    assert f"{N_WITNESSES - n_honest} of {N_WITNESSES} pinned witnesses" in sentence
    assert (await contribute(logged, signed)).sent
    await other.stop()


async def test_two_devices_convict_a_log_and_its_dishonest_witnesses(
    logged: LoggedServices, tmp_path: Path
) -> None:
    """If all collude, each device accepts; their two files together prove it."""
    other, signed, hidden = await _fork(logged, tmp_path, n_honest=0)
    await contribute(logged, signed)
    await contribute(other, hidden)
    files = [await _export(services) for services in (logged, other)]

    for file in files:
        assert 0 == (await _check(logged, file))[0]
    status, printed = await _check(logged, *files)
    assert (1, 1 + N_WITNESSES) == (status, printed.count("signed two histories"))
    for name in ("shuffledp/", *(key.name for key in logged.note_keys())):
        assert f"Fork: {name}" in printed
    await other.stop()


async def test_a_device_between_two_histories_convicts_alone(
    logged: LoggedServices, tmp_path: Path
) -> None:
    """It refuses the second one, and keeps it."""
    other, signed, hidden = await _fork(logged, tmp_path, n_honest=0)
    await contribute(other, hidden)
    await other.user_agent.stop()
    await other.start_device(shuffler=logged.shuffler.address)
    status, sentence = await _refused(other, signed)

    assert ("FAILED_PRECONDITION", True) == (status, "its database is an old copy" in sentence)
    assert [False, False, True] == [one.refused for one in await other.evidence()]
    code, printed = await _check(logged, await _export(other))
    assert (1, True) == (code, "Fork: shuffledp/" in printed)
    await other.stop()


async def test_a_log_that_rolls_back_is_refused(logged: LoggedServices) -> None:
    """By devices and by witnesses, which say to the operator that the database is an old copy."""
    await logged.analyzer.stop()
    old = logged.directory / "old"
    shutil.copytree(logged.directory / "analyzer", old)
    await logged.start_logged_analyzer()
    for _ in range(2):
        await contribute(logged, await logged.publish())
    await logged.analyzer.stop()
    shutil.rmtree(logged.directory / "analyzer")
    old.rename(logged.directory / "analyzer")
    await logged.start_logged_analyzer()
    async with logged.operator() as operator:
        signed, witnesses = await operator.publish_task(draft(logged.shuffler_key))

    assert N_WITNESSES == len(witnesses)
    for problem in witnesses.values():
        assert f"of size {_KEYS + 2}; this log has {_KEYS + 1}" in problem
    status, sentence = await _refused(logged, signed)
    assert "FAILED_PRECONDITION" == status
    assert f"of size {_KEYS + 1} follows one of size {_KEYS + 2}" in sentence
