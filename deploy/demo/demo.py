"""The demo: collect values with local processes, then from one more person in a browser."""

import asyncio
import math
import secrets
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from shuffledp.common.crypto.randomness import new_seed
from shuffledp.common.crypto.signing import SignedTask
from shuffledp.common.errors import BatchStateError, TaskError
from shuffledp.common.messages.batch import BatchStatus
from shuffledp.common.messages.result import Result
from shuffledp.common.messages.submission import Value
from shuffledp.common.task.draft import TaskDraft
from shuffledp.common.task.task import Task
from shuffledp.common.task_digest import TaskDigest
from shuffledp.deploy.clients.issuer import IssuerClient, fetch_tokens
from shuffledp.deploy.clients.local_cluster import MOST_EPSILON, Cluster, PageCluster
from shuffledp.deploy.clients.shuffler import ShufflerClient
from shuffledp.deploy.clients.user_agent import send
from shuffledp.deploy.datasets.sample_people import SamplePeople
from shuffledp.deploy.datasets.sources import Dataset
from shuffledp.deploy.demo.local_run import LocalRun
from shuffledp.deploy.demo.truth import beside_truth
from shuffledp.deploy.load.run import contribute_all
from shuffledp.deploy.load.sender import Destination
from shuffledp.deploy.pages.live_server import HTML, page_server
from shuffledp.deploy.results import estimate_table, result_view
from shuffledp.deploy.tasks import drafts, task_view
from shuffledp.deploy.terminal.console import print_written, show_in_browser, terminal
from shuffledp.deploy.terminal.interruption import in_thread, until_stopped
from shuffledp.user_agent.contribution import encoder_for
from shuffledp.user_agent.credentials import CredentialFile

