"""The end of a demo at a terminal: its question again, for one more person in a browser."""

import asyncio
import secrets
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

from rich.console import Console
from rich.progress import Progress

from common.crypto.signing import SignedTask
from common.protocols import Kind
from common.task.task import Task
from deploy.clients.page_cluster import PageCluster
from deploy.datasets.sample_people import SamplePeople
from deploy.demo.demo import DemoRun, collect_in, contribute, names, released
from deploy.pages.live_server import HTML, Pages, page_server
from deploy.pages.result_page import result_page
from deploy.results.distribution_view import Questions
from deploy.results.export import as_json
from deploy.results.result_view import MAX_ROWS, result_view
from deploy.tasks.demo_task import closing_draft
from deploy.terminal.console import print_written, show_in_browser
from deploy.terminal.files import write
from deploy.terminal.interruption import until_stopped
from deploy.terminal.json_output import dumps

_SUITE: Final = "x25519-hkdf-sha256-aes128gcm"
"""All browsers have it."""
_VISITOR: Final = "visitor"
_OPEN_SECONDS: Final = 180.0
"""Time from the visitor's answer to the end of the batch."""
_READ_SECONDS: Final = 60.0
"""Time after an end by Ctrl-C for the visitor's page to find the answer counted."""
_POLL_SECONDS: Final = 1.0


class _Question(NamedTuple):
    title: str
    prompt: str


QUESTIONS: Final[Mapping[Kind, _Question]] = {
    "categorical": _Question("A US state", "Which US state do you choose?"),
    "ordered": _Question("The size of a city", "How many people live in your city?"),
}
"""The demo's questions that the page can take an answer to."""


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
            ended = (signal.SIGTERM, signal.SIGHUP)
            asyncio.run(until_stopped(self._run(Path(directory), opener), ended))

    async def _run(self, directory: Path, opener: Callable[[str], bool] | None) -> None:
        self.console.print("Starting the analyzer, shuffler, issuer, user agent and publisher …")
        async with PageCluster(directory, [*names(self.people), _VISITOR]) as cluster:
            first = await collect_in(cluster, self.people, self.console)
            first.save(self.output, self.html)
            self.show(first)
            page = self.html.read_bytes()
            pages: Pages = {"": (HTML, lambda: page)}
            with page_server(pages, secrets.token_urlsafe(16)) as address:
                signed = await self._ask(cluster)
                invited = cluster.invitations(signed.digest())[_VISITOR]
                self._invite(address, invited)
                if opener is not None:
                    show_in_browser(self.html.resolve().as_uri())
                    opener(invited)
                await self._serve(cluster, pages, address, signed)

    def _invite(self, address: str, invited: str) -> None:
        self.console.print(
            f"\n[bold]The result:[/bold] {address}\n[bold]Take part yourself:[/bold] {invited}\n"
            "The demo asks its people again, and you. It plays the publisher of that page, in "
            "reality a third party: who serves the page could read your answer.\n"
            f"The batch closes {_OPEN_SECONDS / 60:.0f} minutes after your answer or at Ctrl-C; "
            "without your answer it is dropped. Ctrl-C ends.",
            soft_wrap=True,
            highlight=False,
        )

    async def _serve(
        self, cluster: PageCluster, pages: Pages, address: str, signed: SignedTask
    ) -> None:
        """Ask again, wait for the visitor and for Ctrl-C, and release if there was a visitor."""
        stop = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, stop.set)
        answering = asyncio.ensure_future(
            contribute(self.people.values, signed, cluster, Progress(disable=True))
        )
        try:
            visited = await self._visitor(cluster, signed, answering, stop)
        finally:
            answering.cancel()
        if not visited:
            self.console.print("Nobody took part: the second batch is dropped, unreleased.")
            return
        by_hand = stop.is_set()
        stop.clear()
        files = await self._release(cluster, signed)
        pages["with-you"] = (HTML, files[1].read_bytes)
        print_written(files, self.console)
        self.console.print(
            f"[bold]The result with your answer:[/bold] {address}with-you\n"
            "Your page finds your answer counted. Ctrl-C ends.",
            soft_wrap=True,
        )
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), _READ_SECONDS if by_hand else None)

    async def _ask(self, cluster: PageCluster) -> SignedTask:
        """Publish the question for everybody and the visitor."""
        n_users, question = len(self.people.values) + 1, QUESTIONS[self.people.kind]
        draft = closing_draft(self.people.draft, n_users, now=time.time(), shuffler_key=b"")
        purpose = f"The second round of a demo. {self.people.title}"
        asked = replace(draft, title=question.title, prompt=question.prompt, purpose=purpose)
        return await cluster.publish_task(replace(asked, target_size=n_users + 1, suite=_SUITE))

    async def _visitor(
        self,
        cluster: PageCluster,
        signed: SignedTask,
        answering: "asyncio.Future[None]",
        stop: asyncio.Event,
    ) -> bool:
        """Return whether the visitor has answered, minutes after that or at Ctrl-C."""
        if not await _has_ended(answering, stop):
            self.console.print("Waiting for the demo's people; Ctrl-C ends at once.")
            stop.clear()
            if not await _has_ended(answering, stop):
                return False
            stop.set()
        answering.result()
        closing: float | None = None
        async with cluster.shuffler_operator() as shuffler:
            while True:
                progress = await shuffler.progress(signed.digest())
                visited = progress.n_users > len(self.people.values)
                if visited and closing is None:
                    closing = time.monotonic() + _OPEN_SECONDS
                    self.console.print("Your answer has arrived.")
                if stop.is_set() or (closing is not None and time.monotonic() > closing):
                    return visited
                with suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), _POLL_SECONDS)

    async def _release(self, cluster: PageCluster, signed: SignedTask) -> tuple[Path, Path]:
        """Close the batch; write the result and its page beside the first, and return both."""
        html = self.html.with_stem(f"{self.html.stem}-with-you")
        async with cluster.shuffler_operator() as shuffler:
            await shuffler.close_batch(signed.digest())
        with self.console.status("Shuffling, opening, estimating …"):
            _, result = await released(cluster, signed.digest())
        task = Task.from_bytes(signed.task_bytes)
        asked = Questions(batch=result, task=task)
        view = result_view(result.estimate, task, most=MAX_ROWS, questions=asked)
        write(html.with_suffix(".json"), dumps({**as_json(result), "labels": task.labels}))
        write(html, result_page(result, task, view))
        return html.with_suffix(".json"), html


async def _has_ended(work: asyncio.Future[None], stop: asyncio.Event) -> bool:
    """Wait until work ends or is no more waited for; return whether it has ended."""
    stopping = asyncio.ensure_future(stop.wait())
    either: set[asyncio.Future[Any]] = {work, stopping}
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    return work.done()
