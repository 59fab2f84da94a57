"""The demo: three processes on this machine collect values privately, and show the estimate."""

import asyncio
import tempfile
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import grpc
import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from common.crypto.signing import SignedTask
from common.errors import BatchStateError
from common.messages.batch import BatchState, BatchStatus
from common.messages.result import Result
from common.messages.submission import Outcome
from common.messages.value import Value
from common.protocols import Kind
from common.runtime.rpc import open_channel
from common.task.task import Task
from common.task_digest import TaskDigest
from common.version import VERSION
from deploy.clients.local_cluster import Cluster
from deploy.clients.shuffler import ShufflerClient
from deploy.clients.user_agent import send
from deploy.datasets.sample_people import SamplePeople, sample_people
from deploy.load.people import contribute_all
from deploy.pages.estimates_page import estimates_page
from deploy.pages.result_page import result_page
from deploy.results import histogram_table as result_rows
from deploy.results.estimate_columns import CONFIDENCE
from deploy.results.estimate_table import print_table
from deploy.results.result_json import as_json
from deploy.results.truth_comparison import Comparison, compare
from deploy.tasks.demo_task import closing_draft
from deploy.tasks.guarantee_table import show_promises
from deploy.terminal.json_output import dumps
from deploy.terminal.output_file import write

_THROUGH_USER_AGENT: Final = 5
"""Users that go through the real user_agent process; the rest run its code in bulk."""
_SHOWN: Final = 15
_PATIENCE_SECONDS: Final = 3600


@dataclass(frozen=True, kw_only=True, eq=False)
class DemoRun:
    """What a demo run came to."""

    task: Task
    result: Result
    people: SamplePeople
    """The very users who contributed, and what is true of them."""
    submit_seconds: float
    shuffle_seconds: float

    @cached_property
    def comparison(self) -> Comparison:
        """The estimates beside the truth."""
        return compare(self.task, self.result.estimate, self.people)


async def collect(people: SamplePeople, *, directory: Path, console: Console) -> DemoRun:
    """
    Start the three services, publish a task, let the users contribute, wait for the result.

    Args:
        people: Who contribute; their devices' randomness is never that which chose them.
        directory: Where the services keep their state.
        console: Where progress is shown.
    """
    values, n_users = people.values, len(people.values)
    console.print("Starting analyzer, shuffler and user agent …")
    console.print(
        f"{n_users} people take part: {min(n_users, _THROUGH_USER_AGENT)} through the user agent's "
        "process, the others through the same code in bulk."
    )
    async with Cluster(directory) as cluster, cluster.operator() as operator:
        signed = await operator.create_task(
            closing_draft(people.draft, n_users, now=time.time(), shuffler_key=cluster.shuffler_key)
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
    return DemoRun(
        task=Task.from_bytes(signed.task_bytes),
        result=result,
        people=people,
        submit_seconds=submitted - started,
        shuffle_seconds=status.shuffle_seconds,
    )


async def _contribute(
    values: list[Value],
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
        for number, value in enumerate(values[:_THROUGH_USER_AGENT]):
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
    people = finished.people
    fields = as_json(finished.result)
    fields["labels"] = finished.task.labels
    fields["truth"] = people.truth.tolist()
    if people.true_means is not None:
        fields["true_means"] = people.true_means.tolist()
    if people.candidates:
        fields["candidates"] = people.candidates
    fields.update(finished.comparison.fields)
    fields["seconds"] = {
        "submit": finished.submit_seconds,
        "shuffle": finished.shuffle_seconds,
        **fields["seconds"],
    }
    return fields


def show(finished: DemoRun, console: Console) -> None:
    """Print the estimates beside the truth, the errors and the guarantees."""
    console.print(finished.people.title)
    if finished.people.kind == "categorical":
        _show_histogram(finished, console)
    else:
        for table in finished.comparison.tables:
            print_table(table, console)
        for sentence in finished.comparison.sentences:
            console.print(sentence)
    show_promises(finished.result.guarantees, "What each user is promised", console)


def _show_histogram(finished: DemoRun, console: Console) -> None:
    result, truth = finished.result, finished.people.truth
    histogram = result.histogram
    result_rows.show(result, finished.task.labels, console, most=_SHOWN, truth=truth)
    low, high = histogram.interval(CONFIDENCE)
    covered = float(np.mean((low <= truth) & (truth <= high)))
    refined = float(np.mean((histogram.refined - truth) ** 2))
    mse = finished.comparison.fields["mse_vs_truth"]
    console.print(
        f"Mean squared error {mse:.3g}, in theory {histogram.mse_theory:.3g}; "
        f"refined {refined:.3g}. "
        f"The intervals cover {covered:.1%} of the cities. "
        "Refined shares are the likeliest ones that are no less than 0 and sum to 1."
    )


def page(finished: DemoRun) -> str:
    """Make the page that shows the result beside the truth."""
    if finished.people.kind == "categorical":
        truth = finished.people.truth
        return result_page(finished.result, finished.task, truth=truth, version=VERSION)
    comparison = finished.comparison
    return estimates_page(
        finished.result,
        finished.task,
        comparison.tables,
        notes=comparison.sentences,
        size=comparison.size,
        version=VERSION,
    )


def run(
    kind: Kind,
    n_users: int | None,
    *,
    seed: int | None,
    output: Path,
    html: Path,
    console: Console,
) -> DemoRun:
    """Run the demo of a kind with n_users people, or all, and write the result, also as a page."""
    people = sample_people(kind, n_users, seed)
    with tempfile.TemporaryDirectory(prefix="shuffledp-demo-") as directory:
        finished = asyncio.run(collect(people, directory=Path(directory), console=console))
    write(output, dumps(to_json(finished)))
    write(html, page(finished))
    return finished
