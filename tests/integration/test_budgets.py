"""Budgets: of a population at the analyzer, and of a person at their device."""

import json

import pytest

from common.errors import PeerError, PeerRefusalError, ShuffleDpError
from common.messages.batch import BatchState
from common.messages.guarantee import rounded_down
from common.runtime.rpc import reply
from protos.shuffledp.v1 import shuffler_pb2
from tests.support.clients import (
    DEADLINE,
    collect,
    command,
    envelopes,
    final_state,
    submit_bulk,
)
from tests.support.services import Services

_USERS = 50


@pytest.mark.own_services
async def test_a_batch_over_its_populations_budget_is_quarantined(services: Services) -> None:
    """The refusal is final at the shuffler; the ledger holds the first release alone."""
    fields = {"n_min": _USERS, "target_size": _USERS, "population": "staff", "budget_epsilon": 0.75}
    first, second = await services.publish(**fields), await services.publish(**fields)
    result = await collect(services, first, _USERS)
    assert BatchState.ERASED is await final_state(services, first)
    await submit_bulk(services, second, envelopes(second, _USERS))
    assert BatchState.QUARANTINED is await final_state(services, second)
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
    printed = json.loads(await command(services, "ledger", "--json"))
    assert {"entry": 1, "entry_hash": head.entry_hash.hex()} == printed["head"]
    [budget] = printed["populations"][0]["budgets"]
    assert entry.composed_epsilon == budget["spent_epsilon"] == 0.75 - budget["left_epsilon"]
    shown = await command(services, "task", "show", second.digest().hex())
    assert f" {rounded_down(budget['left_epsilon'])} " in shown


async def test_a_limit_of_grpc_is_no_spent_budget(services: Services) -> None:
    """The same status without the project's mark: the call may be made again."""
    async with services.stubs() as (_, shuffler, _analyzer):
        request = shuffler_pb2.SubmitRequest(task_digest=bytes(32), envelope=bytes(5 * 2**20))
        with pytest.raises(PeerError, match="it has no room at the moment"):
            await reply(shuffler.Submit(request, timeout=DEADLINE), "it")
