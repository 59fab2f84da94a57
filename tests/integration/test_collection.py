import pytest

from common.crypto.hpke import DEFAULT_SUITE, SUITES
from common.messages.batch import BatchState
from common.task.task import Task
from protos.shuffledp.v1 import shuffler_pb2
from tests.support.clients import (
    DEADLINE,
    contribute,
    envelopes,
    final_state,
    result_of,
    submit,
    submit_bulk,
)
from tests.support.services import Services
from tests.support.tasks import draft


@pytest.mark.own_services
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
@pytest.mark.own_services
async def test_acknowledged_submissions_outlive_the_absence_of_services(
    services: Services, suite: str
) -> None:
    """
    A task of another suite: all services restart while users submit, and the analyzer is away when
    the batch closes.
    """
    key = (services.directory / "shuffler" / f"envelope-{suite}.pub").read_text(encoding="ascii")
    wanted = draft(bytes.fromhex(key), suite=suite, n_min=20, target_size=20)
    async with services.operator() as operator:
        signed = await operator.create_task(wanted)
    await contribute(services, signed)
    users = envelopes(signed, 19)
    await submit(services, signed, *users[:10])
    await services.stop()
    await services.start()
    async with services.stubs() as (_, shuffler, _analyzer):
        fetch = shuffler_pb2.FetchTaskRequest(task_digest=signed.digest())
        await shuffler.FetchTask(fetch, timeout=DEADLINE)
    address = services.analyzer.address
    await services.analyzer.stop()
    await submit(services, signed, *users[5:])
    await services.start_analyzer(address)
    result = await result_of(services, signed)

    assert suite == Task.from_bytes(signed.task_bytes).suite
    assert (20, 0) == (result.n_users, sum(result.refused.values()))
