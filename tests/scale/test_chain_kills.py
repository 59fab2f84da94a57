"""
Analyzer, both shufflers, issuer and user agent killed at random: each answer is counted once.

`SHUFFLEDP_SCALE_USERS=20000 SHUFFLEDP_SCALE_KILLS=100` runs it at length.
"""

import asyncio
import itertools
import os
import random
import sys
import time
from collections import Counter
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
import pytest

from shuffledp.common.crypto.signing import SignedTask
from shuffledp.common.errors import PeerError, PeerRefusalError
from shuffledp.common.task.task import Task
from shuffledp.deploy.clients.issuer import IssuerClient, fetch_tokens
from shuffledp.deploy.clients.user_agent import ask_for_receipt, send
from shuffledp.user_agent.credentials import CredentialFile
from tests.scale.chain_cluster import ChainCluster
from tests.scale.chaos import Chaos
from tests.scale.sender import CALL, Users, expected

_USERS: Final = int(os.environ.get("SHUFFLEDP_SCALE_USERS", "2000"))
_KILLS: Final = int(os.environ.get("SHUFFLEDP_SCALE_KILLS", "20"))
_SEED: Final = int(os.environ.get("SHUFFLEDP_SCALE_SEED", "1"))
_PEOPLE: Final = [f"person {number}" for number in range(100)]
"""They answer through the user agent, all others in bulk."""
_ITEMS: Final = 50
_STAGES: Final = ("arrived", "merged", "opened", "dummies", "scattered", "permuted")
"""In which the relay is killed, in all but the first and last several times."""
_PATIENCE: Final = 900.0
_PAUSE: Final = 0.2


@pytest.mark.slow
@pytest.mark.parametrize("postgres", [False, True], ids=["SQLite", "PostgreSQL"])
async def test_two_shufflers_count_every_acknowledged_answer_once(
    tmp_path: Path, *, postgres: bool
) -> None:
    """
    A third of the kills fall while the batch is permuted and delivered, the relay's by its stage.

    The last person answers only then. The counts less the noise that each shuffler drew, once, are
    the acknowledged answers, item by item.
    """
    calls = _USERS // CALL
    names = [*_PEOPLE, *(f"user {number}" for number in range(calls * CALL))]
    async with ChainCluster(tmp_path, names, postgres=postgres) as cluster:
        n_users, late = len(names), _KILLS // 3
        signed = await cluster.publish_chain(n_users, _ITEMS)
        people = _People(cluster, signed)
        users = Users(
            *(signed, [cluster.shuffler.address], cluster.authority.read_bytes(), _SEED),
            tokens=people.tokens,
        )
        chaos = Chaos(cluster.victims(), _SEED)
        async with asyncio.timeout(_PATIENCE + _USERS / 20), asyncio.TaskGroup() as group:
            group.create_task(users.send(calls))
            group.create_task(people.answer(range(len(_PEOPLE) - 1)))
            group.create_task(chaos.kill(_KILLS - late))
        others = {name: each for name, each in cluster.victims().items() if name != "relay"}
        rest = Chaos(others, _SEED)
        async with asyncio.timeout(_PATIENCE), asyncio.TaskGroup() as group:
            group.create_task(people.answer([len(_PEOPLE) - 1]))
            hunting = group.create_task(_kill_relay(cluster, late - late // 2))
            group.create_task(rest.kill(late // 2))
        async with cluster.operator() as operator, asyncio.timeout(_PATIENCE):
            result = await operator.wait_for_result(signed.digest())
        counted, noise = cluster.cells(signed), cluster.noise(signed)
        inclusions = await people.inclusions()

    sys.stdout.write(
        f"kills {dict(chaos.kills + rest.kills)}, relay in {dict(hunting.result())}, "
        f"retries {users.retries + people.retries}, repeated {users.repeated}\n"
    )
    assert calls * CALL == users.acknowledged
    assert (n_users, 0) == (result.n_users, sum(result.refused.values()))
    assert 2 == len(noise)
    assert result.n_reports == n_users + sum(map(np.sum, noise))
    values = expected(signed, _SEED, calls) + np.bincount(people.values, minlength=_ITEMS)
    np.testing.assert_array_equal(values, counted - sum(noise))
    assert {"counted": len(_PEOPLE)} == inclusions


async def _kill_relay(cluster: ChainCluster, kills: int) -> Counter[str]:
    """Kill the relay in each stage in turn; return the stages in which it was killed."""
    moments, restart = random.Random(_SEED), cluster.victims()["relay"]  # noqa: S311  # no secret
    found, since, between = Counter[str](), 0.0, itertools.cycle(_STAGES[1:-1])
    for stage in [_STAGES[0], *itertools.islice(between, kills - 2), _STAGES[-1]]:
        with suppress(TimeoutError):
            await cluster.relay_in(_STAGES[_STAGES.index(stage) :], 10.0, since)
        await asyncio.sleep(moments.uniform(0.0, 0.02))
        found[cluster.relay_stage()[0] or "no batch"] += 1
        since = time.time()
        await restart()
    return found


class _People:
    """People who answer through the user agent, and get tokens for the others."""

    def __init__(self, cluster: ChainCluster, signed: SignedTask) -> None:
        self._cluster, self._signed = cluster, signed
        self._task = Task.from_bytes(signed.task_bytes)
        self._credentials = CredentialFile(cluster.credentials).all()
        self.values = np.arange(len(_PEOPLE)) % _ITEMS
        self.retries = 0

    async def tokens(self, call: int) -> list[bytes]:
        """Get the tokens of one call's users, until the issuer answers."""
        first, cluster, spec = len(_PEOPLE) + call * CALL, self._cluster, self._task.tokens
        assert spec is not None
        token = cluster.directory / "issuer" / "operator.token"
        while True:
            with suppress(PeerError):
                async with IssuerClient.connect(
                    cluster.issuer.address, cluster.authority, token
                ) as issuer:
                    credentials = self._credentials[first : first + CALL]
                    ask = partial(fetch_tokens, issuer, spec, self._signed.digest(), credentials)
                    return await ask(seed=bytes(32))
            self.retries += 1
            await asyncio.sleep(_PAUSE)

    async def answer(self, people: "range | list[int]") -> None:
        """Let people answer one after the other, each until the shuffler has acknowledged it."""
        agent, digest = self._cluster.user_agent.address, self._signed.digest()
        for person in people:
            while await self._state(person) != "arrived":
                try:
                    await send(agent, digest, int(self.values[person]), _PEOPLE[person])
                except (PeerError, PeerRefusalError):
                    self.retries += 1
                    await asyncio.sleep(_PAUSE)

    async def inclusions(self) -> Counter[str]:
        """Wait until the user agent has checked all answers."""
        while True:
            found = Counter([await self._receipt(person) for person in range(len(_PEOPLE))])
            if "unchecked" not in found:
                return found
            await asyncio.sleep(1.0)

    async def _receipt(self, person: int) -> str:
        agent, digest = self._cluster.user_agent.address, self._signed.digest()
        return (await ask_for_receipt(agent, digest, _PEOPLE[person])).inclusion

    async def _state(self, person: int) -> str:
        agent, digest = self._cluster.user_agent.address, self._signed.digest()
        with suppress(PeerError, PeerRefusalError):
            return (await ask_for_receipt(agent, digest, _PEOPLE[person])).state
        return ""
