"""The end of a demo at a terminal: its question again, for one more person in a browser."""

import asyncio
import math
import secrets
import signal
import time
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from rich.console import Console

from common.crypto.signing import SignedTask
from common.task.draft import TaskDraft
from common.task.task import Task
from deploy.clients.page_cluster import PageCluster
from deploy.datasets.sample_people import SamplePeople
from deploy.demo.demo import (
    DemoRun,
    collect_in,
    contribute,
    names,
    print_start,
    progress_bar,
    released,
)
from deploy.pages.live_server import HTML, page_server
from deploy.pages.result_page import result_page
from deploy.results.distribution_view import Questions
from deploy.results.export import as_json, shufflers_as_json
from deploy.results.result_view import MAX_ROWS, result_view
from deploy.tasks.demo_task import closing_draft
from deploy.terminal.console import print_written, show_in_browser
from deploy.terminal.files import write
from deploy.terminal.interruption import until_stopped
from deploy.terminal.json_output import dumps

_SUITE: Final = "x25519-hkdf-sha256-aes128gcm"
"""All browsers have it."""
_VISITOR: Final = "visitor"
_OPEN_SECONDS: Final = 180
"""Time from the visitor's answer to the end of the batch."""
_OTHER_STOPS: Final = (signal.SIGTERM, signal.SIGHUP)


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
        invited, two_shufflers = [*names(self.people), _VISITOR], "relay" in self.people.draft
        async with PageCluster(directory, invited, two_shufflers=two_shufflers) as cluster:
            first = await collect_in(cluster, self.people, console)
            first.save(self.output, self.html)
            self.show(first)
            signed = await cluster.publish_task(self._draft())
            with progress_bar(console) as bar:
                await contribute(values, signed, cluster, bar)
            page = cluster.invitations(signed.digest())[_VISITOR]
            stop = asyncio.Event()
            asyncio.get_running_loop().add_signal_handler(signal.SIGINT, stop.set)
            shown = {"": (HTML, self.html.read_bytes)}
            async with page_server(shown, secrets.token_urlsafe(16)) as address:
                console.print(
                    f"\nThe result: {address}\nTake part yourself: {page}\n"
                    "The demo's people have answered again, and wait for you. In a real "
                    "collection a third party publishes that page; it could read answers.\n"
                    f"The batch closes {_OPEN_SECONDS // 60} minutes after your answer or at "
                    "Ctrl-C. Without your answer it is dropped, and nothing is released.",
                    soft_wrap=True,
                    highlight=False,
                )
                if opener is not None:
                    show_in_browser(self.html.resolve().as_uri())
                    opener(page)
                await self._serve(cluster, signed, stop)

    def _draft(self) -> TaskDraft:
        """Draft the question for the same people and the visitor."""
        n_users = len(self.people.values) + 1
        draft = closing_draft(self.people.draft, n_users, now=time.time())
        purpose = f"The second round of a demo: choose any answer. Its data: {self.people.title}"
        return replace(draft, target_size=n_users + 1, suite=_SUITE, purpose=purpose)

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
        task = Task.from_bytes(signed.task_bytes)
        asked = Questions(batch=result, task=task)
        view = result_view(result.estimate, task, most=MAX_ROWS, questions=asked)
        fields = {**as_json(result), "labels": task.labels, **shufflers_as_json(task)}
        write(html.with_suffix(".json"), dumps(fields))
        write(html, result_page(result, task, view))
        print_written([html.with_suffix(".json"), html], self.console)
        self.console.print(
            f"The result with your answer: {html.resolve().as_uri()}\n"
            "Your page finds your answer counted. Ctrl-C ends.",
            soft_wrap=True,
            highlight=False,
        )
        await stop.wait()
