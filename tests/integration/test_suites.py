import asyncio
from pathlib import Path

import numpy as np
import pytest

from common.crypto.suites import DEFAULT_SUITE, SUITES
from common.errors import SettingsError
from common.runtime.state_directory import StateKey
from common.task.task import Task
from protos.shuffledp.v1 import shuffler_pb2, user_agent_pb2
from tests.support.services import Services
from tests.support.tasks import draft
from user_agent.contribution import Contributor

_DEADLINE = 20.0
_USERS = 40


def _shuffler_key(services: Services, suite: str) -> bytes:
    name = "envelope.pub" if suite == DEFAULT_SUITE else f"envelope-{suite}.pub"
    return bytes.fromhex((services.directory / "shuffler" / name).read_text(encoding="ascii"))


@pytest.mark.parametrize("suite", [suite for suite in SUITES if suite != DEFAULT_SUITE])
async def test_a_task_of_another_suite_goes_the_whole_way(services: Services, suite: str) -> None:
    """Through a device, in bulk, and over a restart of shuffler and analyzer in between."""
    wanted = draft(_shuffler_key(services, suite), suite=suite, n_min=_USERS, target_size=_USERS)
    async with services.operator() as operator:
        signed = await operator.create_task(wanted)
    digest, task = signed.digest(), Task.from_bytes(signed.task_bytes)
    assert suite == task.suite
    contributor, rng = Contributor(task, digest), np.random.default_rng(1)
    async with services.stubs() as (agent, _, _analyzer):
        request = user_agent_pb2.ContributeRequest(task_digest=digest, value=0, person="p")
        await agent.Contribute(request, timeout=_DEADLINE)
    for service in (services.user_agent, services.shuffler, services.analyzer):
        await service.stop()
    await services.start()
    envelopes = [contributor.prepare(0, rng) for _ in range(_USERS - 1)]
    async with services.stubs() as (_, shuffler, _analyzer):
        bulk = shuffler_pb2.SubmitBulkRequest(task_digest=digest, envelopes=envelopes)
        outcomes = await shuffler.SubmitBulk(bulk, timeout=_DEADLINE)
        assert {shuffler_pb2.SUBMISSION_OUTCOME_STORED} == set(outcomes.outcomes)
    async with services.operator() as operator, asyncio.timeout(_DEADLINE):
        result = await operator.wait_for_result(digest)

    assert (_USERS, 0) == (result.n_users, sum(result.refused.values()))
    assert 0 == int(result.histogram.frequencies.argmax())


async def test_a_service_does_not_start_under_another_state_key(tmp_path: Path) -> None:
    """One sentence that names the setting; with the right file it starts again."""
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
