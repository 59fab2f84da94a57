"""
The load generator against a sink, beside the services: is the generator what is measured?

The same kind of sealed submissions goes to a sink, which stores nothing, and to the shuffler, in
turns within one run. In bulk the generator must be at least three times as fast as the services.
Where every user has a connection, most of the work is TLS, which costs both ends alike.
"""

import asyncio
import statistics
from pathlib import Path
from typing import Final

import pytest
from rich.console import Console

from common.messages.submission import Outcome
from deploy.clients.local_cluster import Cluster
from deploy.load.plan import LoadPlan, Mode
from deploy.load.report import Bars
from deploy.load.run import run
from deploy.load.target import Target, connect, sink
from deploy.load.users import SealedUsers, seal
from tests.benchmarks.conftest import Best, Line
from tests.support.children import publish

_ROUNDS: Final = 3
_USERS: Final[dict[Mode, int]] = {"bulk": 20_000, "users": 1_000}
"""In each round; the first round of each end is not counted."""


async def _rate(target: Target, plan: LoadPlan, users: SealedUsers, part: slice) -> float:
    """Send some of the users, and return how many were stored a second: all must be."""
    some = users.part(part.start, part.stop)
    with Bars(Console(quiet=True)) as bars:
        finished = await run(plan, target, some, bars)
    assert {Outcome.STORED: some.n_users} == finished.tally.answers, finished.tally.failures
    return finished.tally.achieved


async def _measure(folder: Path, mode: Mode) -> list[tuple[float, float]]:
    """Return rates into a sink and into the shuffler."""
    each, plan = _USERS[mode], LoadPlan(mode=mode)
    async with Cluster(folder / "services") as cluster:
        signed = await publish(cluster, 2 * (_ROUNDS + 1) * each)
        users = seal(signed, LoadPlan(n_users=(_ROUNDS + 1) * each, dataset="uniform:50", seed=1))
        address = cluster.shuffler.address
        async with (
            connect("services", address, signed.digest(), authority=cluster.authority) as shuffler,
            sink(signed) as nothing,
        ):
            parts = [slice(start, start + each) for start in range(0, users.n_users, each)]
            return [
                (
                    await _rate(nothing, plan, users, part),
                    await _rate(shuffler, plan, users, part),
                )
                for part in parts
            ][1:]


@pytest.mark.parametrize("mode", _USERS)
def test_load(mode: Mode, tmp_path: Path, best: Best, line: Line) -> None:
    """Both ends in turns."""
    rates: list[tuple[float, float]] = []
    best(1, lambda: rates.extend(asyncio.run(_measure(tmp_path, mode))))
    line(
        f"load in {'bulk' if mode == 'bulk' else 'connections of their own'}",
        submissions=_ROUNDS * _USERS[mode],
        into_a_sink_per_second=statistics.median(rate[0] for rate in rates),
        stored_per_second=statistics.median(rate[1] for rate in rates),
        generator_over_services=statistics.median(rate[0] / rate[1] for rate in rates),
    )
