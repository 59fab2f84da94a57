"""Each protocol over the three services with real encryption, against the simulator."""

import asyncio
import dataclasses
import time

import numpy as np
import pytest

from common.mechanisms.registry import mechanism_of
from common.messages.result import Result
from common.protocols import protocol_named, protocols_of
from common.task.task import Task
from deploy.clients.local_cluster import Cluster
from deploy.load.run import contribute_all
from deploy.load.sender import Destination
from deploy.planning.requirements import Requirements
from deploy.planning.search import tight_design
from deploy.simulate.collection import count, release

_USERS = 5000
_DEADLINE = 120.0
_GROUPS = [list(protocols_of("categorical"))[start::8] for start in range(8)]


def _wanted(protocol: str) -> Requirements:
    binary = protocol_named(protocol).domain == "binary"
    return Requirements(
        n_users=_USERS,
        n_min=_USERS,
        domain_size=2 if binary else 30,
        central_epsilon=2.0,
        delta=1e-6,
        messages_cap=20.0,
        trust="shuffler-dummies",
    )


async def _collect(cluster: Cluster, protocol: str) -> tuple[Task, np.ndarray, Result]:
    """Let 5,000 users with a skewed histogram answer a task of the protocol."""
    wanted = _wanted(protocol)
    size = wanted.domain_size
    draft = dataclasses.replace(
        tight_design(protocol, wanted).draft,
        shuffler_key=cluster.shuffler_key,
        deadline=int(time.time()) + 3600,
        labels=tuple(f"item {item}" for item in range(size)),
    )
    shares = np.arange(size, 0, -1) / (size * (size + 1) / 2)
    values = np.repeat(np.arange(size), np.random.default_rng(8).multinomial(_USERS, shares))
    async with cluster.operator() as operator, asyncio.timeout(_DEADLINE):
        signed = await operator.create_task(draft)
        authority = cluster.authority.read_bytes()
        shuffler = Destination(address=cluster.shuffler.address, authority=authority)
        await contribute_all(values.tolist(), signed, shuffler)
        result = await operator.wait_for_result(signed.digest())
    return Task.from_bytes(signed.task_bytes), np.bincount(values, minlength=size), result


@pytest.mark.slow
@pytest.mark.parametrize("group", _GROUPS, ids=" ".join)
async def test_every_protocol_gives_what_the_simulator_gives(
    cluster: Cluster, group: list[str]
) -> None:
    """
    Both estimates are unbiased with the same variance: no two shares differ by seven standard
    deviations of their difference, nor a share from the truth by seven of its own.

    The services draw as they do in production, so no seed can be stated; fails by chance with
    probability below 1e-9 (some thousand comparisons).
    """
    for protocol in group:
        task, users, result = await _collect(cluster, protocol)
        mechanism, rng = mechanism_of(task), np.random.default_rng(9)
        counted = count(task, mechanism, users, rng, one_by_one=True)
        simulated, mixture = release(task, mechanism, counted, _USERS)
        truth = users / _USERS
        spread = np.sqrt(mechanism.variance(truth, mixture)) + 1e-12
        collected = result.histogram.frequencies

        assert (np.abs(collected - truth) <= 7 * spread).all(), protocol
        assert (np.abs(collected - simulated.frequencies) <= 7 * np.sqrt(2) * spread).all(), (
            protocol
        )
        assert 0 == sum(result.refused.values()), protocol
        # Which dummies came differs, and so does the error that is stated.
        assert simulated.mse_theory / 1.5 <= result.histogram.mse_theory, protocol
        assert result.histogram.mse_theory <= simulated.mse_theory * 1.5, protocol
