"""
The load generator against a sink, beside the services: is it the generator that is measured?

The same prepared submissions go to a sink, which stores nothing, and to the shuffler, each in
processes of its own, in turns within one run. In bulk the generator must be at least three times as
fast as the services. Where every user has a connection of their own, the greater part of the work
is TLS, which costs both ends about the same: that figure is shown, and more processes or machines
are the way to more. Run as `python -m tests.benchmarks.load`.
"""

import asyncio
import statistics
import tempfile
from pathlib import Path
from typing import Final

import numpy as np

from common.messages.submission import Outcome
from deploy.clients.local_cluster import Cluster
from deploy.load import prepared_file
from deploy.load.arrivals import in_calls, submissions_of_a_call
from deploy.load.connection import Destination
from deploy.load.fleet import Fleet
from deploy.load.plan import Crowd, LoadPlan, Mode
from deploy.load.prepared_file import Prepared
from deploy.load.sealing import prepare
from deploy.load.sink import sink
from deploy.load.tally import Tally
from tests.benchmarks.measure import line
from tests.support.children import publish

_ROUNDS: Final = 3
_USERS: Final[dict[Mode, int]] = {"bulk": 20_000, "users": 1_000}
"""In each round."""
_WARM_UP: Final = 200


class _Replay:
    """Sends the next users of a file, in one mode, to one end."""

    def __init__(self, fleet: Fleet, prepared: Prepared, plan: LoadPlan) -> None:
        self._fleet = fleet
        self._plan = plan
        self._together = submissions_of_a_call(prepared.envelope_bytes)

    async def measure(self, first: int, end: int) -> float:
        """Give submissions a second; all must be stored."""
        most = self._together if self._plan.mode == "bulk" else 1
        units = first + in_calls(np.ones(end - first, dtype=np.int64), most)
        seen: Tally = await asyncio.to_thread(self._fleet.run, units, None, self._plan.at_once)
        if seen.answers != {Outcome.STORED: end - first}:
            raise RuntimeError(f"not everything was stored: {seen.answers} {seen.failures}")
        return seen.per_second(end - first)


async def _compare(mode: Mode, prepared: Prepared, shuffler: Destination, begin: int) -> int:
    """Measure one mode with users from `begin` on; give the first that were not sent."""
    plan, users = LoadPlan(mode=mode), _USERS[mode]
    with (
        sink(prepared.signed) as (to, _),
        Fleet(to, prepared, plan) as to_sink,
        Fleet(shuffler, prepared, plan) as to_shuffler,
    ):
        alone, services = (_Replay(fleet, prepared, plan) for fleet in (to_sink, to_shuffler))
        for replay in (alone, services):
            await replay.measure(begin, begin + _WARM_UP)
        begin += _WARM_UP
        rates = []
        for _ in range(_ROUNDS):
            into_sink = await alone.measure(begin, begin + users)
            stored = await services.measure(begin, begin + users)
            rates.append((into_sink, stored))
            begin += users
    line(
        f"load in {'bulk' if mode == 'bulk' else 'connections of their own'}",
        submissions=_ROUNDS * users,
        into_a_sink_per_second=statistics.median(rate[0] for rate in rates),
        stored_per_second=statistics.median(rate[1] for rate in rates),
        generator_over_services=statistics.median(rate[0] / rate[1] for rate in rates),
    )
    return begin


async def _measure(folder: Path) -> None:
    n_users = sum(_ROUNDS * users + _WARM_UP for users in _USERS.values())
    async with Cluster(folder / "services") as cluster:
        signed = await publish(cluster, 2 * n_users)
        path = folder / "users"
        prepare(path, signed, crowd=Crowd(n_users=n_users), dataset_name="uniform:50", seed=1)
        prepared = prepared_file.read(path)
        to = Destination(address=cluster.shuffler.address, authority=cluster.authority.read_bytes())
        begin = 0
        for mode in _USERS:
            begin = await _compare(mode, prepared, to, begin)


def main() -> None:
    """Measure both modes."""
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_measure(Path(folder)))


if __name__ == "__main__":
    main()
