"""What is spent: by a population at the analyzer, and by a person at their device."""

import asyncio
import json

import grpc
import numpy as np
import pytest

from common.crypto.signing import SignedTask
from common.errors import PeerError, PeerRefusalError, ShuffleDpError
from common.messages.batch import BatchState
from common.messages.guarantee import rounded_down
from common.runtime.rpc import reply
from common.task.task import Task
from common.wire.batches import status_from_wire
from protos.shuffledp.v1 import analyzer_pb2, shuffler_pb2, user_agent_pb2
from tests.support.command_line import run_command
from tests.support.services import Services
from user_agent.contribution import Contributor

_DEADLINE = 20.0
_USERS = 50


def _envelopes(signed: SignedTask) -> list[bytes]:
    contributor = Contributor(Task.from_bytes(signed.task_bytes), signed.digest())
    rng = np.random.default_rng(1)
    return [contributor.prepare(0, rng) for _ in range(_USERS)]


async def _collect(services: Services, signed: SignedTask) -> None:
    async with services.stubs() as (_, shuffler, _analyzer):
        bulk = shuffler_pb2.SubmitBulkRequest(
            task_digest=signed.digest(), envelopes=_envelopes(signed)
        )
        await shuffler.SubmitBulk(bulk, timeout=_DEADLINE)


async def _final_state(services: Services, signed: SignedTask) -> BatchState:
    request = shuffler_pb2.GetBatchStatusRequest(task_digest=signed.digest())
    async with services.stubs() as (_, shuffler, _analyzer), asyncio.timeout(_DEADLINE):
        while True:
            answer = await shuffler.GetBatchStatus(request, timeout=_DEADLINE)
            state = status_from_wire(answer).state
            if state in {BatchState.ERASED, BatchState.QUARANTINED, BatchState.EXPIRED}:
                return state
            await asyncio.sleep(0.05)


async def _run_cli(services: Services, *arguments: str) -> str:
    """Run the command as an operator does, and give what it printed."""
    status, printed, complaint = await run_command(
        *(*arguments, "--analyzer", services.analyzer.address),
        *("--token-file", str(services.directory / "analyzer" / "operator.token")),
        *("--authority", str(services.directory / "tls" / "authority.pem")),
    )
    assert 0 == status, complaint
    return printed


async def test_a_batch_over_its_populations_budget_is_quarantined(services: Services) -> None:
    """The refusal is final at the shuffler; the ledger holds the first release alone."""
    fields = {"n_min": _USERS, "target_size": _USERS, "population": "staff", "budget_epsilon": 0.75}
    first, second = await services.publish(**fields), await services.publish(**fields)
    await _collect(services, first)
    assert BatchState.ERASED is await _final_state(services, first)
    async with services.operator() as operator, asyncio.timeout(_DEADLINE):
        result = await operator.wait_for_result(first.digest())
    await _collect(services, second)
    assert BatchState.QUARANTINED is await _final_state(services, second)
    async with services.operator() as operator:
        [entry], head = await operator.ledger()
        with pytest.raises(ShuffleDpError, match=r"the budget is 0\.75"):
            await operator.result(second.digest())
        with pytest.raises(PeerRefusalError, match=r"the budget is 0\.75") as caught:
            await services.publish(**fields)

    assert "RESOURCE_EXHAUSTED" == caught.value.status
    assert (first.digest(), "staff", _USERS) == (
        entry.task_digest,
        entry.population,
        entry.n_users,
    )
    assert result.guarantees[0].epsilon == entry.epsilon
    assert entry.composed_epsilon <= 0.75
    assert entry.entry_hash == head.entry_hash
    printed = json.loads(await _run_cli(services, "ledger", "--json"))
    assert {"entry": 1, "entry_hash": head.entry_hash.hex()} == printed["head"]
    assert head.entry_hash.hex() in await _run_cli(services, "ledger")
    [staff] = printed["populations"]
    [budget] = staff["budgets"]
    assert ("staff", 1, 0.75) == (staff["population"], staff["releases"], budget["budget_epsilon"])
    assert entry.composed_epsilon == budget["spent_epsilon"] == 0.75 - budget["left_epsilon"]
    shown = await _run_cli(services, "task", "show", second.digest().hex())
    told = await _run_cli(services, "task", "show", second.digest().hex(), "--json")
    assert f" {rounded_down(budget['left_epsilon'])} " in shown
    assert staff == json.loads(told)["population_budgets"]


async def test_only_an_operator_reads_the_ledger(services: Services) -> None:
    """It tells which populations are asked."""
    async with services.stubs() as (_, _shuffler, analyzer):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await analyzer.GetLedger(analyzer_pb2.GetLedgerRequest(), timeout=_DEADLINE)

    assert grpc.StatusCode.UNAUTHENTICATED is caught.value.code()


async def test_a_person_who_has_spent_their_cap_answers_no_more(services: Services) -> None:
    """Five tasks of local epsilon 4 are 20; the sixth is refused with a sentence, for good."""
    tasks = [await services.publish(local_epsilon=4.0) for _ in range(6)]
    async with services.stubs() as (agent, _shuffler, _analyzer):

        async def contribute(signed: SignedTask, person: str) -> None:
            request = user_agent_pb2.ContributeRequest(
                task_digest=signed.digest(), value=1, person=person
            )
            await reply(agent.Contribute(request, timeout=_DEADLINE), "it")

        for signed in tasks[:5]:
            await contribute(signed, "one")
        with pytest.raises(PeerRefusalError, match="20 is spent on 5 tasks") as caught:
            await contribute(tasks[5], "one")
        await contribute(tasks[4], "one")
        await contribute(tasks[5], "two")

    assert "RESOURCE_EXHAUSTED" == caught.value.status


async def test_a_limit_of_grpc_is_no_spent_budget(services: Services) -> None:
    """The same status without the project's mark: the call may be made again."""
    async with services.stubs() as (_, shuffler, _analyzer):
        request = shuffler_pb2.SubmitRequest(task_digest=bytes(32), envelope=bytes(5 * 2**20))
        with pytest.raises(PeerError, match="it has no room at the moment"):
            await reply(shuffler.Submit(request, timeout=_DEADLINE), "it")
