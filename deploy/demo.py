"""The demo: three processes on this machine collect a real histogram privately."""

import asyncio
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc
import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from common.batch import BatchState, BatchStatus
from common.errors import BatchStateError
from common.result import Result
from common.runtime.rpc import open_channel
from common.signing import SignedTask
from common.submission import Outcome
from common.task import Task
from common.task_digest import TaskDigest
from common.version import VERSION
from deploy import result_rows
from deploy.cluster import Cluster
from deploy.datasets.catalogue import IPUMS_1940_CITY, Dataset, load
from deploy.demo_task import demo_draft
from deploy.load.bulk import contribute_all
from deploy.output_file import write
from deploy.pages.result_page import result_page
from deploy.person_client import send
from deploy.promise_table import show_promises
from deploy.result_json import as_json, dumps
from deploy.result_rows import CONFIDENCE
from deploy.shuffler_client import ShufflerClient

_THROUGH_USER_AGENT: Final = 5
"""Users that go through the real user_agent process; the rest run its code in bulk."""
_SHOWN: Final = 15
_PATIENCE_SECONDS: Final = 3600


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DemoRun:
    """What a demo run came to."""

    task: Task
    result: Result
    truth: NDArray[np.float64]
    """Shares among the very users who contributed."""
    labels: tuple[str, ...]
    submit_seconds: float
    shuffle_seconds: float

    @property
    def mse(self) -> float:
        """Mean over items of the squared error of the unrefined shares."""
        return float(np.mean((self.result.histogram.frequencies - self.truth) ** 2))


async def collect(
    dataset: Dataset, n_users: int, *, seed: int | None, directory: Path, console: Console
) -> DemoRun:
    """
    Start the three services, publish a task, let the users contribute, wait for the result.

    Args:
        dataset: Whose people contribute.
        n_users: How many of them.
        seed: Chooses the people, for a run that can be repeated; their randomness never is.
        directory: Where the services keep their state.
        console: Where progress is shown.
    """
    values = dataset.draw(n_users, np.random.default_rng(seed))
    console.print("Starting analyzer, shuffler and user agent …")
    console.print(
        f"{n_users} people take part: {min(n_users, _THROUGH_USER_AGENT)} through the user agent's "
        "process, the others through the same code in bulk."
    )
    async with Cluster(directory) as cluster, cluster.operator() as operator:
        signed = await operator.create_task(
            demo_draft(
                len(dataset.labels),
                n_users,
                now=time.time(),
                shuffler_key=cluster.shuffler_key,
                labels=dataset.labels,
            )
        )
        console.print(f"Task {signed.digest().hex()}")
        authority = cluster.authority.read_bytes()
        started = time.perf_counter()
        async with open_channel(cluster.shuffler.address, "shuffler", authority) as shuffler:
            await _contribute(values, signed, cluster, shuffler, console)
        submitted = time.perf_counter()
        with console.status("Shuffling, opening, estimating …"):
            async with asyncio.timeout(_PATIENCE_SECONDS):
                status = await _wait_until_delivered(cluster, signed.digest())
                result = await operator.wait_for_result(signed.digest())
    truth = np.bincount(values, minlength=len(dataset.labels)) / n_users
    return DemoRun(
        task=Task.from_bytes(signed.task_bytes),
        result=result,
        truth=truth,
        labels=dataset.labels,
        submit_seconds=submitted - started,
        shuffle_seconds=status.shuffle_seconds,
    )


async def _contribute(
    values: NDArray[np.int64],
    signed: SignedTask,
    cluster: Cluster,
    shuffler: grpc.aio.Channel,
    console: Console,
) -> None:
    columns = (
        TextColumn("Users contributing"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as bar:
        shown = bar.add_task("", total=len(values))
        for number, value in enumerate(values[:_THROUGH_USER_AGENT].tolist()):
            await send(cluster.user_agent.address, signed.digest(), value, f"person {number}")
            bar.advance(shown)
        outcomes = await contribute_all(
            values[_THROUGH_USER_AGENT:],
            signed,
            shuffler,
            progress=lambda more: bar.advance(shown, more),
        )
    lost = outcomes.total() - outcomes[Outcome.STORED]
    if lost:
        raise BatchStateError(f"{lost} submissions were not stored")


async def _wait_until_delivered(cluster: Cluster, digest: TaskDigest) -> BatchStatus:
    async with ShufflerClient.connect(cluster.shuffler.address, cluster.authority) as shuffler:
        while True:
            status = await shuffler.status_or_none(digest)
            if status is not None and status.state in {BatchState.EXPIRED, BatchState.QUARANTINED}:
                raise BatchStateError(f"the batch is {status.state.value}; nothing is released")
            if status is not None and status.state in {BatchState.DELIVERED, BatchState.ERASED}:
                return status
            await asyncio.sleep(0.1)


def to_json(finished: DemoRun) -> dict[str, Any]:
    """Give the content of result.json: the result, and what only a demo knows."""
    fields = as_json(finished.result)
    fields["labels"] = finished.labels
    fields["truth"] = finished.truth.tolist()
    fields["mse_vs_truth"] = finished.mse
    fields["seconds"] = {
        "submit": finished.submit_seconds,
        "shuffle": finished.shuffle_seconds,
        **fields["seconds"],
    }
    return fields


def show(finished: DemoRun, console: Console) -> None:
    """Print the largest items, the errors and the guarantees."""
    result = finished.result
    histogram = result.histogram
    console.print("A value is a city, by its code in the census sample of IPUMS.")
    result_rows.show(result, finished.labels, console, most=_SHOWN, truth=finished.truth)
    low, high = histogram.interval(CONFIDENCE)
    covered = float(np.mean((low <= finished.truth) & (finished.truth <= high)))
    refined = float(np.mean((histogram.refined - finished.truth) ** 2))
    console.print(
        f"Mean squared error {finished.mse:.3g}, in theory {histogram.mse_theory:.3g}; "
        f"refined {refined:.3g}. "
        f"The intervals cover {covered:.1%} of the cities. "
        "Refined shares are the likeliest ones that are no less than 0 and sum to 1."
    )
    show_promises(result.guarantees, "What each user is promised", console)


def page(finished: DemoRun) -> str:
    """Make the page that shows the result beside the truth."""
    return result_page(finished.result, finished.task, truth=finished.truth, version=VERSION)


def run(
    n_users: int | None, *, seed: int | None, output: Path, html: Path, console: Console
) -> DemoRun:
    """Run the demo with n_users people, or all, and write the result, also as a page."""
    dataset = load(IPUMS_1940_CITY)
    n_users = int(dataset.counts.sum()) if n_users is None else n_users
    with tempfile.TemporaryDirectory(prefix="shuffledp-demo-") as directory:
        finished = asyncio.run(
            collect(dataset, n_users, seed=seed, directory=Path(directory), console=console)
        )
    write(output, dumps(to_json(finished)))
    write(html, page(finished))
    return finished