_THROUGH_USER_AGENT: Final = 5
"""Users who contribute through a real user_agent process; others use its code in bulk."""
MAX_ITEMS: Final = 15
"""Number of rows of a table to print; the page has more."""
_POLL_SECONDS: Final = 0.5
_RESULT_TIMEOUT_SECONDS: Final = 3600
_SUITE: Final = "x25519-hkdf-sha256-aes128gcm"
"""All browsers have it."""
_VISITOR: Final = "visitor"
_OPEN_SECONDS: Final = 180
"""Time from the visitor's answer to the end of the batch."""
_OTHER_STOPS: Final = (signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class DemoRun(LocalRun):
    """The outcome of a demo, beside the truth."""

    people: SamplePeople

    def view(self, most: int = result_view.MAX_ROWS) -> estimate_table.ResultView:
        view = self.estimates(most, self.people.candidates)
        return beside_truth(view, self.result.estimate, self.task, self.people)

    def as_json(self) -> dict[str, Any]:
        people = self.people
        fields = super().as_json() | {"truth": people.truth.tolist()}
        if people.true_means is not None:
            fields["true_means"] = people.true_means.tolist()
        if people.candidates:
            fields["candidates"] = people.candidates
        return fields


def run(people: SamplePeople, *, output: Path, html: Path, console: Console) -> DemoRun:
    """Run the demo; write the result to `output` and its page to `html`."""
    print_start(people, console, "issuer and user agent")
    with TemporaryDirectory(prefix="shuffledp-demo-") as folder:
        found = asyncio.run(_collect(people.values, draft_for(people), Path(folder), console))
    finished = DemoRun(**vars(found), people=people)
    finished.save(output, html)
    return finished


def collect_people(people: Dataset, draft: TaskDraft) -> LocalRun:
    """
    Collect the values of a data set, as `contribute` reads them, without printing.

    Raises TaskError, before anything is started, for a value that does not fit the task, or for
    fewer people than its n_min.
    """
    if people.n_users < draft.n_min:
        rule = f"n_min is {draft.n_min:,}, and a smaller batch is never released"
        raise TaskError(f"{people.name} has {people.n_users:,} people; {rule}")
    draft = replace(draft, target_size=people.n_users)
    task, rng = task_view.preview(draft, now=time.time()), np.random.default_rng(0)
    encode = encoder_for(task, None)
    people.parsed(lambda text: encode(text, rng))
    counted = zip(people.labels, people.counts.tolist(), strict=True)
    texts = [text for text, number in counted for _ in range(number)]
    with TemporaryDirectory(prefix="shuffledp-") as folder:
        return in_thread(_collect(texts, draft, Path(folder), terminal(quiet=True)))


async def _collect(
    values: Sequence[Value], draft: TaskDraft, directory: Path, console: Console
) -> LocalRun:
    """Start the services in a directory, collect all values, and wait for the result."""
    people, two_shufflers = names(values), draft.relay is not None
    async with Cluster(directory, people=people, two_shufflers=two_shufflers) as cluster:
        return await collect_in(cluster, values, draft, console)


def print_start(people: SamplePeople, console: Console, others: str) -> None:
    """Print which parties start; of two shufflers, who would run them."""
    shufflers = "both shufflers" if "relay" in people.draft else "shuffler"
    console.print(f"Starting the analyzer, {shufflers}, {others} …")
    if "relay" in people.draft:
        console.print(
            "In a real collection, two organizations run a shuffler each; here, both run on this "
            "machine."
        )


def names(values: Sequence[Value]) -> list[str]:
    """Return a name for the person with each value."""
    return [f"person {number}" for number in range(len(values))]


def draft_for(people: SamplePeople, more: int = 0) -> TaskDraft:
    """Return the draft of a task that closes when all people and `more` have answered."""
    return drafts.closing_draft(people.draft, len(people.values) + more, now=time.time())


async def collect_in(
    cluster: Cluster, values: Sequence[Value], draft: TaskDraft, console: Console
) -> LocalRun:
    """Collect all values by a cluster's services, and wait for the result."""
    signed = await cluster.publish_task(draft)
    task = Task.from_bytes(signed.task_bytes)
    singly = len(values[: _by_user_agent(task)])
    console.print(
        f"Users: {singly} through the user agent process, {len(values) - singly:,} through the "
        f"same code in bulk.\nTask {signed.digest().hex()}"
    )
    started = time.perf_counter()
    with progress_bar(console) as bar:
        await contribute(values, signed, cluster, bar)
    submitted = time.perf_counter()
    with console.status("Shuffling, opening, estimating …"):
        status, result = await released(cluster, signed.digest())
    seconds = {"submit": submitted - started, "shuffle": status.shuffle_seconds}
    return LocalRun(task=task, result=result, seconds=seconds)


def _by_user_agent(task: Task) -> int:
    """Return how many people contribute through the agent's process, which may refuse a task."""
    return _THROUGH_USER_AGENT * (task.coalition_epsilon <= MOST_EPSILON)


def progress_bar(console: Console) -> Progress:
    """Return the bars of people's tokens and answers."""
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(TextColumn("{task.description}"), *columns, console=console)


async def contribute(
    values: Sequence[Value], signed: SignedTask, cluster: Cluster, bar: Progress
) -> None:
    """Get each person's token and contribute, the first people through the user agent."""
    digest, task = signed.digest(), Task.from_bytes(signed.task_bytes)
    tokens, singly = task.tokens, _by_user_agent(task)
    first, rest = values[:singly], values[singly:]
    fetching = bar.add_task("One-time tokens", total=len(rest))
    contributing = bar.add_task("Users contributing", total=len(values))
    for name, value in zip(cluster.people, first, strict=False):
        await send(cluster.user_agent.address, digest, value, name)
        bar.advance(contributing)
    if not rest:
        return
    if tokens is None:
        raise ValueError("the demo's tasks require tokens")
    async with IssuerClient.connect(cluster.issuer.address, cluster.authority) as issuer:
        spent = await fetch_tokens(
            issuer,
            tokens,
            digest,
            CredentialFile(cluster.credentials).all()[singly : len(values)],
            seed=new_seed(),
            progress=partial(bar.advance, fetching),
        )
    shuffler = Destination(cluster.shuffler.address, cluster.authority.read_bytes())
    progress = partial(bar.advance, contributing)
    await contribute_all(rest, signed, shuffler, tokens=spent, progress=progress)


async def released(cluster: Cluster, digest: TaskDigest) -> tuple[BatchStatus, Result]:
    """Wait until a closed batch is released."""
    async with asyncio.timeout(_RESULT_TIMEOUT_SECONDS), cluster.operator() as operator:
        status = await _wait_until_delivered(cluster, digest)
        return status, await operator.wait_for_result(digest)


async def _wait_until_delivered(cluster: Cluster, digest: TaskDigest) -> BatchStatus:
    async with ShufflerClient.connect(cluster.shuffler.address, cluster.authority) as shuffler:
        while True:
            status = await shuffler.status_or_none(digest)
            if status is not None and status.state in task_view.LOST:
                raise BatchStateError(f"the batch is {status.state.value}; nothing is released")
            if status is not None and status.state in task_view.DELIVERED:
                return status
            await asyncio.sleep(_POLL_SECONDS)


@dataclass(frozen=True, kw_only=True)
class Visit:
    """A demo at a terminal, and the files of its results."""

    people: SamplePeople
    output: Path
    html: Path
    console: Console
    show: Callable[[DemoRun], None]
    """Prints the first result."""

    def run(self, opener: Callable[[str], bool] | None) -> None:
        """Run the demo, write its result, and serve the pages, opened too, until Ctrl-C."""
        with TemporaryDirectory(prefix="shuffledp-demo-") as directory:
            asyncio.run(until_stopped(self._run(Path(directory), opener), _OTHER_STOPS))

    async def _run(self, directory: Path, opener: Callable[[str], bool] | None) -> None:
        console, values = self.console, self.people.values
        print_start(self.people, console, "issuer, user agent and publisher")
        invited, two_shufflers = [*names(values), _VISITOR], "relay" in self.people.draft
        async with PageCluster(directory, invited, two_shufflers=two_shufflers) as cluster:
            run = await collect_in(cluster, values, draft_for(self.people), console)
            first = DemoRun(**vars(run), people=self.people)
            first.save(self.output, self.html)
            self.show(first)
            console.print("The same people answer again, so that you can take part with them.")
            draft = draft_for(self.people, 1)  # for them and the visitor
            said = f"The second round of a demo: choose any answer. Its data: {self.people.title}"
            again = replace(draft, target_size=draft.n_min + 1, suite=_SUITE, purpose=said)
            signed = await cluster.publish_task(again)
            with progress_bar(console) as bar:
                await contribute(values, signed, cluster, bar)
            page = cluster.invitations(signed.digest())[_VISITOR]
            stop = asyncio.Event()
            asyncio.get_running_loop().add_signal_handler(signal.SIGINT, stop.set)
            shown = {"": (HTML, self.html.read_bytes)}
            async with page_server(shown, secrets.token_urlsafe(16)) as address:
                console.print(
                    f"\nThe result: {address}\nTake part yourself: {page}\n"
                    "In practice a third party publishes that page, and could read answers.\n"
                    f"The batch closes {_OPEN_SECONDS // 60} minutes after your answer or at "
                    "Ctrl-C. Without your answer it is dropped, and nothing is released.",
                    soft_wrap=True,
                    highlight=False,
                )
                if opener is not None:
                    show_in_browser(self.html.resolve().as_uri())
                    opener(page)
                await self._serve(cluster, signed, stop)

    async def _serve(self, cluster: PageCluster, signed: SignedTask, stop: asyncio.Event) -> None:
        """Wait for the visitor and for Ctrl-C; release the batch if there was a visitor."""
        digest, closing, n_people = signed.digest(), math.inf, len(self.people.values)
        async with aclosing(cluster.watch(digest)) as watching:
            async for found in watching:
                if found.n_users > n_people and closing == math.inf:
                    closing = time.monotonic() + _OPEN_SECONDS
                    end = time.strftime("%H:%M", time.localtime(time.time() + _OPEN_SECONDS))
                    said = f"Your answer has arrived. The batch closes at {end}, or at Ctrl-C."
                    self.console.print(said, highlight=False)
                if stop.is_set() or time.monotonic() >= closing:
                    break
        if found.n_users <= n_people:
            self.console.print("Nobody took part: the second batch is dropped.")
            return
        async with cluster.shuffler_operator() as shuffler:
            await shuffler.close_batch(digest)
        stop.clear()
        html = self.html.with_stem(f"{self.html.stem}-with-you")
        _, result = await released(cluster, digest)
        run = LocalRun(task=Task.from_bytes(signed.task_bytes), result=result)
        run.save(html.with_suffix(".json"), html, quiet=False)
        print_written([html.with_suffix(".json"), html], self.console)
        self.console.print(
            f"The result with your answer: {html.resolve().as_uri()}\n"
            "Your page finds your answer counted. Ctrl-C ends.",
            soft_wrap=True,
            highlight=False,
        )
        await stop.wait()
