from pathlib import Path

import pytest

from common.crypto.hpke import DEFAULT_SUITE, SUITES
from common.errors import SettingsError
from common.messages.batch import BatchState
from common.runtime.state_directory import StateKey
from common.task.task import Task
from protos.shuffledp.v1 import shuffler_pb2
from tests.support.clients import (
    DEADLINE,
    collect,
    contribute,
    envelopes,
    final_state,
    result_of,
    submit,
    submit_bulk,
)
from tests.support.services import Services
from tests.support.tasks import draft


async def test_a_histogram_comes_out_of_three_servers(services: Services) -> None:
    """Some users answer through the user agent, one of them twice, the others in bulk."""
    signed = await services.publish(n_min=200, target_size=200, local_epsilon=4.0)
    for person in ("one", "two", "three"):
        assert not (await contribute(services, signed, person)).repeated
    assert (await contribute(services, signed, "one", value=2)).repeated
    outcomes = (await submit_bulk(services, signed, envelopes(signed, 197))).outcomes
    result = await result_of(services, signed)

    assert {shuffler_pb2.SUBMISSION_OUTCOME_STORED} == set(outcomes)
    assert BatchState.ERASED is await final_state(services, signed)
    assert (200, 400) == (result.n_users, result.n_reports)
    assert 0 == int(result.histogram.frequencies.argmax())
    assert result.histogram.frequencies[0] == pytest.approx(1, abs=0.3)
    assert ["analyzer", "shuffler+analyzer", "shuffler", "network"] == [
        guarantee.coalition for guarantee in result.guarantees
    ]
    assert [] == list((services.directory / "shuffler").glob("batch-*.key"))


@pytest.mark.parametrize("suite", [suite for suite in SUITES if suite != DEFAULT_SUITE])
async def test_a_task_of_another_suite_outlives_a_restart(services: Services, suite: str) -> None:
    """Through a device before it, and in bulk after it."""
    key = (services.directory / "shuffler" / f"envelope-{suite}.pub").read_text(encoding="ascii")
    wanted = draft(bytes.fromhex(key), suite=suite, n_min=40, target_size=40)
    async with services.operator() as operator:
        signed = await operator.create_task(wanted)
    await contribute(services, signed)
    for service in (services.user_agent, services.shuffler, services.analyzer):
        await service.stop()
    await services.start()
    result = await collect(services, signed, 39)

    assert suite == Task.from_bytes(signed.task_bytes).suite
    assert (40, 0) == (result.n_users, sum(result.refused.values()))
    assert 0 == int(result.histogram.frequencies.argmax())


async def test_acknowledged_submissions_outlive_the_absence_of_services(
    services: Services,
) -> None:
    """The shuffler restarts while users submit; the analyzer is away when the batch closes."""
    signed = await services.publish(n_min=20, target_size=20)
    users = envelopes(signed, 20)
    await submit(services, signed, *users[:10])
    await services.shuffler.stop()
    await services.start_shuffler(services.shuffler.address)
    async with services.stubs() as (_, shuffler, _analyzer):
        fetch = shuffler_pb2.FetchTaskRequest(task_digest=signed.digest())
        await shuffler.FetchTask(fetch, timeout=DEADLINE)
    address = services.analyzer.address
    await services.analyzer.stop()
    await submit(services, signed, *users[5:])
    await services.start_analyzer(address)
    result = await result_of(services, signed)

    assert (20, 0) == (result.n_users, sum(result.refused.values()))


async def test_a_service_starts_only_under_its_own_state_key(tmp_path: Path) -> None:
    """The error names the setting."""
    services = Services(tmp_path)
    await services.start_analyzer()
    await services.analyzer.stop()
    right = (tmp_path / "analyzer.key").read_bytes()
    (tmp_path / "analyzer.key").write_bytes(StateKey.generate())
    with pytest.raises(SettingsError, match="state_key"):
        await services.start_analyzer()

    (tmp_path / "analyzer.key").write_bytes(right)
    await services.start_analyzer()
    await services.analyzer.stop()
